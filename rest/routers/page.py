"""`/ui` and `/docs`: pages for browsers, and the data for these pages. Not in Kafka Connect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from connect_py.api import rest_paths
from connect_py.api.errors import NotFoundError
from connect_py.api.secret_keys import SECRET_KEY, SECRET_MEMBER, URL_PASSWORD
from connect_py.herder.herder import Herder, WorkerInfo
from connect_py.metrics.prometheus_text import NameFamily, prometheus_text
from connect_py.secret_mask import MASK
from rest import entities
from rest.errors import NOT_FOUND, ErrorRoute
from rest.http_rules import RAW_PATH
from rest.routers.path import name_in
from rest.ui.page_files import API_PAGE, PAGE, page_file

# JavaScript regular expressions and replacements that mask secrets in values
SECRET_VALUES: Final = [[URL_PASSWORD.pattern, f"$1{MASK}@"], [SECRET_MEMBER.pattern, f"$1{MASK}"]]


def router(herder: Herder, names: Sequence[NameFamily]) -> APIRouter:
    """Return a router for the pages, the workers in the group, and a connector's metrics."""
    routes = APIRouter(route_class=ErrorRoute, include_in_schema=False)

    @routes.get(rest_paths.PAGE)
    async def page(request: Request) -> Response:
        return _page(request, PAGE, "../ui")

    @routes.get(rest_paths.API_PAGE)
    async def api_page(request: Request) -> Response:
        return _page(request, API_PAGE, "../docs")

    @routes.get(rest_paths.PAGE_WORKER)
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

    @routes.get(rest_paths.PAGE_METRICS)
    async def metrics(request: Request) -> Response:
        parameters = request.query_params
        connector, worker_id = parameters.get("connector", ""), parameters.get("worker", "")
        member = next((each for each in herder.workers() if each.worker_id == worker_id), None)
        if worker_id and member is None:
            raise NotFoundError(f"There is no worker {worker_id} in this group")
        samples = await _metrics(request, herder, names, member)
        return Response(
            "\n".join(_about(samples, connector)) + "\n", media_type="text/plain; charset=utf-8"
        )

    @routes.get(rest_paths.PAGE_FILE)
    async def file(request: Request) -> Response:
        return _file(request, name_in(request, "file"))

    return routes


def _page(request: Request, name: str, location: str) -> Response:
    """Return a page.

    A redirect removes a trailing slash, which would change the base of the page's relative links.
    """
    if bytes(request.scope.get(RAW_PATH, b"")).endswith(b"/"):
        return RedirectResponse(location, 308)
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    response = page_file(name, request.headers.get("if-none-match"))
    if response is None:
        raise NotFoundError(NOT_FOUND)
    return response


async def _metrics(
    request: Request, herder: Herder, names: Sequence[NameFamily], member: WorkerInfo | None
) -> str:
    """Return the metrics of this worker, or of another member of its group."""
    if member is None or member.is_self:
        return (await run_in_threadpool(lambda: prometheus_text(herder.metrics(), names))).decode()
    samples: str = await request.app.state.forwarder.fetch(request, member.url, rest_paths.METRICS)
    return samples


def _about(samples: str, connector: str) -> Iterator[str]:
    """Yield the samples for a connector and its Kafka clients."""
    name = re.escape(connector.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    clients = rf'(?i:client_?id)="connector-(?:consumer|producer)-{name}-\d+"'
    label = re.compile(rf'[{{,](?:connector="{name}"|{clients})')
    return (
        line for line in samples.splitlines() if label.search(line) and not line.startswith("#")
    )
