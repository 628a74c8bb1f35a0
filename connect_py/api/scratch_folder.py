"""Temporary folders that do not stay behind: what a process that was killed left goes when the next one is made."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
from pathlib import Path

_lock = threading.Lock()
_held: dict[Path, int] = {}  # folders of this process, and the file descriptor that holds each lock


def scratch_folder(prefix: str) -> Path:
    """Make a folder for this process, which removes it when it is done; those of dead processes go first.

    `prefix` begins its name, the process id follows. A lock on the folder shows that its process lives.
    """
    above = Path(tempfile.gettempdir())
    with _lock:
        for gone in [folder for folder in _held if not folder.exists()]:
            os.close(_held.pop(gone))
        _sweep(above, prefix)
        while True:
            made = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=above))
            held = _locked(made)
            if held is not None and made.exists():  # no other process swept it before it was locked
                _held[made] = held
                return made
            if held is not None:
                os.close(held)


def _sweep(above: Path, prefix: str) -> None:
    named = re.compile(re.escape(prefix) + r"\d+-[^-]+")
    for folder in above.glob(f"{prefix}*"):
        if folder in _held or not named.fullmatch(folder.name):
            continue
        held = _locked(folder)
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def _locked(folder: Path) -> int | None:
    """The file descriptor that holds the lock; None: a process has it, or the folder is gone or not ours."""
    try:
        if folder.stat(follow_symlinks=False).st_uid != os.getuid():
            return None
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held
