"""Creates temporary folders for this process.

If a process is killed, its folders are removed when another process creates a folder with the same
prefix.
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
# file descriptor of the lock on each of this process's folders
_locks: dict[Path, int] = {}


def scratch_folder(prefix: str, parent: Path | None = None) -> Path:
    """Create a folder for this process, and remove the folders of killed processes.

    The caller must remove the new folder. Its name consists of `prefix`, the process ID, and random
    characters. A lock on the folder shows that the process is still running. `parent` defaults to
    the system's temporary directory.
    """
    parent = parent or Path(tempfile.gettempdir())
    with _lock:
        for removed in [folder for folder in _locks if not folder.exists()]:
            os.close(_locks.pop(removed))
        _remove_abandoned(parent, prefix)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
            lock = _acquire(folder)
            if lock is not None and folder.exists():  # another process may have removed it
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
    """Lock a folder, and return the file descriptor that holds the lock.

    Returns None if a process holds the lock, the folder does not exist, or another user owns it.
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
