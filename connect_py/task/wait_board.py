"""`WaitBoard`: what a connector or a task waits for, how long it does, and whether that is too
long."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.model import Waiting

SHOWN_AFTER_SECONDS: Final = 3.0  # what is over sooner is not worth a status
REASON_SECONDS: Final = 10.0  # between two statuses that differ in their reason only
REASON_LENGTH: Final = 500  # characters
_NUMBERS: Final = re.compile(r"\d+")  # ids, ports and times differ each time, the reason does not


@dataclass(slots=True)
class _Wait:
    since: float  # the clock's
    waiting: Waiting


class WaitBoard:
    """Satisfies `connect_py.api.waiting.BoundedWaitReporter`. All methods may be called from any
    thread."""

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Waiting | None], None],
        send_warnings: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        """`send` takes what is to be shown, each time that it changes; None: nothing.
        `send_warnings`: the same."""
        self._clock = clock
        self._send = send
        self._send_warnings = send_warnings
        self._warnings: dict[str, str] = {}
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}
        self._limit: tuple[int, str] | None = None  # ms, and the key that says so
        self._sent: Waiting | None = None
        self._sent_at = 0.0

    def waits(self, what: str, reason: str | None) -> None:
        with self._lock:
            known = self._waits.get(what)
            if reason is None:
                self._waits.pop(what, None)
            elif known is None:
                now = self._clock.monotonic()
                self._waits[what] = _Wait(
                    now, Waiting(what, self._clock.time_ms(), reason[:REASON_LENGTH])
                )
            else:
                known.waiting = Waiting(what, known.waiting.since_ms, reason[:REASON_LENGTH])

    def warns(self, subject: str, warning: str | None) -> None:
        with self._lock:
            shown = dict(self._warnings)
            if warning is None:
                self._warnings.pop(subject, None)
            else:
                self._warnings[subject] = warning[:REASON_LENGTH]
            if self._warnings != shown:
                self._send_warnings(tuple(self._warnings.values()))  # under the lock: in order

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        with self._lock:
            self._limit = None if milliseconds is None else (milliseconds, key)

    def tell(self) -> None:
        """Send what is to be shown now, if that is news."""
        with self._lock:
            now = self._clock.monotonic()
            shown = self._oldest(now - SHOWN_AFTER_SECONDS)
            if not self._is_news(shown, now):
                return
            self._sent, self._sent_at = shown, now
            self._send(shown)  # under the lock: two threads tell in order

    def _oldest(self, latest: float) -> Waiting | None:
        old = [wait for wait in self._waits.values() if wait.since <= latest]
        return min(old, key=lambda wait: wait.since).waiting if old else None

    def _is_news(self, shown: Waiting | None, now: float) -> bool:
        sent = self._sent
        if (
            shown is None
            or sent is None
            or (shown.what, shown.since_ms) != (sent.what, sent.since_ms)
        ):
            return shown != sent
        differs = _NUMBERS.sub("", shown.reason) != _NUMBERS.sub("", sent.reason)
        return differs and now - self._sent_at >= REASON_SECONDS

    def check(self) -> None:
        """Fail if something is waited for longer than `bound_waiting` allows.

        Raises:
            ConnectError: It is.
        """
        with self._lock:
            if self._limit is None or not self._waits:
                return
            milliseconds, key = self._limit
            now = self._clock.monotonic()
            found = self._oldest(now - milliseconds / 1000)
        if found is not None:
            raise ConnectError(
                f"waited for {found.what} longer than {key}={milliseconds} allows: {found.reason}"
            )
