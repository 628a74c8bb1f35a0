"""Signed requests between the workers of a group."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from connect_py.api import rest_paths
from connect_py.herder.herder import Herder
from connect_py.herder.request_signature import (
    ALGORITHM_HEADER,
    AUTHORIZATION_HEADER,
    RequestSignature,
)
from rest import deadline, entities
from rest.description import array_of, ref
from rest.errors import RestError
from rest.json_body import (
    JsonScalar,
    check_fields,
    expect_array,
    expect_object,
    parse_json,
    string_map,
)
from rest.routers.path import name_in
from rest.routers.routes import Routes


def router(herder: Herder) -> APIRouter:
    route = Routes()

    @route(
        "POST",
        rest_paths.TASKS,
        "Internal: publish the task configurations of a connector",
        {204: None},
        body=array_of(ref("Config")),
        refusals=[403, 404, 503],
        forwarded=True,
    )
    async def put_task_configs(request: Request) -> Response:
        name, body = name_in(request), await request.body()
        configs = [string_map(item) for item in expect_array(parse_json(body))]
        strings = [
            {key: value for key, value in config.items() if value is not None} for config in configs
        ]
        await deadline.answer(
            herder, herder.put_task_configs(name, strings, _signature(request, body))
        )
        return entities.empty_response(204)

    @route(
        "PUT",
        rest_paths.CONNECTOR_STOP_REQUEST,
        "Internal: stop a connector on behalf of a task",
        {204: None},
        body=ref("StopRequest"),
        refusals=[403, 404, 503],
        forwarded=True,
    )
    async def put_stop_request(request: Request) -> Response:
        name, body = name_in(request), await request.body()
        start_number, reason = _stop_request(body)
        await deadline.answer(
            herder, herder.put_stop_request(name, start_number, reason, _signature(request, body))
        )
        return entities.empty_response(204)

    @route(
        "PUT",
        rest_paths.CONNECTOR_FENCE,
        "Internal: fence older producers of a source connector",
        {204: None},
        refusals=[403, 404, 503],
        forwarded=True,
    )
    async def fence(request: Request) -> Response:
        name, body = name_in(request), await request.body()
        await deadline.answer(herder, herder.fence_zombies(name, _signature(request, body)))
        return entities.empty_response(204)

    return route.router


def _stop_request(body: bytes) -> tuple[int, str]:
    entity = expect_object(parse_json(body), "StopRequest")
    check_fields(entity, "StopRequest", "start_number", "reason")
    start_number, reason = entity.get("start_number"), entity.get("reason")
    if (
        not isinstance(start_number, JsonScalar)
        or not start_number.isdecimal()
        or not isinstance(reason, str)
    ):
        raise RestError(400, "A stop request must have a start_number and a reason")
    return int(start_number), reason


def _signature(request: Request, body: bytes) -> RequestSignature | None:
    try:
        return RequestSignature.of(
            body, request.headers.get(AUTHORIZATION_HEADER), request.headers.get(ALGORITHM_HEADER)
        )
    except ValueError as error:
        raise RestError(400, str(error)) from error
