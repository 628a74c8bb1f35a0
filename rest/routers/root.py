"""`/` and `/health`."""

from __future__ import annotations

from fastapi import APIRouter, Response

from connect_py.api import rest_paths
from connect_py.herder.herder import Herder
from rest import deadline, entities
from rest.description import ref
from rest.errors import RestError
from rest.routers.routes import Routes

HEALTHY = "Worker has completed startup and is ready to handle requests."
STARTING = "Worker is still starting up."
UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."


def router(herder: Herder) -> APIRouter:
    route = Routes()
    status = ref("WorkerStatus")

    @route("GET", rest_paths.ROOT, "Version and cluster", {200: ref("ServerInfo")})
    async def server_info() -> Response:
        return entities.json_response(entities.server_info(herder.server_info()))

    @route(
        "GET",
        rest_paths.HEALTH,
        "Health of the worker",
        {200: status, 503: status, 500: {"oneOf": [status, ref("Error")]}},
    )
    async def health() -> Response:
        try:
            await deadline.answer(herder, herder.ping(), seconds=deadline.HEALTH_SECONDS)
        except RestError:
            if herder.stopping():
                raise
            sentence = deadline.stage_sentence(herder.stage())
            code, state, text = (
                (500, "unhealthy", UNHEALTHY) if herder.started() else (503, "starting", STARTING)
            )
            message = f"{text} {sentence}" if sentence else text
            return entities.json_response({"status": state, "message": message}, code)
        return entities.json_response({"status": "healthy", "message": HEALTHY})

    return route.router
