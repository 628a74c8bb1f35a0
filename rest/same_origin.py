"""`SameOrigin`: refuses what a page of another site has a browser POST.

A browser sends a user's login along with such a request, whatever page it comes from. It asks
whether it may (`CrossOrigin`) before the other verbs that change something, but not before a POST
without a body. Programs that are no browsers send neither of the two headers that are looked at.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from rest.cross_origin import CrossOrigin
from rest.errors import error_body

REFUSED: Final = (
    "A page of another site sent this request; access.control.allow.origin could allow it"
)
_OWN_SITES: Final = (b"same-origin", b"none")  # none: the user typed the address


class SameOrigin:
    """ASGI middleware. Other verbs pass, and so do requests from origins that the worker's owner
    allows."""

    def __init__(self, app: ASGIApp, origins: str = "") -> None:
        """`origins`: `access.control.allow.origin`. ConfigError: one is no regular expression."""
        self._app = app
        self._any = "*" in origins.split(",")
        self._origins = CrossOrigin.patterns(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or self._may_pass(scope):
            await self._app(scope, receive, send)
            return
        body = error_body(403, REFUSED)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _may_pass(self, scope: Scope) -> bool:
        headers = {name.lower(): value for name, value in scope["headers"]}
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        # only where the address is secure; there a proxy may have changed the host
        if site is not None:
            own = site in _OWN_SITES
        else:
            own = origin is None or origin.partition(b"://")[2] == headers.get(b"host")
        return own or (origin is not None and self._allowed(origin.decode("latin-1")))

    def _allowed(self, origin: str) -> bool:
        return self._any or any(pattern.fullmatch(origin) for pattern in self._origins)
