"""`/ui` and `/docs`: the page for people, and what only the page asks for. Not in Kafka Connect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from connect_py.api.errors import NotFoundError
from connect_py.api.secret_keys import SECRET_KEY, SECRET_MEMBER, URL_PASSWORD
from connect_py.herder.herder import Herder, WorkerInfo
from connect_py.metrics.prometheus_text import NameFamily, prometheus_text
from connect_py.secret_mask import MASK
from rest import entities
from rest.errors import NOT_FOUND, AnsweringRoute
from rest.http_rules import ASKED_PATH
from rest.routers.path import name_in
from rest.ui.page_files import API_PAGE, PAGE, page_file

# What is replaced in values, as the page's language writes it.
SECRET_VALUES: Final = [[URL_PASSWORD.pattern, f"$1{MASK}@"], [SECRET_MEMBER.pattern, f"$1{MASK}"]]


def router(herder: Herder, names: Sequence[NameFamily]) -> APIRouter:
    """The pages, what the page asks about the group, and the measurements of one connector on one
    worker."""
    routes = APIRouter(route_class=AnsweringRoute, include_in_schema=False)

    @routes.get("/ui")
    async def page(request: Request) -> Response:
        return _page(request, PAGE, "../ui")

    @routes.get("/docs")
    async def api_page(request: Request) -> Response:
        return _page(request, API_PAGE, "../docs")

    @routes.get("/ui/worker.json")
    async def worker() -> Response:
        workers = [
            {
                "worker_id": each.worker_id,
                "url": each.url,
                "leader": each.leads,
                "here": each.is_self,
            }
            for each in herder.workers()
        ]
        return entities.json_response(
            {"workers": workers, "secret_keys": SECRET_KEY.pattern, "secret_values": SECRET_VALUES}
        )

    @routes.get("/ui/metrics.txt")
    async def metrics(request: Request) -> Response:
        asked = request.query_params
        connector, place = asked.get("connector", ""), asked.get("worker", "")
        other = next((each for each in herder.workers() if each.worker_id == place), None)
        if place and other is None:
            raise NotFoundError(f"There is no worker {place} in this group")
        text = await _metrics(request, herder, names, other)
        return Response(
            "\n".join(_about(text, connector)) + "\n", media_type="text/plain; charset=utf-8"
        )

    @routes.get("/ui/{file}")
    async def file(request: Request) -> Response:
        return _file(request, name_in(request, "file"))

    return routes


def _page(request: Request, name: str, itself: str) -> Response:
    """A page; asked for with a slash at its end, its files would be looked for elsewhere."""
    if bytes(request.scope.get(ASKED_PATH, b"")).endswith(b"/"):
        return RedirectResponse(itself, 308)
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    found = page_file(name, request.headers.get("if-none-match"))
    if found is None:
        raise NotFoundError(NOT_FOUND)
    return found


async def _metrics(
    request: Request, herder: Herder, names: Sequence[NameFamily], other: WorkerInfo | None
) -> str:
    """Of this worker, or of another one of its group."""
    if other is None or other.is_self:
        return (await run_in_threadpool(lambda: prometheus_text(herder.metrics(), names))).decode()
    text: str = await request.app.state.forwarder.fetch(request, other.url, "/metrics")
    return text


def _about(text: str, connector: str) -> Iterator[str]:
    """The lines about one connector and its Kafka clients: of a thousand connectors they are
    few."""
    name = re.escape(connector.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    clients = rf'(?i:client_?id)="connector-(?:consumer|producer)-{name}-\d+"'
    label = re.compile(rf'[{{,](?:connector="{name}"|{clients})')
    return (line for line in text.splitlines() if label.search(line) and not line.startswith("#"))
