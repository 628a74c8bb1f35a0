"""Temporary folders of a process.

Folders left behind by a process that was killed are removed when the next folder with the same
prefix is created.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
from pathlib import Path

_lock = threading.Lock()
# folders of this process, with the file descriptor that holds each lock
_locks: dict[Path, int] = {}


def scratch_folder(prefix: str, parent: Path | None = None) -> Path:
    """Create a folder for this process, which removes it. Folders of killed processes are removed.

    The name consists of `prefix`, the process ID, and random characters. The process holds a lock
    on the folder, which shows that it is running. The default of `parent` is the folder for
    temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    with _lock:
        for removed in [folder for folder in _locks if not folder.exists()]:
            os.close(_locks.pop(removed))
        _remove_abandoned(parent, prefix)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
            lock = _acquire(folder)
            if lock is not None and folder.exists():  # not removed by another process meanwhile
                _locks[folder] = lock
                return folder
            if lock is not None:
                os.close(lock)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    pattern = re.compile(re.escape(prefix) + r"\d+-[^-]+")
    for folder in parent.glob(f"{prefix}*"):
        if folder in _locks or not pattern.fullmatch(folder.name):
            continue
        lock = _acquire(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _acquire(folder: Path) -> int | None:
    """Return the file descriptor that holds the lock.

    None: a process holds it, the folder does not exist, or it belongs to another user.
    """
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
