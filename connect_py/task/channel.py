"""`Channel`: one end of the pipe between the worker and a child, safe to send on from any
thread."""

from __future__ import annotations

import logging
import threading
from multiprocessing.connection import Connection
from typing import Any

from connect_py.log_context import ContextFilter, LogLine


class Channel:
    """Messages are pickled plain data. A failed send raises nothing: the reading side learns of the
    end."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send, or drop the message when the other side is gone."""
        with self._lock:
            try:
                self._connection.send(message)
            except (OSError, ValueError):  # closed: the reader notices and acts
                return

    def receive(self) -> Any:
        """Wait for the next message; EOFError when the other side is gone. One thread reads."""
        try:
            return self._connection.recv()
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        """Close this end."""
        with self._lock:
            self._connection.close()


class ChannelHandler(logging.Handler):
    """Sends log records to the worker, where its levels and its format apply."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self.addFilter(ContextFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.send(LogLine.of(record))
        except Exception:  # noqa: BLE001 - logging must not fail its caller
            self.handleError(record)
