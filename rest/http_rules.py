"""HTTP rules that are applied before routing: paths, verbs, media types, HEAD, and OPTIONS.

Kafka Connect embeds Jetty and Jersey. This module reproduces their behavior as far as clients can
observe it. Because the rules are applied before routing, clients never receive a FastAPI response
(422, redirects, `{"detail":…}`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rest.basic_auth import REFUSED as NOT_PERMITTED
from rest.basic_auth import BasicAuth
from rest.errors import (
    HEAD_TOO_LARGE,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    TARGET_TOO_LONG,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    RestError,
    error_body,
)

JSON = "application/json"
RAW_PATH = "connect_py.raw_path"  # scope key for the path as the client sent it
MAX_HEAD = 8192  # bytes
MAX_BODY = 16 * 1024 * 1024  # bytes; configurations are much smaller

_ASK_LOGIN = ((b"www-authenticate", b'Basic realm="Kafka Connect", charset="UTF-8"'),)
_CHARSET = re.compile(r"application/json\s*;\s*charset=[\w-]+", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~\w-]+)/([!#$%&'*+.^_`|~\w-]+)\s*(;.*)?\s*")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path in the API, with its verbs and the rules for its media types."""

    pattern: re.Pattern[str]
    verbs: frozenset[str]
    body_verbs: frozenset[str] = frozenset()
    signed_verbs: frozenset[str] = frozenset()  # verbs of requests that other workers sign
    negotiates: bool = True
    # makes browsers prompt for a user name and password; the Java worker never does this
    login: bool = False

    @staticmethod
    def of(
        path: str,
        *verbs: str,
        body: Sequence[str] = (),
        signed: Sequence[str] = (),
        negotiates: bool = True,
        login: bool = False,
    ) -> Endpoint:
        """Return the endpoint for a path template. The parameter `task` is a 32-bit integer."""
        pattern = re.sub(r"\\\{task\\\}", r"(?P<number>[+-]?[0-9]+)", re.escape(path))
        pattern = re.sub(r"\\\{\w+\\\}", r"[^/]+", pattern)
        return Endpoint(
            re.compile(pattern),
            frozenset(verbs),
            frozenset(body),
            frozenset(signed),
            negotiates,
            login,
        )

    def matches(self, path: str) -> bool:
        match = self.pattern.fullmatch(path)
        if match is None:
            return False
        number = match.groupdict().get("number")
        return number is None or -(2**31) <= int(number) < 2**31

    def allowed(self) -> list[str]:
        extra = ["HEAD"] if "GET" in self.verbs else []
        return [*extra, *sorted(self.verbs), "OPTIONS"]


def segments(raw_path: bytes) -> list[str] | None:
    """Decode a request path segment by segment; return None if it is malformed.

    A trailing slash and the part of each segment after `;` are dropped. A decoded segment may
    contain a slash.
    """
    parts = raw_path.split(b"/")[1:]
    if len(parts) > 1 and parts[-1] == b"":
        parts.pop()
    decoded = []
    for part in parts:
        bare = part.split(b";", 1)[0]
        if re.search(rb"%(?![0-9A-Fa-f]{2})", bare):
            return None
        try:
            segment = unquote_to_bytes(bare).decode("utf-8")
        except UnicodeDecodeError:
            return None
        if "\0" in segment or (segment == "" and raw_path != b"/"):
            return None
        decoded.append(segment)
    return decoded


def _routable(parts: Sequence[str]) -> str:
    """Return the path for the router, with each segment encoded.

    The encoding prevents a slash in a name from splitting the name.
    """
    numbers = [str(int(p)) if re.fullmatch(r"[+-]?[0-9]+", p) else quote(p, safe="") for p in parts]
    return "/" + "/".join(
        n if i == 3 else quote(p, safe="")
        for i, (p, n) in enumerate(zip(parts, numbers, strict=True))
    )


