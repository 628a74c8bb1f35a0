"""The absolute address of a connector, as the client that asks would write it."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from fastapi import Request

_KEPT_IN_PATHS: Final = "/:;+=&$,@!*'()~"


def location_of(request: Request, name: str) -> dict[str, str]:
    """The Location header for a connector that this request created, whoever created it in the end."""
    host = request.headers.get("host", request.url.netloc)
    return {"location": f"{request.url.scheme}://{host}/connectors/{quote(name, safe=_KEPT_IN_PATHS)}"}
