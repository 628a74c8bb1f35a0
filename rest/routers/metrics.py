"""`/metrics`: metrics in the Prometheus exposition format. Not in Kafka Connect."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from connect_py.api import rest_paths
from connect_py.herder.herder import Herder
from connect_py.metrics.prometheus_text import CONTENT_TYPE, NameFamily, prometheus_text
from rest.description import TEXT
from rest.routers.routes import Routes


def router(herder: Herder, names: Sequence[NameFamily]) -> APIRouter:
    """Return a router that serves the worker's metrics in these naming schemes."""
    route = Routes()

    def render() -> bytes:
        return prometheus_text(herder.metrics(), names)

    @route(
        "GET", rest_paths.METRICS, "Metrics for Prometheus", {200: TEXT}, media_type=CONTENT_TYPE
    )
    async def metrics() -> Response:
        return Response(await run_in_threadpool(render), headers={"Content-Type": CONTENT_TYPE})

    return route.router
