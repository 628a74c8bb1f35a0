"""Path and query parameters, read as Connect reads them."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import Request


def name_in(request: Request, parameter: str = "connector") -> str:
    """A name from the path, decoded: it may hold slashes."""
    return unquote(request.path_params[parameter])


def task_in(request: Request) -> int:
    return int(request.path_params["task"])


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """A query boolean: only `true`, in any case, is true; an empty value of a parameter with
    default true is that."""
    value = request.query_params.getlist(name)
    if not value or (default and value[0] == ""):
        return default
    return value[0].lower() == "true"
