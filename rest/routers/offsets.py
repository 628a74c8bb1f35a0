"""`/connectors/{connector}/offsets`: committed offsets of a connector."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from connect_py.api.rest_paths import CONNECTOR_OFFSETS
from connect_py.herder.herder import BadRequestError, Herder
from connect_py.model import ConnectorOffset
from rest import deadline, entities
from rest.description import ref
from rest.errors import RestError
from rest.json_body import check_fields, expect_array, expect_object, object_map, parse_json
from rest.routers.path import name_in
from rest.routers.routes import Routes

_REQUEST = "org.apache.kafka.connect.runtime.rest.entities.ConnectorOffsets"
_ENTRY = "org.apache.kafka.connect.runtime.rest.entities.ConnectorOffset"
_ENTRIES = f"java.util.ArrayList<{_ENTRY}>"


def router(herder: Herder) -> APIRouter:
    route = Routes()

    @route(
        "GET",
        CONNECTOR_OFFSETS,
        "Committed offsets of a connector in any state",
        {200: ref("ConnectorOffsets")},
        refusals=[404],
    )
    async def get_offsets(request: Request) -> Response:
        offsets = await deadline.answer(herder, herder.connector_offsets(name_in(request)))
        return entities.json_response(entities.connector_offsets(offsets))

    @route(
        "PATCH",
        CONNECTOR_OFFSETS,
        "Change offsets of a stopped connector; null resets an offset",
        {200: ref("Message")},
        body=ref("ConnectorOffsets"),
        refusals=[404],
        forwarded=True,
    )
    async def alter_offsets(request: Request) -> Response:
        offsets = _offsets(parse_json(await request.body()))
        return await _altered(request, offsets)

    @route(
        "DELETE",
        CONNECTOR_OFFSETS,
        "Reset all offsets of a stopped connector",
        {200: ref("Message")},
        refusals=[404],
        forwarded=True,
    )
    async def reset_offsets(request: Request) -> Response:
        return await _altered(request, None)

    async def _altered(request: Request, offsets: Sequence[ConnectorOffset] | None) -> Response:
        message = await deadline.answer(
            herder, herder.alter_connector_offsets(name_in(request), offsets)
        )
        return entities.json_response({"message": message})

    return route.router


def _offsets(body: Any) -> list[ConnectorOffset]:
    """Return the entries in a request. The last entry for each partition takes precedence.

    Raises:
        BadRequestError: The request has no entries.
        RestError: 500 if the body does not have the expected structure.
    """
    members = expect_object(body, _REQUEST)
    check_fields(members, _REQUEST, "offsets")
    offsets = members.get("offsets")
    entries = (
        [] if offsets is None else [_entry(entry) for entry in expect_array(offsets, _ENTRIES)]
    )
    if not entries:
        raise BadRequestError(
            "Partitions / offsets need to be provided for an alter offsets request"
        )
    if None in entries:
        raise RestError(500, f'Cannot invoke "{_ENTRY}.partition()" because "offset" is null')
    by_partition = {
        json.dumps(entry.partition, sort_keys=True): entry for entry in entries if entry is not None
    }
    return list(by_partition.values())


def _entry(value: Any) -> ConnectorOffset | None:
    if value is None:
        return None
    members = expect_object(value, _ENTRY)
    check_fields(members, _ENTRY, "partition", "offset")
    return ConnectorOffset(object_map(members.get("partition")), object_map(members.get("offset")))
