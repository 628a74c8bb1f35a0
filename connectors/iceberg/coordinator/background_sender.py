"""`BackgroundSender`: sends messages on a thread of its own, so that no commit waits for a server
of others."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

MOST = 1000  # messages that wait; then new ones are dropped
_PAUSES = (0.0, 1.0, 5.0)  # seconds before each attempt
_LOG_SECONDS = 60.0  # between lines about what was not sent
T = TypeVar("T")


class BackgroundSender(Generic[T]):
    """Owns its thread. Best effort: what is not sent after three attempts is dropped, logged and
    counted."""

    def __init__(
        self, what: str, send: Callable[[T], None], outcome: Callable[[str], None]
    ) -> None:
        """Start.

        Args:
            what: For logs.
            send: Sends one message, or raises.
            outcome: Hears `sent`, `failed` or `dropped` for each message; any thread.
        """
        self._what = what
        self._send = send
        self._outcome = outcome
        self._queue: queue.Queue[T | None] = queue.Queue(MOST)
        self._stopping = threading.Event()
        self._logged = -_LOG_SECONDS
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)
        self._thread.start()

    def put(self, message: T) -> None:
        """Have it sent, soon. Never blocks."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self._outcome("dropped")
            self._log("%s: more than %d messages wait, new ones are dropped", self._what, MOST)

    def close(self, seconds: float) -> None:
        """Send what waits, for so long at most, and end."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._stopping.set()
        self._thread.join(seconds)
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set() and (message := self._queue.get()) is not None:
            self._outcome("sent" if self._sent(message) else "failed")

    def _sent(self, message: T) -> bool:
        error: Exception | None = None
        for pause in _PAUSES:
            if self._stopping.wait(pause):
                break
            try:
                self._send(message)
            except Exception as refused:  # a server of others, and a library of others
                log.debug("%s: an attempt failed", self._what, exc_info=True)
                error = refused
            else:
                return True
        self._log("%s: a message was not sent: %s", self._what, error)
        return False

    def _log(self, text: str, *arguments: object) -> None:
        if time.monotonic() - self._logged >= _LOG_SECONDS:
            self._logged = time.monotonic()
            log.warning(text, *arguments)