class HttpRules:
    """ASGI middleware that applies Jetty's and Jersey's rules to the API's endpoints."""

    def __init__(
        self, app: ASGIApp, endpoints: Sequence[Endpoint], auth: BasicAuth | None = None
    ) -> None:
        """Create the middleware. `auth` does not apply to signed requests from other workers."""
        self._app = app
        self._endpoints = endpoints
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        if head:
            send = _without_body(send)
        too_large = _too_large(scope)
        if too_large is not None:
            await _refuse(send, *too_large)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        parts = segments(scope.get("raw_path") or scope["path"].encode())
        if parts is None:
            await _refuse(send, 400, "HTTP 400 Bad Request")
            return
        path = _routable(parts)
        endpoint = next((e for e in self._endpoints if e.matches(path)), None)
        method = "GET" if head else scope["method"]
        refusal = _refusal(endpoint, method, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
        elif endpoint is None or not await self._may_pass(send, endpoint, method, headers):
            return
        elif method == "OPTIONS":
            await _answer_options(send, endpoint, headers.get("accept", ""))
        else:
            raw_path = scope.get("raw_path") or scope["path"].encode()
            routed = dict(
                scope, method=method, path=path, raw_path=path.encode(), **{RAW_PATH: raw_path}
            )
            await self._app(routed, _limited(receive), _typed(send, headers.get("accept", "")))

    async def _may_pass(
        self, send: Send, endpoint: Endpoint, method: str, headers: Mapping[str, str]
    ) -> bool:
        """Return True if the user is permitted; otherwise, send an error response."""
        if self._auth is None or method in endpoint.signed_verbs:
            return True
        try:
            permitted = self._auth.permits(headers.get("authorization"))
        except RestError as error:
            await _refuse(send, error.status, error.message)
            return False
        if not permitted:
            await _answer(send, 401, NOT_PERMITTED.encode(), _ASK_LOGIN if endpoint.login else ())
        return permitted


def _too_large(scope: Scope) -> tuple[int, str] | None:
    """Return the error status and message for a request that exceeds Jetty's limits.

    The limits are 8 KiB for the request target and 8 KiB for all headers.
    """
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_HEAD:
        return 414, TARGET_TOO_LONG
    if sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"]) > MAX_HEAD:
        return 431, HEAD_TOO_LARGE
    return None


def _refusal(
    endpoint: Endpoint | None, method: str, headers: Mapping[str, str]
) -> tuple[int, str] | None:
    """Return the error status and message for a request that does not match its endpoint."""
    if endpoint is None:
        return 404, NOT_FOUND
    if method == "OPTIONS":
        return None
    if method not in endpoint.verbs:
        return 405, METHOD_NOT_ALLOWED
    if endpoint.negotiates and not _acceptable(headers.get("accept", "")):
        return 406, NOT_ACCEPTABLE
    if endpoint.negotiates and method != "GET" and not _media_type_fits(endpoint, method, headers):
        return 415, UNSUPPORTED_MEDIA_TYPE
    return None


def _limited(receive: Receive) -> Receive:
    """Return a receiver that raises `RestError` (413) if the body is too large."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise RestError(413, TOO_LARGE)
        return message

    return counted


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip() not in (
        "",
        "0",
    )


def _media_type_fits(endpoint: Endpoint, method: str, headers: Mapping[str, str]) -> bool:
    content_type = headers.get("content-type")
    if content_type is None:
        return method not in endpoint.body_verbs or not _has_body(headers)
    match = _MEDIA_TYPE.fullmatch(content_type)
    return match is not None and f"{match[1]}/{match[2]}".lower() == JSON


def _acceptable(accept: str) -> bool:
    """Return True if the Accept header allows JSON. Quality values are ignored."""
    if not accept.strip():
        return True
    for item in accept.split(","):
        match = _MEDIA_TYPE.fullmatch(item)
        if match is not None and f"{match[1]}/{match[2]}".lower() in (JSON, "application/*", "*/*"):
            return True
    return False


def _typed(send: Send, accept: str) -> Send:
    """Return a sender that copies a JSON media type with a charset from Accept to Content-Type."""
    media_type = next(
        (item.strip() for item in accept.split(",") if _CHARSET.fullmatch(item.strip())), None
    )
    if media_type is None:
        return send

    async def send_typed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, media_type.encode("latin-1") if name == b"content-type" else value)
                for name, value in message.get("headers", ())
            ]
            message = {**message, "headers": headers}
        await send(message)

    return send_typed


async def _answer_options(send: Send, endpoint: Endpoint, accept: str) -> None:
    verbs = endpoint.allowed()
    plain = accept.strip() in ("", "*/*")
    body = ", ".join(verbs).encode() if plain else b""
    headers = [(b"allow", ",".join(verbs).encode()), (b"content-length", str(len(body)).encode())]
    headers.append(
        (
            b"content-type",
            b"text/plain" if plain else accept.split(",")[0].strip().encode("latin-1"),
        )
    )
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, message: str | None) -> None:
    await _answer(send, status, error_body(status, message))


async def _answer(
    send: Send, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [
        (b"content-type", JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _without_body(send: Send) -> Send:
    """Return a sender for HEAD requests.

    It sends the headers that a response to GET would have, including Content-Length, but no body.
    """

    async def send_headers(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_headers
