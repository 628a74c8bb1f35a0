"""What the Spark driver process and the Spark Connect process share: log, listener, the end of what takes too long.

Both serve users over the socket of a shared service (`connect_py.api.service`): each connection is one user, on a
thread of its own.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Final, Self

from connect_py.api.service import ServiceLogHandler, ServiceProgram

log = logging.getLogger(__name__)

GIVE_UP_SECONDS: Final = 10.0  # that an interrupted statement has to end
_INTERRUPT_SECONDS: Final = 0.5
_NOISY: Final = ("py4j", "pyspark", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
_users: Final = threading.local()


def begin() -> ServiceProgram:
    """Have a program whose log lines say which connector they are about, where `serving` said so."""
    program = ServiceProgram.begin()
    handler = ServiceLogHandler()
    handler.addFilter(_with_connector)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    return program


def serving(user: str) -> None:
    """This thread works for a connector."""
    _users.connector = user


def _with_connector(record: logging.LogRecord) -> bool:
    if not hasattr(record, "connector"):
        record.connector = getattr(_users, "connector", None)
    return True


def serve(program: ServiceProgram, serve_one: Callable[[Connection], None]) -> None:
    """Listen, and return; connections are accepted for ever."""
    listener = Listener(program.socket, "AF_UNIX", backlog=64, authkey=program.secret.encode())
    threading.Thread(target=_accept, args=(listener, serve_one), name="spark-listener", daemon=True).start()


def _accept(listener: Listener, serve_one: Callable[[Connection], None]) -> None:
    while True:
        try:
            connection = listener.accept()
        except (AuthenticationError, EOFError, ConnectionError) as error:
            log.warning("a connection was refused: %s", error)
            continue
        threading.Thread(target=_serve, args=(connection, serve_one), name="spark-user", daemon=True).start()


def _serve(connection: Connection, serve_one: Callable[[Connection], None]) -> None:
    with closing(connection), suppress(EOFError, ConnectionError):  # the user is gone
        serve_one(connection)


class Watch:
    """Around a statement: interrupts it when its user hangs up, or its time is over.

    The user's end needs no other reason: ledger and swap protect what was under way.
    """

    def __init__(
        self,
        subject: str,
        connection: Connection,
        interrupt: Callable[[], None],
        give_up: Callable[[], None],
        seconds: float = math.inf,
    ) -> None:
        """`subject` begins log lines.

        `interrupt` is called again and again: between two statements of a request there is nothing to interrupt.

        `give_up` is called once, when that was in vain for `GIVE_UP_SECONDS`.
        """
        self._subject = subject
        self._connection = connection
        self._interrupt = interrupt
        self._give_up = give_up
        self._seconds = seconds
        self._done = threading.Event()
        self.late = False  # the time was over

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="spark-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        until = time.monotonic() + self._seconds
        while (left := until - time.monotonic()) > 0 and not self._has_hung_up():
            if self._done.wait(min(left, _INTERRUPT_SECONDS)):
                return
        self.late = left <= 0
        if self.late:
            log.error("%s did not end within %.0f s: it is interrupted", self._subject, self._seconds)
        else:
            log.info("%s: its user hung up: it is interrupted", self._subject)
        # A thread of its own: a JVM that was stopped never answers.
        threading.Thread(target=self._repeat, name="spark-interrupt", daemon=True).start()
        if not self._done.wait(GIVE_UP_SECONDS):
            log.warning("%s: the interruption was ignored", self._subject)
            self._give_up()

    def _has_hung_up(self) -> bool:
        """Nothing else makes the connection readable while an answer is awaited."""
        try:
            return self._connection.poll()
        except OSError:
            return True

    def _repeat(self) -> None:
        while not self._done.wait(_INTERRUPT_SECONDS):
            self._interrupt()
