"""Error responses, which have two fields and never contain a stack trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from connect_py.api.errors import AlreadyExistsError, NotFoundError
from connect_py.herder.herder import (
    BadRequestError,
    RequestConflictError,
    RequestTargetError,
    UnavailableError,
)
from connect_py.secret_mask import masked

log = logging.getLogger(__name__)

NOT_FOUND = "HTTP 404 Not Found"
METHOD_NOT_ALLOWED = "HTTP 405 Method Not Allowed"
NOT_ACCEPTABLE = "HTTP 406 Not Acceptable"
TOO_LARGE = "HTTP 413 Request Entity Too Large"
TARGET_TOO_LONG = "HTTP 414 URI Too Long"
UNSUPPORTED_MEDIA_TYPE = "HTTP 415 Unsupported Media Type"
HEAD_TOO_LARGE = "HTTP 431 Request Header Fields Too Large"
SHUTTING_DOWN = "Worker is shutting down"


class RestError(Exception):
    """An error response with its HTTP status and message."""

    def __init__(self, status: int, message: str | None) -> None:
        super().__init__(message or "")
        self.status = status
        self.message = message


_STATUS_BY_CLASS: tuple[tuple[type[Exception], int], ...] = (
    (NotFoundError, 404),
    (AlreadyExistsError, 409),
    (BadRequestError, 400),
    (RequestConflictError, 409),
    (PermissionError, 403),
    (UnavailableError, 503),
)


def status_and_message(error: Exception) -> tuple[int, str | None]:
    """Return the HTTP status and message for an error. The status for unknown errors is 500."""
    if isinstance(error, RestError):
        return error.status, error.message
    status = next((status for kind, status in _STATUS_BY_CLASS if isinstance(error, kind)), 500)
    return status, str(error) or None


def error_body(status: int, message: str | None) -> bytes:
    """Return the error entity, which has exactly two members in this order."""
    message = None if message is None else masked(message)
    entity = json.dumps(
        {"error_code": status, "message": message}, separators=(",", ":"), ensure_ascii=False
    )
    return entity.encode("utf-8", "replace")


def error_response(status: int, message: str | None) -> Response:
    return Response(error_body(status, message), status_code=status, media_type="application/json")


class ErrorRoute(APIRoute):
    """Route that converts every error to Kafka Connect's error entity.

    Unexpected errors are logged with their traceback.

    Requests that another worker must handle are forwarded to it. If a request fails because the
    worker is stopping, the response is 503.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                try:
                    return await handler(request)
                except RequestTargetError as target:
                    forwarded: Response = await request.app.state.forwarder.forward(request, target)
                    return forwarded
            except ClientDisconnect:
                return error_response(408, "HTTP 408 Request Timeout")
            except Exception as error:
                status, message = status_and_message(error)
                if status == 500 and request.app.state.herder.stopping():
                    log.info(
                        "%s %s failed while the worker is stopping: %s",
                        request.method,
                        request.url.path,
                        message,
                    )
                    return error_response(503, SHUTTING_DOWN)
                if status >= 500 and not isinstance(error, RestError):
                    log.error(
                        "%s %s failed: %s",
                        request.method,
                        request.url.path,
                        message,
                        exc_info=error,
                    )
                return error_response(status, message)

        return handle
