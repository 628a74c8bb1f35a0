"""The REST application: routers, rules and errors put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from connect_py.herder.herder import Herder
from connect_py.metrics.prometheus_text import NameFamily
from rest.basic_auth import BasicAuth
from rest.cross_origin import CrossOrigin
from rest.description import ENTITIES
from rest.forwarding import Forwarder
from rest.http_rules import Endpoint, HttpRules
from rest.response_headers import HeaderRule, ResponseHeaders
from rest.routers import (
    connector_plugins,
    connectors,
    internal,
    loggers,
    metrics,
    offsets,
    operations,
    page,
    root,
)
from rest.same_origin import SameOrigin

# ours: the description of all this
DESCRIPTION = Endpoint.of("/openapi.json", "GET", negotiates=False)
METRICS = Endpoint.of("/metrics", "GET", negotiates=False)  # ours, too
ENDPOINTS = (
    Endpoint.of("/", "GET"),
    Endpoint.of("/health", "GET"),
    Endpoint.of("/connectors", "GET", "POST", body=["POST"]),
    Endpoint.of("/connectors/{connector}", "GET", "DELETE"),
    Endpoint.of("/connectors/{connector}/config", "GET", "PUT", "PATCH", body=["PUT", "PATCH"]),
    Endpoint.of("/connectors/{connector}/status", "GET"),
    Endpoint.of("/connectors/{connector}/restart", "POST"),
    Endpoint.of("/connectors/{connector}/pause", "PUT"),
    Endpoint.of("/connectors/{connector}/resume", "PUT"),
    Endpoint.of("/connectors/{connector}/stop", "PUT"),
    Endpoint.of("/connectors/{connector}/tasks", "GET", "POST", body=["POST"], signed=["POST"]),
    Endpoint.of("/connectors/{connector}/fence", "PUT", signed=["PUT"]),
    Endpoint.of("/connectors/{connector}/stop-request", "PUT", body=["PUT"], signed=["PUT"]),
    Endpoint.of("/connectors/{connector}/tasks/{task:int}/status", "GET"),
    Endpoint.of("/connectors/{connector}/tasks/{task:int}/restart", "POST"),
    Endpoint.of("/connectors/{connector}/offsets", "GET", "PATCH", "DELETE", body=["PATCH"]),
    Endpoint.of("/connectors/{connector}/operations/{operation}", "POST", body=["POST"]),
    Endpoint.of("/connectors/{connector}/topics", "GET"),
    Endpoint.of("/connectors/{connector}/topics/reset", "PUT"),
    Endpoint.of("/connector-plugins", "GET"),
    Endpoint.of("/connector-plugins/{plugin}/config", "GET"),
    Endpoint.of("/connector-plugins/{plugin}/config/validate", "PUT", body=["PUT"]),
    DESCRIPTION,
    METRICS,
)
PAGE_ENDPOINTS = (  # ours, for people
    Endpoint.of("/ui", "GET", negotiates=False, login=True),
    Endpoint.of("/ui/{file}", "GET", negotiates=False, login=True),
    Endpoint.of("/docs", "GET", negotiates=False, login=True),
)
ADMIN_ENDPOINTS = (
    Endpoint.of("/admin/loggers", "GET"),
    Endpoint.of("/admin/loggers/{logger}", "GET", "PUT", body=["PUT"]),
)


@dataclass(frozen=True, slots=True)
class RestOptions:
    """What a worker's owner may choose about its REST API."""

    admin: bool = True  # whether the admin paths are among the others
    page: bool = True  # whether there is a page for people
    origins: str = ""  # for browsers; empty: none
    methods: str = ""
    headers: Sequence[HeaderRule] = ()
    auth: BasicAuth | None = None
    forwarder: Forwarder | None = None  # to other workers; one without TLS unless given
    metric_names: Sequence[NameFamily] = (NameFamily.CONFLUENT,)


def create_app(herder: Herder, options: RestOptions | None = None) -> ASGIApp:
    """Build the ASGI application that answers for this herder."""
    options = options or RestOptions()
    parts = (root, connectors, offsets, operations, connector_plugins, internal)
    routers = [
        *(part.router(herder) for part in parts),
        metrics.router(herder, options.metric_names),
    ]
    if options.admin:
        routers.append(loggers.router(herder))
    endpoints = (*ENDPOINTS, *ADMIN_ENDPOINTS) if options.admin else ENDPOINTS
    if options.page:
        routers.append(page.router(herder, options.metric_names))
        endpoints = (*endpoints, *PAGE_ENDPOINTS)
    app: ASGIApp = HttpRules(_routed(herder, routers, options), endpoints, options.auth)
    app = SameOrigin(app, options.origins)
    if options.origins.strip():
        app = CrossOrigin(app, options.origins, options.methods)
    return ResponseHeaders(app, options.headers) if options.headers else app


def create_admin_app(herder: Herder, options: RestOptions) -> ASGIApp:
    """Build the application for listeners that serve the admin paths and nothing else."""
    routers = [loggers.router(herder), metrics.router(herder, options.metric_names)]
    app = HttpRules(
        _routed(herder, routers, options), (*ADMIN_ENDPOINTS, DESCRIPTION, METRICS), options.auth
    )
    return SameOrigin(app, options.origins)


def _routed(herder: Herder, routers: Iterable[APIRouter], options: RestOptions) -> FastAPI:
    version = herder.server_info().version
    app = FastAPI(
        title="Kafka Connect REST API",
        version=version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in routers:
        app.include_router(router)
    app.state.herder = herder
    app.state.forwarder = options.forwarder or Forwarder()
    description = app.openapi()  # made once, and kept by the application
    description.setdefault("components", {})["schemas"] = dict(ENTITIES)
    return app
