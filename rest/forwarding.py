"""`Forwarder`: hands a request on to the worker that must answer it, and its answer back to the
client.

A request makes two hops at most: the worker that a client asked sends it on with `forward=true`,
the next one, if the leader has changed meanwhile, with `forward=false`, and then no worker does.
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
_PASSED_ON: Final = ("authorization", AUTHORIZATION_HEADER.lower(), ALGORITHM_HEADER.lower())

log = logging.getLogger(__name__)


class Forwarder:
    """Each request goes over a connection of its own: they are rare, and the target may have
    restarted."""

    def __init__(self, make_tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """`make_tls` is asked when a target's address begins with `https`."""
        self._make_tls = make_tls or empty_tls_context

    async def forward(self, request: Request, target: RequestTargetError) -> Response:
        """Ask the worker that `target` names, and answer as it does.

        Raises: RestError: What it refused, with its status and text; 409, the worker to ask is not
            known; 500, no contact.
        """
        hop = request.query_params.get("forward")
        if hop is not None and hop.lower() != "true":
            log.error(
                "%s %s found no worker to answer it within two hops",
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
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        answer = await self._ask(request.method, url, {**request_headers(body), **headers}, body)
        return _relayed(request, answer)

    async def fetch(self, request: Request, worker: str, path: str) -> str:
        """What another worker answers to a GET, in this user's name.

        Args:
            worker: The address that it advertises.

        Raises:
            RestError: As of `forward`.
        """
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        answer = await self._ask("GET", worker.rstrip("/") + path, headers, b"")
        check(answer)
        return answer.text

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        try:
            tls = tls_for(url, self._make_tls)
            async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=timeout()) as client:
                return await client.request(method, url, headers=headers, content=body)
        except httpx.TransportError as error:
            raise RestError(
                500, f"IO Error trying to forward REST request: {said(error)}"
            ) from error
        except httpx.HTTPError as error:
            raise RestError(500, f"Error trying to forward REST request: {said(error)}") from error


def empty_tls_context() -> ssl.SSLContext:
    """A context that loads nothing, as plain HTTP needs it."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def tls_for(url: str, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """The context for an address: made only where it is needed."""
    return make() if url.startswith("https:") else empty_tls_context()


def timeout() -> httpx.Timeout:
    """As long as a request may take, less for reaching the other worker."""
    return httpx.Timeout(FORWARD_SECONDS, connect=CONNECT_SECONDS)


def request_headers(body: bytes) -> dict[str, str]:
    """What every request between workers carries."""
    headers = {"accept": "application/json", "user-agent": USER_AGENT}
    return {**headers, "content-type": "application/json"} if body else headers


def said(error: Exception) -> str:
    """The text of a failure; some have none."""
    return str(error) or type(error).__name__


def check(answer: httpx.Response) -> None:
    """Let a success pass.

    Raises: RestError: What the other worker refused, with its status and text; 500, it did not
        answer as workers do.
    """
    if answer.status_code >= 400:
        raise RestError(answer.status_code, _refusal(answer))
    if answer.status_code >= 300:
        raise RestError(
            500, f"Unexpected status code when handling forwarded request: {answer.status_code}"
        )


def _refusal(answer: httpx.Response) -> str | None:
    try:
        body: Any = answer.json()
        message = body["message"]
    except (ValueError, KeyError, TypeError) as error:
        if answer.status_code == 401:
            return answer.text
        raise RestError(
            500,
            f"IO Error trying to forward REST request: status {answer.status_code} without an "
            f"error entity",
        ) from error
    return None if message is None else str(message)


def _relayed(request: Request, answer: httpx.Response) -> Response:
    check(answer)
    if not answer.content:
        return entities.empty_response(answer.status_code)
    headers = {}
    if answer.status_code == 201:
        try:
            headers = location_of(request, json.loads(answer.content)["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise RestError(
                500, "IO Error trying to forward REST request: the answer is no connector"
            ) from error
    return Response(
        answer.content,
        status_code=answer.status_code,
        media_type="application/json",
        headers=headers,
    )
