"""`ChildChannel`: the worker's end of the pipe to a child process. Sending never blocks."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any


class ChildChannel:
    """Messages are pickled by the sender and written in order by a dedicated thread.

    A suspended or busy child does not read, and a pipe has a small buffer. A thread that wrote to
    it directly would block, including the sender of the worker's heartbeats.
    """

    def __init__(self, connection: Connection[Any, Any], name: str) -> None:
        """Start the writing thread with the given name."""
        self._connection = connection
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()  # None: the end
        self._thread = threading.Thread(target=self._write, name=name, daemon=True)
        self._thread.start()

    def send(self, message: object) -> None:
        """Queue a message. It is dropped if the child has exited, which the reading thread
        detects.
        """
        self._messages.put(bytes(ForkingPickler.dumps(message)))

    def close(self) -> None:
        """Close this end after all messages have been written or the child has exited."""
        self._messages.put(None)

    def _write(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._connection.send_bytes(message)
            except (OSError, ValueError):  # closed
                continue
        self._connection.close()
