"""`ServiceFolder`: the private folder for the sockets of a worker's services. It goes with the
worker.

The worker holds a lock on it. A folder whose lock is free belongs to a worker that died.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

PREFIX: Final = "connect-py-services-"
_SHORT: Final = Path("/tmp")
# bytes of the folder above; the path of a socket has at most 103 on every system
_LONGEST: Final = 60

log = logging.getLogger(__name__)


class ServiceFolder:
    """Made at first use. Any thread."""

    def __init__(self, above: Path | None = None) -> None:
        """`above` is the folder for temporary files unless given."""
        above = above or Path(tempfile.gettempdir())
        self._above = above if len(os.fsencode(above)) <= _LONGEST else _SHORT
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._lock_file = -1

    def path(self) -> Path:
        """The folder, which only this user can look into."""
        with self._lock:
            while self._path is None:
                made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=self._above))
                lock_file = os.open(made, os.O_RDONLY)
                fcntl.flock(lock_file, fcntl.LOCK_EX)
                if made.exists():  # no other worker swept it before it was locked
                    self._path, self._lock_file = made, lock_file
                else:
                    os.close(lock_file)
            return self._path

    def remove(self) -> None:
        """Remove the folder."""
        with self._lock:
            if self._path is not None:
                shutil.rmtree(self._path, ignore_errors=True)
                os.close(self._lock_file)
                self._path = None

    def sweep(self) -> None:
        """Remove folders of workers that died."""
        for left in self._above.glob(f"{PREFIX}*"):
            try:
                if left.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                lock_file = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue  # another worker was faster
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
                log.info("removed %s of a worker that died", left)
            except OSError:
                log.debug("%s is in use", left)
            finally:
                os.close(lock_file)
