"""`ServiceFolder`: the private folder for the sockets of a worker's services, removed with the
worker.

The worker holds a lock on it. A folder without a lock was left behind by a worker that was killed.
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
# maximum length of the parent folder in bytes; socket paths are limited to 103 bytes on some
# systems
_LONGEST: Final = 60

log = logging.getLogger(__name__)


class ServiceFolder:
    """A folder that is created at first use. Thread-safe."""

    def __init__(self, above: Path | None = None) -> None:
        """Create the object. `above` is the parent folder; the default is the folder for temporary
        files.
        """
        above = above or Path(tempfile.gettempdir())
        self._above = above if len(os.fsencode(above)) <= _LONGEST else _SHORT
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._lock_file = -1

    def path(self) -> Path:
        """Return the folder, which is accessible only to this user."""
        with self._lock:
            while self._path is None:
                path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=self._above))
                lock_file = os.open(path, os.O_RDONLY)
                fcntl.flock(lock_file, fcntl.LOCK_EX)
                if path.exists():  # not removed by another worker before it was locked
                    self._path, self._lock_file = path, lock_file
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
        """Remove folders left behind by workers that were killed."""
        for path in self._above.glob(f"{PREFIX}*"):
            try:
                if path.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                lock_file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue  # another worker removed it
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                log.info("removed %s, left behind by a worker that was killed", path)
            except OSError:
                log.debug("%s is in use", path)
            finally:
                os.close(lock_file)
