"""Libraries of our own in machine code, which lie beside the modules that use them."""

from __future__ import annotations

import ctypes
import logging
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

OFF: Final = "CONNECT_PY_NATIVE"  # environment variable; "off": as if none had been built


def compiled_library(beside: str, name: str, version: int, without: str) -> ctypes.CDLL | None:
    """Load the library `name` that lies beside a file; None: it was not built, does not fit, or is
    turned off.

    Its function `<name>_version` tells the form of its calls, which must be `version`. `without`
    ends a sentence in the log about what happens without it.
    """
    # for all versions of Python: it uses none of it
    path = Path(beside).with_name(f"_{name}{EXTENSION_SUFFIXES[-1]}")
    if os.environ.get(OFF) == "off":
        log.info("the compiled %s is turned off by %s: %s", name, OFF, without)
        return None
    if not path.exists():
        log.info("the compiled %s was not built: %s", name, without)
        return None
    try:
        library = ctypes.CDLL(str(path))
        found = library[f"{name}_version"]()
    except (OSError, AttributeError) as error:
        log.warning("the compiled %s cannot be used: %s: %s", name, without, error)
        return None
    if found != version:
        log.warning(
            "the compiled %s is of another version, install connect-py again: %s", name, without
        )
        return None
    return library
