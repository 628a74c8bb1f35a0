"""`ChildChannel`: the worker's end of the pipe to a child. Sending never waits, whatever the child
does."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any


class ChildChannel:
    """Messages are pickled by who sends them, and written in order by a thread of their own.

    A child that is stopped, or that holds the interpreter for long, does not read, and a pipe holds
    little: a thread that wrote to it would wait with it, the sender of the worker's hellos among
    others.
    """

    def __init__(self, connection: Connection[Any, Any], name: str) -> None:
        """Begin to write; `name` is the thread's."""
        self._connection = connection
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()  # None: the end
        self._thread = threading.Thread(target=self._write, name=name, daemon=True)
        self._thread.start()

    def send(self, message: object) -> None:
        """Have a message sent, or dropped when the child is gone: the reading side notices and
        acts."""
        self._messages.put(bytes(ForkingPickler.dumps(message)))

    def close(self) -> None:
        """Close this end once everything sent so far was written, or the child is gone."""
        self._messages.put(None)

    def _write(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._connection.send_bytes(message)
            except (OSError, ValueError):  # closed
                continue
        self._connection.close()
