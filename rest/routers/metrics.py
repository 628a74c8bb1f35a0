"""`/metrics`: ours, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from connect_py.herder.herder import Herder
from connect_py.metrics.prometheus_text import CONTENT_TYPE, NameFamily, prometheus_text
from rest.description import TEXT
from rest.routers.routes import Routes


def router(herder: Herder, names: Sequence[NameFamily]) -> APIRouter:
    """Serve the worker's measurements under these names."""
    route = Routes()

    def render() -> bytes:
        return prometheus_text(herder.metrics(), names)

    @route("GET", "/metrics", "Measurements for Prometheus", {200: TEXT}, media_type=CONTENT_TYPE)
    async def metrics() -> Response:
        return Response(await run_in_threadpool(render), headers={"Content-Type": CONTENT_TYPE})

    return route.router
