"""The REST application: routers, rules and errors put together."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from connect_py.herder.herder import Herder
from rest.http_rules import Endpoint, HttpRules
from rest.routers import connector_plugins, connectors, root

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
    Endpoint.of("/connectors/{connector}/tasks", "GET"),
    Endpoint.of("/connectors/{connector}/tasks/{task:int}/status", "GET"),
    Endpoint.of("/connectors/{connector}/tasks/{task:int}/restart", "POST"),
    Endpoint.of("/connectors/{connector}/topics", "GET"),
    Endpoint.of("/connectors/{connector}/topics/reset", "PUT"),
    Endpoint.of("/connector-plugins", "GET"),
    Endpoint.of("/connector-plugins/{plugin}/config", "GET"),
    Endpoint.of("/connector-plugins/{plugin}/config/validate", "PUT", body=["PUT"]),
    Endpoint.of("/openapi.json", "GET", negotiates=False),  # ours: the description of all this
)


def create_app(herder: Herder) -> ASGIApp:
    """Build the ASGI application that answers for this herder."""
    app = FastAPI(title="Kafka Connect REST API", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(root.router(herder))
    app.include_router(connectors.router(herder))
    app.include_router(connector_plugins.router(herder))
    return HttpRules(app, ENDPOINTS)
