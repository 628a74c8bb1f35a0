"""`PageFiles`: the files of the page as answers, with headers that keep the browser with this
worker alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import Response

PAGE: Final = "page.html"
API_PAGE: Final = "api.html"
_MEDIA_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing comes from another host, nothing in a text becomes code, and no other page shows this one
# in a frame.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # another version of the worker has other files
}


@cache
def _contents() -> dict[str, tuple[bytes, str]]:
    """Each file and its tag."""
    folder = files("rest.ui") / "static"
    found = (
        (each.name, each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _MEDIA_TYPES
    )
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:20]}"') for name, data in found}


def page_file(name: str, known_tag: str | None) -> Response | None:
    """A file; 304 where the browser has it; None: there is no such file."""
    found = _contents().get(name)
    if found is None:
        return None
    data, tag = found
    headers = {**HEADERS, "ETag": tag}
    if known_tag == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)
