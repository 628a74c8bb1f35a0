"""The Location header for a new connector, with the host name that the client used."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from fastapi import Request

from connect_py.api.rest_paths import CONNECTOR

_UNQUOTED: Final = "/:;+=&$,@!*'()~"
# existing escapes are preserved, as in Java
_TRIPLET: Final = re.compile(r"%25([0-9A-Fa-f]{2})")


def location_of(request: Request, name: str) -> dict[str, str]:
    """Return the Location header for the connector that this request created on any worker."""
    host = request.headers.get("host", request.url.netloc)
    path = _TRIPLET.sub(r"%\1", quote(name, safe=_UNQUOTED))
    return {"location": f"{request.url.scheme}://{host}{CONNECTOR.format(connector=path)}"}
