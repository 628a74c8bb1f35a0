"""`LogStore`: what every store over an internal topic has in common."""

from __future__ import annotations

import threading
from concurrent.futures import wait

from connect_py.clock import SystemClock
from connect_py.storage.storage_log import LogTimeoutError, StorageLog

STOP_SLICE_SECONDS = 0.2  # a stop is noticed this late at worst


class LogStore:
    """Applies what a log holds to a table of its own. All methods may be called from any thread."""

    def __init__(self, topic: str, log: StorageLog) -> None:
        self.topic = topic
        self._log = log

    @property
    def refusal(self) -> str | None:
        """Why the broker does not let this worker read the topic; None when it does."""
        return self._log.refusal

    def start(self) -> None:
        """Begin to read; `refresh` tells when the end is reached."""
        self._log.start()

    def stop(self) -> None:
        """Flush and end."""
        self._log.stop()

    def refresh(self, timeout: float) -> None:
        """Read to the end; LogTimeoutError."""
        self._log.await_end(timeout)

    def refresh_unless(self, stopping: threading.Event, timeout: float) -> None:
        """The same, but a stop ends the wait; LogTimeoutError then, too."""
        clock = SystemClock()
        deadline = clock.monotonic() + timeout
        read = self._log.read_to_end()
        while not wait([read], STOP_SLICE_SECONDS).done:
            if stopping.is_set():
                raise LogTimeoutError(
                    f"topic '{self.topic}' was not read to its end: the worker stops"
                )
            if clock.monotonic() >= deadline:
                raise LogTimeoutError(
                    f"timed out after {timeout:g} s while reading topic '{self.topic}' to its end"
                )
        read.result()

    def flush(self, timeout: float) -> None:
        """Wait for pending writes, at most `timeout` seconds."""
        self._log.flush(timeout)
