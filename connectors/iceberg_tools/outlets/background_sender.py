"""`BackgroundSender`: sends messages on a separate thread, without delaying commits."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

MAX_WAITING = 1000  # maximum number of queued messages; further messages are dropped
_PAUSES = (0.0, 1.0, 5.0)  # seconds before each attempt
_LOG_SECONDS = 60.0  # minimum interval between log lines about failures
T = TypeVar("T")


class BackgroundSender(Generic[T]):
    """Sends messages on its own thread, with at most three attempts each.

    Messages that cannot be sent are dropped, logged, and counted.
    """

    def __init__(
        self, name: str, send: Callable[[T], None], outcome: Callable[[str], None]
    ) -> None:
        """Start the thread.

        Args:
            name: Name of the thread, which also identifies the messages in log lines.
            send: Sends one message or raises an exception.
            outcome: Called with `sent`, `failed`, or `dropped` for each message, on any thread.
        """
        self._name = name
        self._send = send
        self._outcome = outcome
        self._queue: queue.Queue[T | None] = queue.Queue(MAX_WAITING)
        self._stopping = threading.Event()
        self._logged = -_LOG_SECONDS
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, message: T) -> None:
        """Queue a message, or drop it if the queue is full. Never blocks."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self._outcome("dropped")
            self._log(
                "%s: %d messages are queued, dropping new messages",
                self._name,
                MAX_WAITING,
            )

    def close(self, seconds: float) -> None:
        """Send the queued messages and stop the thread. Wait at most `seconds`."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._stopping.set()
        self._thread.join(seconds)
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set() and (message := self._queue.get()) is not None:
            self._outcome("sent" if self._try_to_send(message) else "failed")

    def _try_to_send(self, message: T) -> bool:
        error: Exception | None = None
        for pause in _PAUSES:
            if self._stopping.wait(pause):
                break
            try:
                self._send(message)
            except Exception as failure:  # any error of the server or of a library
                log.debug("%s: an attempt failed", self._name, exc_info=True)
                error = failure
            else:
                return True
        self._log("%s: failed to send a message: %s", self._name, error)
        return False

    def _log(self, message: str, *arguments: object) -> None:
        if time.monotonic() - self._logged >= _LOG_SECONDS:
            self._logged = time.monotonic()
            log.warning(message, *arguments)
