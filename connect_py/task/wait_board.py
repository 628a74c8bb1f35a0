"""`WaitBoard`: tracks the waits of a connector or task, with a limit on their duration."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.model import Waiting

SHOWN_AFTER_SECONDS: Final = 3.0  # shorter waits are not shown in the status
REASON_SECONDS: Final = 10.0  # minimum time between status updates that differ only in reason
REASON_LENGTH: Final = 500  # characters
# numbers, such as IDs and ports, are ignored when two reasons are compared
_NUMBERS: Final = re.compile(r"\d+")


@dataclass(slots=True)
class _Wait:
    since: float  # monotonic time
    waiting: Waiting


class WaitBoard:
    """Tracks waits and warnings. Thread-safe.

    Implements `connect_py.api.waiting.BoundedWaitReporter`.
    """

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Waiting | None], None],
        send_warnings: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        """Create the board.

        Args:
            clock: Source of time.
            send: Called after each change with the wait to show, or with None if there is none.
            send_warnings: Called after each change with all current warnings.
        """
        self._clock = clock
        self._send = send
        self._send_warnings = send_warnings
        self._warnings: dict[str, str] = {}
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}
        self._limit: tuple[int, str] | None = None  # ms, and the config key that sets it
        self._sent: Waiting | None = None
        self._sent_at = 0.0

    def waits(self, what: str, reason: str | None) -> None:
        with self._lock:
            wait = self._waits.get(what)
            if reason is None:
                self._waits.pop(what, None)
            elif wait is None:
                now = self._clock.monotonic()
                self._waits[what] = _Wait(
                    now, Waiting(what, self._clock.time_ms(), reason[:REASON_LENGTH])
                )
            else:
                wait.waiting = Waiting(what, wait.waiting.since_ms, reason[:REASON_LENGTH])

    def warns(self, subject: str, warning: str | None) -> None:
        with self._lock:
            previous = dict(self._warnings)
            if warning is None:
                self._warnings.pop(subject, None)
            else:
                self._warnings[subject] = warning[:REASON_LENGTH]
            if self._warnings != previous:
                # called under the lock to preserve the order across threads
                self._send_warnings(tuple(self._warnings.values()))

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        with self._lock:
            self._limit = None if milliseconds is None else (milliseconds, key)

    def send_changes(self) -> None:
        """Send the wait to show if it has changed."""
        with self._lock:
            now = self._clock.monotonic()
            waiting = self._oldest(now - SHOWN_AFTER_SECONDS)
            if not self._has_changed(waiting, now):
                return
            self._sent, self._sent_at = waiting, now
            self._send(waiting)  # called under the lock to preserve the order across threads

    def _oldest(self, latest: float) -> Waiting | None:
        old = [wait for wait in self._waits.values() if wait.since <= latest]
        return min(old, key=lambda wait: wait.since).waiting if old else None

    def _has_changed(self, waiting: Waiting | None, now: float) -> bool:
        sent = self._sent
        if (
            waiting is None
            or sent is None
            or (waiting.what, waiting.since_ms) != (sent.what, sent.since_ms)
        ):
            return waiting != sent
        differs = _NUMBERS.sub("", waiting.reason) != _NUMBERS.sub("", sent.reason)
        return differs and now - self._sent_at >= REASON_SECONDS

    def check(self) -> None:
        """Raise ConnectError if a wait has exceeded the limit set by `bound_waiting`."""
        with self._lock:
            if self._limit is None or not self._waits:
                return
            milliseconds, key = self._limit
            now = self._clock.monotonic()
            waiting = self._oldest(now - milliseconds / 1000)
        if waiting is not None:
            raise ConnectError(
                f"timed out waiting for {waiting.what}: {key}={milliseconds} exceeded: "
                f"{waiting.reason}"
            )
