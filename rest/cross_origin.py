"""`CrossOrigin`: CORS headers for browsers that call the API from pages with other origins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connect_py.api.errors import ConfigError

DEFAULT_METHODS: Final = ("GET", "POST", "HEAD")
MAX_AGE_SECONDS: Final = 60


class CrossOrigin:
    """ASGI middleware. It does not reject requests, because browsers enforce the CORS headers."""

    def __init__(self, app: ASGIApp, origins: str, methods: str) -> None:
        """Parse `access.control.allow.origin` and `access.control.allow.methods`.

        Raises:
            ConfigError: An origin is not a valid regular expression.
        """
        self._app = app
        self._any = "*" in origins.split(",")
        self._origins = self.patterns(origins)
        self._methods: Sequence[str] = [
            m.strip() for m in methods.split(",") if m.strip()
        ] or DEFAULT_METHODS

    @staticmethod
    def patterns(origins: str) -> list[re.Pattern[str]]:
        """Parse a list of origins as patterns, omitting `*`.

        Raises:
            ConfigError: An origin is not a valid regular expression.
        """
        try:
            return [
                re.compile(item, re.IGNORECASE)
                for item in origins.split(",")
                if item and item != "*"
            ]
        except re.error as error:
            raise ConfigError(
                "access.control.allow.origin", f"invalid regular expression: {error}"
            ) from error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_headers = {name.lower(): value for name, value in scope["headers"]}
        response_headers = [(b"vary", b"Origin")]
        origin = request_headers.get(b"origin")
        if origin is not None and self._allowed(origin.decode("latin-1")):
            response_headers.append((b"access-control-allow-origin", origin))
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in request_headers:
                response_headers += [
                    (b"access-control-allow-methods", ",".join(self._methods).encode("latin-1")),
                    (b"access-control-allow-headers", b"Content-Type"),
                    (b"access-control-max-age", str(MAX_AGE_SECONDS).encode()),
                ]

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *response_headers]}
            await send(message)

        await self._app(scope, receive, send_with)

    def _allowed(self, origin: str) -> bool:
        return self._any or any(pattern.fullmatch(origin) for pattern in self._origins)
