"""`Routes`: the routes of one router, each declared with what `/openapi.json` says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from rest.description import describe
from rest.errors import AnsweringRoute


class Routes:
    """Called as a decorator: `@route("GET", path, summary, answers)`; further arguments as of
    `describe`."""

    def __init__(self) -> None:
        self.router = APIRouter(route_class=AnsweringRoute)

    def __call__(
        self, method: str, path: str, *described: Any, **more: Any
    ) -> Callable[[Any], Any]:
        return self.router.api_route(methods=[method], **describe(path, *described, **more))
