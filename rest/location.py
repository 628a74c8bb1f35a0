"""The absolute address of a connector, as the client that asks would write it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from fastapi import Request

_KEPT_IN_PATHS: Final = "/:;+=&$,@!*'()~"
# what is encoded already stays as it is, as in Java
_TRIPLET: Final = re.compile(r"%25([0-9A-Fa-f]{2})")


def location_of(request: Request, name: str) -> dict[str, str]:
    """The Location header for a connector that this request created, on whichever worker."""
    host = request.headers.get("host", request.url.netloc)
    path = _TRIPLET.sub(r"%\1", quote(name, safe=_KEPT_IN_PATHS))
    return {"location": f"{request.url.scheme}://{host}/connectors/{path}"}
