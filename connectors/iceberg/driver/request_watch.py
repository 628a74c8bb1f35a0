"""`RequestWatch`: interrupts a request of the Spark driver when its user disconnects or its
deadline passes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Final, Self

log = logging.getLogger(__name__)

GIVE_UP_SECONDS: Final = 10.0  # from the first interruption of a request to `give_up`
_INTERRUPT_SECONDS: Final = 0.5


class RequestWatch:
    """A context manager around one request.

    A request whose user disconnected needs no cleanup: the ledger and the swap protect a commit at
    every step.
    """

    def __init__(
        self,
        subject: str,
        connection: Connection,
        interrupt: Callable[[], None],
        give_up: Callable[[], None],
        seconds: float,
    ) -> None:
        """Start nothing yet.

        Args: subject: The beginning of log lines. connection: The user's. Nothing but its end makes
            it readable while a request runs. interrupt: Called repeatedly: between two statements
            of a request there is nothing to interrupt. give_up: Called once if the request still
            runs after `GIVE_UP_SECONDS` of interruptions. seconds: Deadline of the request.
        """
        self._subject = subject
        self._connection = connection
        self._interrupt = interrupt
        self._give_up = give_up
        self._seconds = seconds
        self._done = threading.Event()
        self.late = False  # the deadline passed

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="spark-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        deadline = time.monotonic() + self._seconds
        while (remaining := deadline - time.monotonic()) > 0 and not self._user_disconnected():
            if self._done.wait(min(remaining, _INTERRUPT_SECONDS)):
                return
        self.late = remaining <= 0
        if self.late:
            log.error("%s did not end within %.0f s, interrupting it", self._subject, self._seconds)
        else:
            log.info("%s: the user disconnected, interrupting the request", self._subject)
        # On a separate thread: py4j calls to a JVM that was stopped by a signal never return.
        threading.Thread(
            target=self._interrupt_repeatedly, name="spark-interrupt", daemon=True
        ).start()
        if not self._done.wait(GIVE_UP_SECONDS):
            log.warning(
                "%s still runs %.0f s after its interruption", self._subject, GIVE_UP_SECONDS
            )
            self._give_up()

    def _user_disconnected(self) -> bool:
        try:
            return self._connection.poll()
        except OSError:
            return True

    def _interrupt_repeatedly(self) -> None:
        while not self._done.wait(_INTERRUPT_SECONDS):
            self._interrupt()
