"""Files that one worker makes and later ones find, with nothing but their names to go by."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def keep(place: Path, content: bytes) -> None:
    """Write a file in one step, whoever else does the same, and so that it outlives a machine that dies.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f"{place.name}.{uuid.uuid4().hex}")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, place)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
