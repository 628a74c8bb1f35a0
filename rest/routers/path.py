"""Path and query parameters, parsed as in Kafka Connect."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import Request


def name_in(request: Request, parameter: str = "connector") -> str:
    """Return a decoded name from the path. The name may contain slashes."""
    return unquote(request.path_params[parameter])


def task_in(request: Request) -> int:
    return int(request.path_params["task"])


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a boolean query parameter.

    Only `true` is true (not case-sensitive). If the default is true, an empty value is also true.
    """
    value = request.query_params.getlist(name)
    if not value or (default and value[0] == ""):
        return default
    return value[0].lower() == "true"
