"""`ConnectClient`: runs a statement on a Spark Connect server, through the worker's Spark Connect process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Final

from connect_py.api.service import ServiceAddress, SharedService
from connectors.iceberg.driver.driver_protocol import Failed, connect, hang_up
from connectors.iceberg.errors import CatalogUnavailableError

CONNECT_SERVICE: Final = SharedService("spark-connect", "connectors.iceberg.driver.connect_program")


@dataclass(frozen=True, slots=True)
class RemoteSpark:
    """A server, what a session there is made from, and the process that speaks to it."""

    url: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    program: ServiceAddress


@dataclass(frozen=True, slots=True)
class RemoteStatement:
    """The one message to the Spark Connect process. `Failed` or None comes back."""

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
        try:
            self._connection = connect(remote.program)
            self._connection.send(RemoteStatement(subject, remote.url, {**remote.settings, **settings}, statement))
            answer: Failed | None = self._connection.recv()
        except (OSError, EOFError, ValueError, AuthenticationError) as error:  # ValueError: another thread closed it
            raise CatalogUnavailableError(f"{subject}: the Spark Connect process is gone") from error
        finally:
            self.interrupt()
        if isinstance(answer, Failed):
            answer.reraise()

    def interrupt(self) -> None:
        """End a statement that runs: its process sees that its user is gone."""
        connection, self._connection = self._connection, None
        hang_up(connection)
