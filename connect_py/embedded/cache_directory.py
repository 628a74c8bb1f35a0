"""Per-user cache for downloads and archives."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "CONNECT_PY_CACHE"
_LOCK_POLL_SECONDS = 0.1


def cache_directory() -> Path:
    """Return the user's cache folder, creating it if necessary.

    It is $CONNECT_PY_CACHE if set, otherwise the platform's usual location.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        directory = Path(chosen).absolute()
    elif sys.platform == "darwin":
        directory = Path.home() / "Library" / "Caches" / "connect-py"
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        directory = (Path(base) if base else Path.home() / ".cache") / "connect-py"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def exclusive(path: Path, deadline_seconds: float) -> Iterator[None]:
    """Hold an interprocess lock in the `with` block. The kernel releases it if this process exits.

    Raises:
        TimeoutError: Another process held the lock until the timeout.
    """
    end = time.monotonic() + deadline_seconds
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise TimeoutError(
                        f"timed out after {deadline_seconds:.0f} s while waiting for the lock "
                        f"{path}"
                    ) from None
                time.sleep(_LOCK_POLL_SECONDS)
        yield
