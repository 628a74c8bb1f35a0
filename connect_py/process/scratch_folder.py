"""Temporary folders that do not stay behind: what a process that was killed left goes when the next
one is made."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
from pathlib import Path

_lock = threading.Lock()
_locks: dict[
    Path, int
] = {}  # folders of this process, and the file descriptor that holds each lock


def scratch_folder(prefix: str) -> Path:
    """Make a folder for this process, which removes it when it is done; those of dead processes go
    first.

    `prefix` begins its name, the process id follows. A lock on the folder shows that its process
    lives.
    """
    above = Path(tempfile.gettempdir())
    with _lock:
        for removed in [folder for folder in _locks if not folder.exists()]:
            os.close(_locks.pop(removed))
        _sweep(above, prefix)
        while True:
            made = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=above))
            lock = _locked(made)
            if lock is not None and made.exists():  # no other process swept it before it was locked
                _locks[made] = lock
                return made
            if lock is not None:
                os.close(lock)


def _sweep(above: Path, prefix: str) -> None:
    named = re.compile(re.escape(prefix) + r"\d+-[^-]+")
    for folder in above.glob(f"{prefix}*"):
        if folder in _locks or not named.fullmatch(folder.name):
            continue
        lock = _locked(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """The file descriptor that holds the lock; None: a process has it, or the folder is gone or not
    ours."""
    try:
        if folder.stat(follow_symlinks=False).st_uid != os.getuid():
            return None
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
