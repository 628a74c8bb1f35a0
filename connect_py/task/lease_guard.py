"""`LeaseGuard`: ends a child process when its worker's lease does, although the worker itself may
be asleep."""

from __future__ import annotations

import os
import threading
from typing import Final

from connect_py.clock import Clock, SystemClock

EXIT_LEASE_ENDED: Final = 71
LOOK_SECONDS: Final = 0.5  # waiting does not count the time that the machine slept


class LeaseGuard:
    """A worker that was stopped, or that waits for a disk, cannot stop its children in time: they
    look themselves.

    Worker and children share the machine's clock. The thread starts with the first lease.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._until: float | None = None
        self._thread: threading.Thread | None = None

    def extend(self, until: float | None) -> None:
        """Take the time at which this process must have ended; None: there is none any more."""
        with self._changed:
            self._until = until
            self._changed.notify()
            if self._thread is None and until is not None:
                self._thread = threading.Thread(target=self._watch, name="lease-guard", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        with self._changed:
            while True:
                left = None if self._until is None else self._until - self._clock.monotonic()
                if left is not None and left <= 0:
                    # at once: another worker may start this work in a moment
                    os._exit(EXIT_LEASE_ENDED)
                self._changed.wait(None if left is None else min(left, LOOK_SECONDS))
