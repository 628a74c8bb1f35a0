"""`LogStore`: what every store over an internal topic has in common."""

from __future__ import annotations

from connect_py.storage.storage_log import StorageLog


class LogStore:
    """Applies what a log holds to a table of its own. All methods may be called from any thread."""

    def __init__(self, topic: str, log: StorageLog) -> None:
        self.topic = topic
        self._log = log

    def start(self) -> None:
        """Begin to read; `refresh` tells when the end is reached."""
        self._log.start()

    def stop(self) -> None:
        """Flush and end."""
        self._log.stop()

    def refresh(self, timeout: float) -> None:
        """Read to the end; LogTimeoutError."""
        self._log.await_end(timeout)

    def flush(self, timeout: float) -> None:
        """Wait for pending writes, at most `timeout` seconds."""
        self._log.flush(timeout)
