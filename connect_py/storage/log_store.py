"""`LogStore`: base class for the stores that read an internal topic."""

from __future__ import annotations

import threading
from concurrent.futures import wait

from connect_py.clock import SystemClock
from connect_py.storage.storage_log import LogTimeoutError, StorageLog

STOP_SLICE_SECONDS = 0.2  # maximum delay until a stop is noticed


class LogStore:
    """Base class for stores that apply the records in a log to a table. Thread-safe."""

    def __init__(self, topic: str, log: StorageLog) -> None:
        self.topic = topic
        self._log = log

    @property
    def refusal(self) -> str | None:
        """Error message if the broker denies reading the topic, otherwise None."""
        return self._log.refusal

    def start(self) -> None:
        """Start reading. Use `refresh` to wait for the end of the log."""
        self._log.start()

    def stop(self) -> None:
        """Flush writes and stop."""
        self._log.stop()

    def refresh(self, timeout: float) -> None:
        """Read to the end of the log. Raises LogTimeoutError on timeout."""
        self._log.await_end(timeout)

    def refresh_unless(self, stopping: threading.Event, timeout: float) -> None:
        """Read to the end of the log. Raises LogTimeoutError on timeout or if the worker stops."""
        clock = SystemClock()
        deadline = clock.monotonic() + timeout
        read = self._log.read_to_end()
        while not wait([read], STOP_SLICE_SECONDS).done:
            if stopping.is_set():
                raise LogTimeoutError(f"stopped while reading topic '{self.topic}' to its end")
            if clock.monotonic() >= deadline:
                raise LogTimeoutError(
                    f"timed out after {timeout:g} s while reading topic '{self.topic}' to its end"
                )
        read.result()

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for pending writes to complete."""
        self._log.flush(timeout)
