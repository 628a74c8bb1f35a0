"""Imports modules from a `plugin.path` folder.

The worker's own packages take precedence over the packages in the folder.
"""

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
    """Add a folder permanently to the import path of this process."""
    with _lock:
        if location not in _added:
            site.addsitedir(location)
            importlib.invalidate_caches()
            _added.add(location)


def import_from(module: str, location: str | None) -> ModuleType:
    """Import a module. If `location` is not None, the module must be in that folder.

    Raises:
        ImportError: The module does not exist.
        ConnectError: The worker or another folder has a module with the same name.
    """
    if location is not None:
        add_location(location)
    imported = importlib.import_module(module)
    if location is not None:
        origin = imported.__file__ or next(iter(getattr(imported, "__path__", [])), "")
        if not Path(origin).resolve().is_relative_to(Path(location).resolve()):
            raise ConnectError(
                f"cannot import module {module} from {location}: this process imports it "
                f"from {origin}"
            )
    return imported
