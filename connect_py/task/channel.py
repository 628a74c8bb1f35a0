"""`Channel`: one end of the pipe between the worker and a child process. Sending is thread-safe."""

from __future__ import annotations

import logging
import threading
from multiprocessing.connection import Connection
from typing import Any

from connect_py.log_context import ContextFilter, LogLine


class Channel:
    """Exchanges pickled plain data. A failed send raises no error: the reading thread detects the
    closed pipe.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send a message, or drop it if the other end is closed."""
        with self._lock:
            try:
                self._connection.send(message)
            except (OSError, ValueError):  # closed: the reading thread handles it
                return

    def receive(self) -> Any:
        """Wait for the next message. EOFError if the other end is closed. Only one thread may
        read.
        """
        try:
            return self._connection.recv()
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        """Close this end."""
        with self._lock:
            self._connection.close()


class ChannelHandler(logging.Handler):
    """Forwards log records to the worker, which applies its levels and format."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self.addFilter(ContextFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.send(LogLine.of(record))
        except Exception:  # noqa: BLE001 - logging must not fail its caller
            self.handleError(record)
