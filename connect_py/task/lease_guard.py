"""`LeaseGuard`: exits a child process at the end of its worker's lease, even if the worker is
suspended.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from connect_py.clock import Clock, SystemClock

EXIT_LEASE_ENDED: Final = 71
CHECK_SECONDS: Final = (
    0.5  # a wait does not include the time during which the machine was suspended
)


class LeaseGuard:
    """Exits the process at the end of the lease: a suspended or blocked worker cannot stop its
    children in time.

    Worker and children share the monotonic clock of the machine. The thread starts with the first
    lease.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._until: float | None = None
        self._thread: threading.Thread | None = None

    def extend(self, until: float | None) -> None:
        """Set the time by which this process must exit. None: no such time."""
        with self._changed:
            self._until = until
            self._changed.notify()
            if self._thread is None and until is not None:
                self._thread = threading.Thread(target=self._watch, name="lease-guard", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        with self._changed:
            while True:
                remaining = None if self._until is None else self._until - self._clock.monotonic()
                if remaining is not None and remaining <= 0:
                    # immediately: another worker may start these items at any moment
                    os._exit(EXIT_LEASE_ENDED)
                self._changed.wait(None if remaining is None else min(remaining, CHECK_SECONDS))
