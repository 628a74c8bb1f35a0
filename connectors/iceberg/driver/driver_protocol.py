"""What the sink and its Spark processes say to each other: pickled values over an authenticated
socket."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from typing import Any

from connect_py.api.errors import ConnectError
from connect_py.api.service import ServiceAddress
from connectors.iceberg.errors import JavaError
from connectors.iceberg.protocol.commit_request import EngineSettings


@dataclass(frozen=True, slots=True)
class Opened:
    """The first message of a connection."""

    user: str  # the connector, for logs and for Spark's scheduler pool
    catalog: str
    settings: Mapping[str, str]  # of the session
    engine: EngineSettings


@dataclass(frozen=True, slots=True)
class Request:
    """A method of `LakeSession`."""

    subject: str  # mostly the table, for messages
    method: str
    arguments: tuple[Any, ...]
    deadline_seconds: float = 600.0
    named: Mapping[str, Any] = field(default_factory=dict)  # arguments too


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer where a method raised; else its result is the answer. `cause`: the Java exception
    behind it."""

    error: Exception
    cause: str

    @staticmethod
    def of(error: Exception) -> Failed:
        cause = str(error.__cause__) if error.__cause__ is not None else ""
        try:
            pickle.loads(pickle.dumps(error))
        # not every foreign error survives the way
        except (TypeError, AttributeError, pickle.PickleError):
            error = ConnectError(f"{type(error).__name__}: {error}")
        return Failed(error, cause)

    def reraise(self) -> None:
        """Raise it, with the Java exception as its cause."""
        raise self.error from (JavaError(self.cause) if self.cause else None)


def connect(address: ServiceAddress) -> Connection:
    """A connection to the program of a service.

    Raises: OSError, EOFError, AuthenticationError: It does not listen, or is not the one of this
        address.
    """
    return Client(address.socket, "AF_UNIX", authkey=address.secret.encode())


def hang_up(connection: Connection | None) -> None:
    """Close a connection. A thread that waits for its answer wakes up, which a close alone would
    not do."""
    if connection is not None:
        with contextlib.suppress(OSError):
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
            connection.close()
