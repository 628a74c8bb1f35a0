"""`Forwarder`: forwards requests to the worker that can handle them.

A request is forwarded at most twice. The worker that receives it from the client forwards it with
`forward=true`. If the leader has changed, the next worker forwards it with `forward=false`.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import httpx
from fastapi import Request, Response

from connect_py.herder.herder import RequestTargetError
from connect_py.herder.request_signature import ALGORITHM_HEADER, AUTHORIZATION_HEADER
from rest import entities
from rest.errors import RestError
from rest.location import location_of

CONFLICT: Final = (
    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
)
NO_LEADER: Final = (
    "Cannot complete request momentarily due to no known leader URL, likely because "
    "a rebalance was underway."
)
FORWARD_SECONDS: Final = 90.0
CONNECT_SECONDS: Final = 10.0
USER_AGENT: Final = "kafka-connect"
_FORWARDED_HEADERS: Final = (
    "authorization",
    AUTHORIZATION_HEADER.lower(),
    ALGORITHM_HEADER.lower(),
)

log = logging.getLogger(__name__)


class Forwarder:
    """Forwards requests to other workers.

    It opens a new connection for each request, because forwarded requests are rare, and the target
    may have restarted.
    """

    def __init__(self, make_tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """Create a forwarder. `make_tls` creates a TLS context for each `https` request."""
        self._make_tls = make_tls or empty_tls_context

    async def forward(self, request: Request, target: RequestTargetError) -> Response:
        """Forward a request to the target and return its response.

        Raises:
            RestError: The status and message of the target's error response, 409 if the target is
                unknown, or 500 if it cannot be reached.
        """
        hop = request.query_params.get("forward")
        if hop is not None and hop.lower() != "true":
            log.error(
                "%s %s was forwarded twice without reaching a worker that can handle it",
                request.method,
                request.url.path,
            )
            raise RestError(409, CONFLICT)
        if not target.url:
            raise RestError(409, NO_LEADER)
        body = await request.body()
        query = [
            (key, value) for key, value in request.query_params.multi_items() if key != "forward"
        ]
        query.append(("forward", "true" if hop is None else "false"))
        url = f"{target.url.rstrip('/')}{request.scope['raw_path'].decode()}?{urlencode(query)}"
        headers = {
            name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers
        }
        response = await self._request(
            request.method, url, {**request_headers(body), **headers}, body
        )
        return _forwarded(request, response)

    async def fetch(self, request: Request, worker: str, path: str) -> str:
        """Send a GET request to another worker on the user's behalf, and return the response body.

        Args:
            request: The user's request.
            worker: The advertised address of the other worker.
            path: The path to request.

        Raises:
            RestError: See `forward`.
        """
        headers = {
            name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers
        }
        response = await self._request("GET", worker.rstrip("/") + path, headers, b"")
        check(response)
        return response.text

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        try:
            tls = tls_for(url, self._make_tls)
            async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=timeout()) as client:
                return await client.request(method, url, headers=headers, content=body)
        except httpx.TransportError as error:
            raise RestError(
                500, f"IO Error trying to forward REST request: {message_of(error)}"
            ) from error
        except httpx.HTTPError as error:
            raise RestError(
                500, f"Error trying to forward REST request: {message_of(error)}"
            ) from error


def empty_tls_context() -> ssl.SSLContext:
    """Return a context without certificates, for plain HTTP."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def tls_for(url: str, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return the TLS context for a URL. `make` is called only for `https`."""
    return make() if url.startswith("https:") else empty_tls_context()


def timeout() -> httpx.Timeout:
    """Return the timeout for a forwarded request. The timeout for connecting is shorter."""
    return httpx.Timeout(FORWARD_SECONDS, connect=CONNECT_SECONDS)


def request_headers(body: bytes) -> dict[str, str]:
    """Return the headers for requests between workers."""
    headers = {"accept": "application/json", "user-agent": USER_AGENT}
    return {**headers, "content-type": "application/json"} if body else headers


def message_of(error: Exception) -> str:
    """Return an error's message, or its class if it has no message."""
    return str(error) or type(error).__name__


def check(response: httpx.Response) -> None:
    """Raise an error if another worker's response is not successful.

    Raises:
        RestError: The status and message of an error response, or 500 if the response does not
            come from a worker.
    """
    if response.status_code >= 400:
        raise RestError(response.status_code, _refusal(response))
    if response.status_code >= 300:
        raise RestError(
            500, f"Unexpected status code when handling forwarded request: {response.status_code}"
        )


def _refusal(response: httpx.Response) -> str | None:
    try:
        body: Any = response.json()
        message = body["message"]
    except (ValueError, KeyError, TypeError) as error:
        if response.status_code == 401:
            return response.text
        raise RestError(
            500,
            f"IO Error trying to forward REST request: status {response.status_code} without an "
            f"error entity",
        ) from error
    return None if message is None else str(message)


def _forwarded(request: Request, response: httpx.Response) -> Response:
    check(response)
    if not response.content:
        return entities.empty_response(response.status_code)
    headers = {}
    if response.status_code == 201:
        try:
            headers = location_of(request, json.loads(response.content)["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise RestError(
                500, "IO Error trying to forward REST request: the response is not a connector"
            ) from error
    return Response(
        response.content,
        status_code=response.status_code,
        media_type="application/json",
        headers=headers,
    )
