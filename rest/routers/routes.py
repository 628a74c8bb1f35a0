"""`Routes`: decorator that declares routes with their descriptions for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from rest.description import describe
from rest.errors import ErrorRoute


class Routes:
    """Decorator that adds a route to a router: `@route("GET", path, summary, answers)`.

    For the other arguments, see `describe`.
    """

    def __init__(self) -> None:
        self.router = APIRouter(route_class=ErrorRoute)

    def __call__(
        self, method: str, path: str, *description: Any, **options: Any
    ) -> Callable[[Any], Any]:
        return self.router.api_route(methods=[method], **describe(path, *description, **options))
