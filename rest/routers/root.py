"""`/` and `/health`."""

from __future__ import annotations

from fastapi import APIRouter, Response

from connect_py.herder.herder import Herder
from rest import deadline, entities
from rest.errors import AnsweringRoute, RestError

HEALTHY = "Worker has completed startup and is ready to handle requests."
STARTING = "Worker is still starting up."
UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."


def router(herder: Herder) -> APIRouter:
    routes = APIRouter(route_class=AnsweringRoute)

    @routes.get("/", summary="Version and cluster")
    async def server_info() -> Response:
        return entities.json_response(entities.server_info(herder.server_info()))

    @routes.get("/health", summary="Whether the worker can do its work")
    async def health() -> Response:
        try:
            await deadline.answer(herder, herder.ping(), seconds=deadline.HEALTH_SECONDS)
        except RestError:
            sentence = deadline.stage_sentence(herder.stage())
            status, state, text = (500, "unhealthy", UNHEALTHY) if herder.started() else (503, "starting", STARTING)
            message = f"{text} {sentence}" if sentence else text
            return entities.json_response({"status": state, "message": message}, status)
        return entities.json_response({"status": "healthy", "message": HEALTHY})

    return routes
