"""`Channel`: exchanges calls, replies, and notifications between two processes.

Both ends of the connection use this class. Messages are plain data that can be pickled. Each call
receives exactly one reply. Replies may arrive in any order. Notifications receive no reply. If the
channel closes, the calls in progress fail, and their outcome is unknown.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

from connect_py.api.errors import ConfigError, ConnectError

Handler: TypeAlias = Callable[[Any], Future[Any] | None]
"""Handles requests and notifications in order, without blocking. Returns a future for the result
of a request, and None for a notification."""

_END: Final = b"end"
OUR_ERRORS: Final = ("connect_py.", "builtins")  # prefixes of modules that both ends can import

log = logging.getLogger(__name__)


class ChannelClosedError(ConnectError):
    """The channel closed before the reply to a call arrived. The outcome of the call is unknown."""


@dataclass(frozen=True, slots=True)
class _Call:
    number: int
    request: Any


@dataclass(frozen=True, slots=True)
class _Reply:
    number: int
    value: Any = None
    error: Exception | None = None
    cause: Exception | None = None  # a separate field, because pickle drops `__cause__`


class Channel:
    """One end of a connection. A single thread calls `receive`; all other methods are thread-safe.

    A buffered channel never blocks the sender, because a dedicated thread writes the messages in
    order. The worker's ends are buffered, because a suspended or busy child does not read, and
    pipe buffers are small. On an unbuffered channel, the calling thread writes the message. The
    children's ends are unbuffered, so a child blocks while the worker is suspended, and no message
    that it has sent is lost when it exits.
    """

    def __init__(
        self,
        connection: Connection[Any, Any],
        *,
        name: str = "channel",
        buffered: bool = False,
        error_modules: Sequence[str] = OUR_ERRORS,
    ) -> None:
        """Create the channel and take ownership of the connection.

        Args:
            connection: A pipe or socket.
            name: Prefix of the thread names.
            buffered: True to write messages on a dedicated thread.
            error_modules: Prefixes of the modules whose error classes are sent unchanged.
        """
        self._connection = connection
        self._name = name
        self._error_modules = tuple(error_modules)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # guards `_calls` and `_closed_because`
        self._calls: dict[int, Future[Any]] = {}
        self._closed_because: Exception | None = None
        self._writing = threading.Lock()
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()  # None closes the connection
        self._writer: threading.Thread | None = None
        if buffered:
            self._writer = threading.Thread(
                target=self._write_messages, name=f"{name}-writer", daemon=True
            )
            self._writer.start()

    @property
    def closed(self) -> bool:
        """Return True if this end has been closed or has detected that the other end was closed."""
        return self._closed_because is not None

    def fileno(self) -> int:
        """Return the file descriptor, which is readable if `receive` would not block."""
        return self._connection.fileno()

    def call(self, request: object) -> Future[Any]:
        """Send a request and return a future for the reply.

        If the channel closes first, the future fails with the `reason` that was passed to `close`,
        or with a ChannelClosedError by default. The future's callbacks run on the reading thread.
        """
        reply: Future[Any] = Future()
        reply.set_running_or_notify_cancel()
        with self._lock:
            error = self._closed_because
            if error is None:
                number = next(self._numbers)
                self._calls[number] = reply
        if error is not None:
            reply.set_exception(error)
            return reply
        try:
            self._send(_Call(number, request))
        except BaseException:
            with self._lock:
                self._calls.pop(number, None)
            raise
        return reply

    def notify(self, message: object) -> None:
        """Send a notification. It is dropped if the channel is closed."""
        self._send(message)

    def has_message(self) -> bool:
        """Return True if `receive` would not block."""
        return self._connection.poll(0)

    def receive(self, handle: Handler) -> bool:
        """Wait for one message and process it.

        Returns False if the channel has ended. The caller must then close it.
        """
        try:
            data = self._connection.recv_bytes()
        except (EOFError, OSError, TypeError):  # TypeError if another thread has closed it
            return False
        try:
            message = pickle.loads(data)
        except Exception:
            log.exception("received an invalid message, closing the channel")
            return False
        match message:
            case _Reply(number, value, error, cause):
                with self._lock:
                    reply = self._calls.pop(number, None)
                if reply is not None and error is not None:
                    error.__cause__ = cause
                    reply.set_exception(error)
                elif reply is not None:
                    reply.set_result(value)
            case _Call(number, request):
                try:
                    result = handle(request)
                    assert result is not None, f"no reply to {type(request).__name__}"
                except Exception as error:  # noqa: BLE001 - sent to the caller
                    self._reply(_Reply(number, error=error))
                else:
                    result.add_done_callback(partial(self._send_result, number))
            case _:
                try:
                    handle(message)
                except Exception:
                    log.exception("failed to process %s", type(message).__name__)
        return True

    def start_reading(self, handle: Handler, on_end: Callable[[], None] | None = None) -> None:
        """Process messages on a dedicated thread.

        When the channel ends, the thread calls `on_end`, or closes the channel if `on_end` is None.
        """

        def read() -> None:
            while self.receive(handle):
                pass
            if on_end is None:
                self.close(ChannelClosedError("the other process has ended"))
            else:
                on_end()

        threading.Thread(target=read, name=f"{self._name}-reader", daemon=True).start()

    def end(self) -> None:
        """Shut down the sending direction after all queued messages have been written.

        Messages from the other process can still be received.
        """
        if self._writer is None:
            self._shut_down(socket.SHUT_WR)
        else:
            self._messages.put(_END)

    def close(self, reason: Exception | None = None) -> None:
        """Close this end once all queued messages have been written or the other end has closed.

        Calls in progress fail with `reason`. May be called repeatedly and from any thread.
        """
        error = reason or ChannelClosedError("the channel was closed")
        with self._lock:
            if self._closed_because is not None:
                return
            self._closed_because = error
            calls, self._calls = self._calls, {}
        if self._writer is not None:
            self._messages.put(None)
        else:
            self._disconnect()
        for reply in calls.values():
            reply.set_exception(error)

    def _send_result(self, number: int, result: Future[Any]) -> None:
        if result.cancelled() or isinstance(result.exception(), CancelledError):
            self._reply(_Reply(number, error=ConnectError("the worker is stopping")))
        elif (error := result.exception()) is None:
            self._reply(_Reply(number, result.result()))
        elif isinstance(error, Exception):
            self._reply(_Reply(number, error=error))
        else:  # such as SystemExit
            self._reply(_Reply(number, error=ConnectError(f"{type(error).__name__}: {error}")))

    def _reply(self, reply: _Reply) -> None:
        if reply.error is not None:
            log.debug("a call failed", exc_info=reply.error)
            cause = reply.error.__cause__
            if not isinstance(cause, Exception) or not self._is_portable(cause):
                cause = None
            reply = _Reply(reply.number, None, self._portable(reply.error), cause)
        try:
            self._send(reply)
        except (TypeError, AttributeError, pickle.PickleError) as error:
            self._send(_Reply(reply.number, error=ConnectError(f"invalid result: {error}")))

    def _is_portable(self, error: Exception) -> bool:
        if not type(error).__module__.startswith(self._error_modules):
            return False
        try:
            return type(pickle.loads(pickle.dumps(error))) is type(error)
        except Exception:
            log.debug("cannot pickle an error", exc_info=True)
            return False

    def _portable(self, error: Exception) -> Exception:
        """Return the error, or a ConnectError with its message if it cannot be sent."""
        if self._is_portable(error):
            return error
        if isinstance(error, ConfigError):
            return ConfigError("", str(error))
        return ConnectError(f"{type(error).__name__}: {error}")

    def _send(self, message: object) -> None:
        data = bytes(ForkingPickler.dumps(message))
        if self._writer is not None:
            self._messages.put(data)
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        with self._writing:
            try:
                self._connection.send_bytes(data)
            except (OSError, ValueError):
                # the reading thread handles the end of the channel
                log.debug("dropped a message because the channel is closed")

    def _write_messages(self) -> None:
        while (data := self._messages.get()) is not None:
            if data is _END:
                self._shut_down(socket.SHUT_WR)
            else:
                self._write(data)
        self._disconnect()

    def _disconnect(self) -> None:
        self._shut_down(socket.SHUT_RDWR)  # wakes threads that are reading or writing
        with self._writing:
            self._connection.close()

    def _shut_down(self, directions: int) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as line,
        ):
            line.shutdown(directions)
