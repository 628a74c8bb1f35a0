"""`/connectors/{connector}/operations/{operation}`: operations that a connector class defines.

Not in Kafka Connect.
"""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response

from connect_py.api import rest_paths
from connect_py.api.errors import ConfigError
from connect_py.herder.herder import Herder
from rest import deadline, entities, operation_stream
from rest.description import FLAG
from rest.errors import RestError
from rest.json_body import expect_object, parse_json
from rest.routers.path import name_in
from rest.routers.routes import Routes

_OBJECT = "java.util.LinkedHashMap<java.lang.String,java.lang.Object>"


def router(herder: Herder) -> APIRouter:
    route = Routes()

    @route(
        "POST",
        rest_paths.CONNECTOR_OPERATION,
        "Call an operation of the connector class",
        {200: {}},
        body={"type": "object"},
        query={"progress": FLAG},
        refusals=[400, 404],
    )
    async def operate(request: Request) -> Response:
        body = parse_json(await request.body())
        # converts each JsonScalar to a plain string
        arguments = json.loads(json.dumps(expect_object({} if body is None else body, _OBJECT)))
        operation = name_in(request, "operation")
        if request.query_params.get("progress", "").lower() == "true":
            running = herder.start_operation(name_in(request), operation, arguments)
            return await operation_stream.response(running)
        try:
            result = await deadline.answer(
                herder, herder.operate_connector(name_in(request), operation, arguments)
            )
        except ConfigError as error:
            raise RestError(400, str(error)) from error
        return entities.json_response(result)

    return route.router
