"""`create_app`: builds the REST application from its routers and middleware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from connect_py.api import rest_paths
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

# OpenAPI description of the API; not in Kafka Connect
DESCRIPTION = Endpoint.of(rest_paths.API_DESCRIPTION, "GET", negotiates=False)
METRICS = Endpoint.of(rest_paths.METRICS, "GET", negotiates=False)  # not in Kafka Connect
ENDPOINTS = (
    Endpoint.of(rest_paths.ROOT, "GET"),
    Endpoint.of(rest_paths.HEALTH, "GET"),
    Endpoint.of(rest_paths.CONNECTORS, "GET", "POST", body=["POST"]),
    Endpoint.of(rest_paths.CONNECTOR, "GET", "DELETE"),
    Endpoint.of(rest_paths.CONNECTOR_CONFIG, "GET", "PUT", "PATCH", body=["PUT", "PATCH"]),
    Endpoint.of(rest_paths.CONNECTOR_STATUS, "GET"),
    Endpoint.of(rest_paths.CONNECTOR_RESTART, "POST"),
    Endpoint.of(rest_paths.CONNECTOR_PAUSE, "PUT"),
    Endpoint.of(rest_paths.CONNECTOR_RESUME, "PUT"),
    Endpoint.of(rest_paths.CONNECTOR_STOP, "PUT"),
    Endpoint.of(rest_paths.TASKS, "GET", "POST", body=["POST"], signed=["POST"]),
    Endpoint.of(rest_paths.CONNECTOR_FENCE, "PUT", signed=["PUT"]),
    Endpoint.of(rest_paths.CONNECTOR_STOP_REQUEST, "PUT", body=["PUT"], signed=["PUT"]),
    Endpoint.of(rest_paths.TASK_STATUS, "GET"),
    Endpoint.of(rest_paths.TASK_RESTART, "POST"),
    Endpoint.of(rest_paths.CONNECTOR_OFFSETS, "GET", "PATCH", "DELETE", body=["PATCH"]),
    Endpoint.of(rest_paths.CONNECTOR_OPERATION, "POST", body=["POST"]),
    Endpoint.of(rest_paths.CONNECTOR_TOPICS, "GET"),
    Endpoint.of(rest_paths.CONNECTOR_TOPICS_RESET, "PUT"),
    Endpoint.of(rest_paths.PLUGINS, "GET"),
    Endpoint.of(rest_paths.PLUGIN_CONFIG, "GET"),
    Endpoint.of(rest_paths.PLUGIN_VALIDATE, "PUT", body=["PUT"]),
    DESCRIPTION,
    METRICS,
)
PAGE_ENDPOINTS = (  # pages for browsers; not in Kafka Connect
    Endpoint.of(rest_paths.PAGE, "GET", negotiates=False, login=True),
    Endpoint.of(rest_paths.PAGE_FILE, "GET", negotiates=False, login=True),
    Endpoint.of(rest_paths.API_PAGE, "GET", negotiates=False, login=True),
)
ADMIN_ENDPOINTS = (
    Endpoint.of(rest_paths.LOGGERS, "GET"),
    Endpoint.of(rest_paths.LOGGER, "GET", "PUT", body=["PUT"]),
)


@dataclass(frozen=True, slots=True)
class RestOptions:
    """Settings for the REST API from the worker's properties."""

    admin: bool = True  # serve the admin paths together with the other paths
    page: bool = True  # serve the pages for browsers
    origins: str = ""  # origins whose pages may call the API; empty if there are none
    methods: str = ""
    headers: Sequence[HeaderRule] = ()
    auth: BasicAuth | None = None
    forwarder: Forwarder | None = None  # forwards to other workers; without TLS by default
    metric_names: Sequence[NameFamily] = (NameFamily.CONFLUENT,)


def create_app(herder: Herder, options: RestOptions | None = None) -> ASGIApp:
    """Build the ASGI application for a herder."""
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
    """Build the application for listeners that serve only the admin paths."""
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
    description = app.openapi()  # built once and cached by FastAPI
    description.setdefault("components", {})["schemas"] = dict(ENTITIES)
    return app
