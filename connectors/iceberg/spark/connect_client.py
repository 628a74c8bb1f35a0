"""`ConnectClient`: runs a statement on a Spark Connect server, through the worker's Spark Connect process."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Final

from connect_py.api.service import ServiceAddress, SharedService
from connectors.iceberg.spark.driver_protocol import Failed, Succeeded
from connectors.iceberg.spark.errors import CatalogUnavailableError

CONNECT_SERVICE: Final = SharedService("spark-connect", "connectors.iceberg.spark.connect_program")


@dataclass(frozen=True, slots=True)
class RemoteSpark:
    """A server, what a session there is made from, and the process that speaks to it."""

    url: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    program: ServiceAddress


@dataclass(frozen=True, slots=True)
class RemoteStatement:
    """The one message to the Spark Connect process. `Succeeded` or `Failed` comes back."""

    subject: str  # mostly the table, for messages
    url: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)  # of a session for this statement alone
    statement: str


class ConnectClient:
    """One thread runs statements; `interrupt` from any thread."""

    def __init__(self, remote: RemoteSpark) -> None:
        self._remote = remote
        self._connection: Connection | None = None

    def run(self, subject: str, statement: str, settings: Mapping[str, str]) -> None:
        """Run one statement about a table to its end, with these settings beside those of the server's session.

        Raises:
            TableForbiddenError, TableUnsuitableError: The server says so.
            CatalogUnavailableError: It did not end well, or nothing is known of its end.
        """
        remote = self._remote
        asked = RemoteStatement(subject, remote.url, {**remote.settings, **settings}, statement)
        try:
            line = Client(remote.program.socket, "AF_UNIX", authkey=remote.program.secret.encode())
            self._connection = line
            line.send(asked)
            answer: Succeeded | Failed = line.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            raise CatalogUnavailableError(f"{subject}: the Spark Connect process is gone") from error
        finally:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
        if isinstance(answer, Failed):
            answer.reraise()

    def interrupt(self) -> None:
        """End a statement that runs: its process sees that its user is gone."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)  # a close would not wake the thread that reads
