"""`/admin/loggers`: log levels on this worker or on all workers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from connect_py.api import rest_paths
from connect_py.herder.herder import Herder, LoggerLevel
from connect_py.log_context import LEVELS
from rest import deadline, entities
from rest.description import TEXTS, map_of, ref
from rest.errors import RestError
from rest.json_body import parse_json, string_map
from rest.routers.path import name_in
from rest.routers.routes import Routes


def router(herder: Herder) -> APIRouter:
    route = Routes()

    @route(
        "GET",
        rest_paths.LOGGERS,
        "Levels of all loggers that are not OFF",
        {200: map_of(ref("LoggerLevel"))},
    )
    async def list_loggers() -> Response:
        return entities.json_response(
            {name: _entity(level) for name, level in herder.logger_levels().items()}
        )

    @route(
        "GET",
        rest_paths.LOGGER,
        "Level of a logger",
        {200: ref("LoggerLevel")},
        refusals=[404],
    )
    async def get_logger(request: Request) -> Response:
        return entities.json_response(_entity(herder.logger_level(name_in(request, "logger"))))

    @route(
        "PUT",
        rest_paths.LOGGER,
        "Set the level of a logger and its children, on this worker or on all workers",
        {200: TEXTS, 204: None},
        query={"scope": {"type": "string", "enum": ["worker", "cluster"], "default": "worker"}},
        body=ref("LevelRequest"),
        refusals=[404],
    )
    async def set_level(request: Request) -> Response:
        namespace = name_in(request, "logger")
        name = string_map(parse_json(await request.body())).get("level")
        level = _level(name)
        if request.query_params.get("scope", "worker").lower() != "cluster":
            changed = await deadline.call(herder, lambda: herder.set_logger_level(namespace, level))
            return entities.json_response(changed)
        await deadline.state_read(herder)
        await deadline.call(herder, lambda: herder.set_cluster_logger_level(namespace, str(name)))
        return entities.empty_response(204)

    return route.router


def _entity(level: LoggerLevel) -> dict[str, str | int | None]:
    return {"level": level.level, "last_modified": level.last_modified}


def _level(text: str | None) -> str:
    """Return the requested level.

    Raises:
        RestError: The level is missing (400), empty (500), or unknown (404).
    """
    if text is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    if text == "":
        raise RestError(500, "Illegal null or empty Level name.")
    level = text.strip().upper()
    if level not in LEVELS:
        raise RestError(404, f"invalid log level '{text}'.")
    return level
