"""Responses with the browser pages' files. The headers forbid access to other hosts."""

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
# Forbids resources from other hosts, inline scripts, and embedding in frames on other pages.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a new version of the worker may have different files
}


@cache
def _contents() -> dict[str, tuple[bytes, str]]:
    """Return the content and the entity tag of each file, by name."""
    folder = files("rest.ui") / "static"
    contents = (
        (each.name, each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _MEDIA_TYPES
    )
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:20]}"') for name, data in contents}


def page_file(name: str, cached_tag: str | None) -> Response | None:
    """Return a file, 304 if the browser has cached it, or None if it does not exist."""
    content = _contents().get(name)
    if content is None:
        return None
    data, tag = content
    headers = {**HEADERS, "ETag": tag}
    if cached_tag == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)
