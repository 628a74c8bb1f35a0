"""`SameOrigin`: rejects POST requests that browsers send for pages from other sites.

A browser includes the user's credentials in such a request, regardless of the page that sent it.
For other verbs that have side effects, the browser first sends a preflight request (see
`CrossOrigin`). It sends no preflight request for a POST without a body. Clients other than
browsers send neither of the two headers that are checked.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from rest.cross_origin import CrossOrigin
from rest.errors import error_body

REFUSED: Final = (
    "This request was sent by a page from another site, which access.control.allow.origin does "
    "not allow"
)
_OWN_SITES: Final = (b"same-origin", b"none")  # `none` if the user entered the address


class SameOrigin:
    """ASGI middleware. Requests with other verbs or from allowed origins are passed through."""

    def __init__(self, app: ASGIApp, origins: str = "") -> None:
        """Parse `access.control.allow.origin`.

        Raises:
            ConfigError: An origin is not a valid regular expression.
        """
        self._app = app
        self._any = "*" in origins.split(",")
        self._origins = CrossOrigin.patterns(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or self._permits(scope):
            await self._app(scope, receive, send)
            return
        body = error_body(403, REFUSED)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _permits(self, scope: Scope) -> bool:
        headers = {name.lower(): value for name, value in scope["headers"]}
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        # Browsers send Sec-Fetch-Site only over secure connections. It takes precedence over
        # Origin, because a proxy may have changed the Host header that Origin is compared with.
        if site is not None:
            same_site = site in _OWN_SITES
        else:
            same_site = origin is None or origin.partition(b"://")[2] == headers.get(b"host")
        return same_site or (origin is not None and self._allowed(origin.decode("latin-1")))

    def _allowed(self, origin: str) -> bool:
        return self._any or any(pattern.fullmatch(origin) for pattern in self._origins)
