"""Loads the native libraries in `native/`, which are optional in a source checkout."""

from __future__ import annotations

import ctypes
import logging
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

SWITCH: Final = "CONNECT_PY_NATIVE"  # environment variable; "off" disables the libraries


def load_library(folder: Path, name: str, version: int, consequence: str) -> ctypes.CDLL | None:
    """Load a native library, or log the reason and return None.

    Args:
        folder: Folder that contains the library and the module that uses it.
        name: Name of the library.
        version: Version that the library's function `<name>_version` must return.
        consequence: Effect of the library's absence, for the log.
    """
    # the file name contains no Python version, because the library does not use the Python C API
    path = folder / f"_{name}{EXTENSION_SUFFIXES[-1]}"
    if os.environ.get(SWITCH) == "off":
        log.info("native %s: disabled by %s=off; %s", name, SWITCH, consequence)
        return None
    if not path.exists():
        log.warning(
            "native %s: not built; %s; install a Rust compiler and run make or pip install -e . "
            "again, or install a wheel for this platform",
            name,
            consequence,
        )
        return None
    try:
        library = ctypes.CDLL(str(path))
        actual_version = library[f"{name}_version"]()
    except (OSError, AttributeError) as error:
        log.warning("native %s: %s cannot be loaded; %s: %s", name, path, consequence, error)
        return None
    if actual_version != version:
        log.warning(
            "native %s: found version %s, expected %s; %s; reinstall connect-py",
            name,
            actual_version,
            version,
            consequence,
        )
        return None
    return library
