"""`LakeClient`: calls the methods of `LakeSession` in the Spark driver.

`LakeSessions` is the client pool of one coordinator.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from connect_py.api.errors import RetriableError
from connect_py.api.service import ServiceAddress, SharedService, SharedServices
from connect_py.process.channel import OUR_ERRORS, Channel, ChannelClosedError
from connectors.iceberg.config.spark_config import DRIVERS_MAX_KEY, SparkConfig
from connectors.iceberg.driver.driver_protocol import OpenSession, Request
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.errors import CatalogUnavailableError, SparkDiedError
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest, EngineSettings

log = logging.getLogger(__name__)

PROGRAM: Final = "connectors.iceberg.driver.driver_program"
SERVICE: Final = "spark-driver"
STARTING: Final = "Spark is starting"
_START_SECONDS: Final = 120.0
# additional time for the driver to interrupt a statement before the client disconnects
_EXTRA_SECONDS: Final = 15.0
P = ParamSpec("P")
T = TypeVar("T")


def driver_service(config: SparkConfig) -> SharedService:
    """Return the driver as a service that connectors with equal static settings share."""
    settings = {
        "static": json.dumps(config.static_settings(), sort_keys=True),
        "jvm_options": json.dumps(config.jvm_options()),
        "own": config.own_driver_of,
    }
    return SharedService(SERVICE, PROGRAM, settings, DRIVERS_MAX_KEY, config.drivers_max)


def _remote(
    method: Callable[Concatenate[LakeSession, str, P], T],
) -> Callable[Concatenate[LakeClient, str, P], T]:
    """Return a client method for a `LakeSession` method whose first argument is a table name."""

    @functools.wraps(method)
    def call(client: LakeClient, name: str, /, *args: P.args, **keywords: P.kwargs) -> Any:
        return client.call(
            Request(name, method.__name__, (name, *args), client.deadline_seconds, keywords)
        )

    return call


class LakeClient:
    """Connection to a session in a Spark driver process.

    Each `LakeSession` method may raise a `SparkDiedError` in addition to its own errors. Only
    one thread may use the client at a time, but `stop` and `hang_up` are thread-safe.
    """

    def __init__(
        self,
        services: SharedServices,
        config: SparkConfig,
        engine: EngineSettings | None = None,
        user: str = "connect-py",
        deadline_seconds: float = 120.0,
        commit_deadline_seconds: float = 600.0,
    ) -> None:
        """Create a client without a connection.

        Args:
            services: The services that the worker or a command provides.
            config: The settings for the driver and the session.
            engine: The settings for commits.
            user: The connector's name for logs.
            deadline_seconds: The deadline for every call except commits.
            commit_deadline_seconds: The deadline for commits.
        """
        self._services = services
        self._config = config
        self._service = driver_service(config)
        self._engine = engine or EngineSettings()
        self._user = user
        self.deadline_seconds = deadline_seconds
        self._commit_deadline_seconds = commit_deadline_seconds
        self._address: ServiceAddress | None = None
        self._channel: Channel | None = None

    load = _remote(LakeSession.load)
    metadata = _remote(LakeSession.metadata)
    create = _remote(LakeSession.create)
    evolve = _remote(LakeSession.evolve)
    set_layout = _remote(LakeSession.set_layout)
    set_properties = _remote(LakeSession.set_properties)
    remove_files = _remote(LakeSession.remove_files)
    history = _remote(LakeSession.history)
    delete_rows = _remote(LakeSession.delete_rows)
    run = _remote(LakeSession.run)
    settle = _remote(LakeSession.settle)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Call `CommitEngine.commit` in the driver."""
        outcome: CommitOutcome = self.call(
            Request(request.table, "commit", (request,), self._commit_deadline_seconds)
        )
        return outcome

    def run_within(
        self,
        seconds: float,
        name: str,
        function: Callable[Concatenate[LakeSession, str, P], T],
        *args: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Call `LakeSession.run` with a function that ends within `seconds` unless it hangs.

        The deadline for the call is `seconds` plus `deadline_seconds`.
        """
        result: T = self.call(
            Request(name, "run", (name, function, *args), seconds + self.deadline_seconds, keywords)
        )
        return result

    def request(self) -> None:
        """Request a driver process without waiting for it."""
        self._services.request_shared_service(self._service)

    def start(self) -> None:
        """Start a driver process if necessary, and open a session in it.

        If the driver process of the previous session has ended, the session is opened in the next
        process.

        Raises:
            RetriableError: The driver did not start. A later attempt may succeed.
            ConnectError: The driver cannot start. The message contains the reason.
        """
        self._address = self._services.shared_service(
            self._service, broken=self.generation, timeout_seconds=_START_SECONDS
        )
        config = self._config
        try:
            connection = Client(
                self._address.socket, "AF_UNIX", authkey=self._address.secret.encode()
            )
        except (OSError, EOFError, AuthenticationError) as error:
            raise CatalogUnavailableError(f"the Spark driver cannot be reached: {error}") from error
        channel = Channel(
            connection, name="spark-client", error_modules=(*OUR_ERRORS, "connectors.")
        )
        channel.start_reading(lambda _: None)
        channel.call(
            OpenSession(self._user, config.catalog, config.session_settings(), self._engine)
        )
        self._channel = channel

    @property
    def generation(self) -> int | None:
        """Generation of the driver process to which this client connected last, if any."""
        return self._address.generation if self._address is not None else None

    def alive(self) -> bool:
        """Return True if the client is connected to the driver."""
        if self._channel is not None and not self._channel.closed:
            return True
        self._disconnect()
        return False

    def stop(self) -> None:
        """End the session. A call in progress fails.

        The driver exits when no client uses it anymore.
        """
        self._disconnect()
        self._services.release_shared_service(self._service)

    def hang_up(self) -> None:
        """End the session and the call in progress. `start` opens another session."""
        self._address = None
        self._disconnect()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, request: Request) -> Any:
        """Call a method of the driver's `LakeSession`.

        Raises:
            SparkDiedError: The driver has ended or does not respond. `start` opens a session in the
                next driver.
            ConnectError: The error that the method raised.
        """
        channel, subject, seconds = self._channel, request.subject, request.deadline_seconds
        if channel is None:
            raise SparkDiedError("Spark is not running")
        reply = channel.call(request)
        if not wait([reply], seconds + _EXTRA_SECONDS).done:
            self._disconnect()
            raise SparkDiedError(
                f"{subject}: the Spark driver did not respond within {seconds:.0f} s"
            )
        try:
            return reply.result()
        except ChannelClosedError as error:
            self._disconnect()
            raise SparkDiedError(f"{subject}: the Spark driver has ended") from error

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class LakeSessions:
    """Pool of clients for one driver. Thread-safe, but a client serves one thread at a time.

    A session is opened if no other session is idle, and remains open until `stop`. A table reuses
    its previous session if that session is idle, because sessions cache table metadata.
    """

    def __init__(
        self,
        create_client: Callable[[], LakeClient],
        report_waiting: Callable[[str | None], None],
        on_replaced_driver: Callable[[], None],
    ) -> None:
        """Create a pool without open sessions.

        Args:
            create_client: Returns a client without a connection. All clients have the same
                configuration.
            report_waiting: Called with the reason for waiting while the driver is not running, and
                with None after it has started.
            on_replaced_driver: Called once for each driver that replaces another driver.
        """
        self._create_client = create_client
        self._report_waiting = report_waiting
        self._on_replaced_driver = on_replaced_driver
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards all attributes below
        self._first = create_client()
        self._clients = [self._first]
        self._idle = [self._first]
        self._last_clients: dict[str, LakeClient] = {}  # keyed by table
        self._generation = 0  # generation of the newest driver; 0 before the first session

    def request(self) -> None:
        """Request the driver without waiting for it.

        Until a session is open, the reported reason for waiting is that Spark is starting.
        """
        self._report_waiting(STARTING)
        self._first.request()

    @contextlib.contextmanager
    def session(self, table: str | None = None) -> Iterator[LakeClient]:
        """Provide a connected client, if possible the one that last served the table.

        A client that has lost its driver first connects to the next driver.

        Raises:
            RetriableError: The driver did not start, or the task is stopping.
            ConnectError: The driver cannot start.
        """
        client = self._idle_client(table)
        try:
            if not client.alive():
                self._connect(client)
            yield client
        finally:
            with self._lock:
                self._idle.append(client)

    def stop(self) -> None:
        """End all sessions permanently. Calls in progress fail."""
        self._stopping.set()
        with self._lock:
            clients = [*self._clients]
        for client in clients:
            client.stop()

    def _idle_client(self, table: str | None) -> LakeClient:
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
        # additional sessions report nothing, because the first session shows that Spark is running
        if client is self._first or client.generation is not None:
            self._report_waiting(STARTING)
        try:
            client.start()
        except RetriableError as error:
            self._report_waiting(f"Spark has not started: {error}")
            raise
        self._report_waiting(None)
        if self._stopping.is_set():  # `stop` ran before this connection existed
            client.hang_up()
            raise CatalogUnavailableError("the task is stopping")
        with self._lock:
            previous = self._generation
            self._generation = max(previous, client.generation or 0)
        if 0 < previous < self._generation:
            log.warning("the Spark driver ended unexpectedly, continuing with a new one")
            self._on_replaced_driver()
