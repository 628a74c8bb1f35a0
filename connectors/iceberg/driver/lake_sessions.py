"""`LakeSessions`: the sessions of one coordinator in a Spark driver process, one for each commit at
a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from connect_py.api.errors import RetriableError
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import CatalogUnavailableError

log = logging.getLogger(__name__)

STARTING: Final = "Spark is starting"


class LakeSessions:
    """Clients of one driver. A client serves one thread at a time; all methods may be called from
    any thread.

    A session is opened when no other session is idle, and is kept until `stop`. A table gets the
    session that it used last, if that session is idle, because a session caches table metadata.
    """

    def __init__(
        self,
        create_client: Callable[[], LakeClient],
        report_waiting: Callable[[str | None], None],
        on_replaced_driver: Callable[[], None],
    ) -> None:
        """Start nothing yet.

        Args:
            create_client: Returns a client without a connection; all clients are equal.
            report_waiting: Takes the reason why there is no driver yet, and None once there is one.
            on_replaced_driver: Called once for each driver that replaces another one.
        """
        self._create_client = create_client
        self._report_waiting = report_waiting
        self._on_replaced_driver = on_replaced_driver
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # of everything below
        self._first = create_client()
        self._clients = [self._first]
        self._idle = [self._first]
        self._last_clients: dict[str, LakeClient] = {}  # by table
        self._generation = 0  # of the newest driver; 0: no session was opened yet

    def request(self) -> None:
        """Have the driver started, and return at once. It is reported until a session is open."""
        self._report_waiting(STARTING)
        self._first.request()

    @contextmanager
    def session(self, table: str | None = None) -> Iterator[LakeClient]:
        """Lend a connected client. A client that lost its driver is connected to the next one
        first.

        Raises:
            RetriableError: The driver does not start now, or the task is stopping.
            ConnectError: The driver cannot start.
        """
        client = self._take(table)
        try:
            if not client.alive():
                self._connect(client)
            yield client
        finally:
            with self._lock:
                self._idle.append(client)

    def stop(self) -> None:
        """End all sessions permanently; calls in progress fail."""
        self._stopping.set()
        with self._lock:
            clients = [*self._clients]
        for client in clients:
            client.stop()

    def _take(self, table: str | None) -> LakeClient:
        with self._lock:
            client = self._last_clients.get(table) if table is not None else None
            if client in self._idle:
                self._idle.remove(client)
            elif self._idle:
                client = self._idle.pop()
            else:
                client = self._create_client()
                self._clients.append(client)
            if table is not None:
                self._last_clients[table] = client
            return client

    def _connect(self, client: LakeClient) -> None:
        if self._stopping.is_set():
            raise CatalogUnavailableError("the task is stopping")
        # else, another session shows that Spark runs
        if client is self._first or client.generation is not None:
            self._report_waiting(STARTING)
        try:
            client.start()
        except RetriableError as error:
            self._report_waiting(f"Spark has not started: {error}")
            raise
        self._report_waiting(None)
        if self._stopping.is_set():  # before the new connection
            client.hang_up()
            raise CatalogUnavailableError("the task is stopping")
        with self._lock:
            previous, self._generation = (
                self._generation,
                max(self._generation, client.generation or 0),
            )
        if 0 < previous < self._generation:
            log.warning("the Spark driver died; continuing with a new one")
            self._on_replaced_driver()
