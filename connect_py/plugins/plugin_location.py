"""Importing from a folder of `plugin.path`: the worker's own packages come first, the folder adds
what is missing."""

from __future__ import annotations

import importlib
import site
import threading
from pathlib import Path
from types import ModuleType

from connect_py.api.errors import ConnectError

_added: set[str] = set()
_lock = threading.Lock()


def add_location(location: str) -> None:
    """Let this process import from a folder, for good."""
    with _lock:
        if location not in _added:
            site.addsitedir(location)
            importlib.invalidate_caches()
            _added.add(location)


def import_from(module: str, location: str | None) -> ModuleType:
    """Import a module; with a location, one that lies there and nowhere else.

    Raises:
        ImportError: There is none.
        ConnectError: The name means another package, the worker's or one of another folder.
    """
    if location is not None:
        add_location(location)
    found = importlib.import_module(module)
    if location is not None:
        origin = found.__file__ or next(iter(getattr(found, "__path__", [])), "")
        if not Path(origin).resolve().is_relative_to(Path(location).resolve()):
            raise ConnectError(
                f"module {module} of {location} cannot be used: that name means {origin} in this "
                f"process"
            )
    return found
