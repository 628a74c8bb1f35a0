"""`LakeClient`: the methods of `LakeSession` for a coordinator or a command; the Spark driver
process runs them."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from connect_py.api.service import ServiceAddress, SharedService, SharedServices
from connectors.iceberg.config.spark_config import DRIVERS_MAX_KEY, SparkConfig
from connectors.iceberg.driver.driver_protocol import Failed, Opened, Request, connect, hang_up
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.errors import CatalogUnavailableError, SparkDiedError
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest, EngineSettings

PROGRAM: Final = "connectors.iceberg.driver.driver_program"
SERVICE: Final = "spark-driver"
_START_SECONDS: Final = 120.0
# that the driver has to interrupt a statement before its user gives it up
_EXTRA_SECONDS: Final = 15.0
P = ParamSpec("P")
T = TypeVar("T")


def driver_service(config: SparkConfig) -> SharedService:
    """The service of connectors with equal static settings."""
    settings = {
        "static": json.dumps(config.static_settings(), sort_keys=True),
        "jvm_options": json.dumps(config.jvm_options()),
        "own": config.own_driver_of,
    }
    return SharedService(SERVICE, PROGRAM, settings, DRIVERS_MAX_KEY, config.drivers_max)


def _asked(
    method: Callable[Concatenate[LakeSession, str, P], T],
) -> Callable[Concatenate[LakeClient, str, P], T]:
    """A method whose first argument names a table, run by the driver."""

    @functools.wraps(method)
    def ask(client: LakeClient, name: str, /, *args: P.args, **named: P.kwargs) -> Any:
        return client.call(
            Request(name, method.__name__, (name, *args), client.deadline_seconds, named)
        )

    return ask


class LakeClient:
    """A session in a Spark driver process, and the connection to it.

    Each method of `LakeSession` raises a `SparkDiedError` besides what it says there. One thread
    calls at a time; `stop` and `hang_up` may be called from any thread.
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
        """Start nothing yet.

        Args:
            services: The worker's, or a command's.
            config: What driver and session are made from.
            engine: What the configuration says of commits.
            user: The connector, for logs.
            deadline_seconds: Limits each call but commits.
            commit_deadline_seconds: Limits commits.
        """
        self._services = services
        self._config = config
        self._service = driver_service(config)
        self._engine = engine or EngineSettings()
        self._user = user
        self.deadline_seconds = deadline_seconds
        self._commit_deadline_seconds = commit_deadline_seconds
        self._address: ServiceAddress | None = None
        self._connection: Connection | None = None

    load = _asked(LakeSession.load)
    metadata = _asked(LakeSession.metadata)
    create = _asked(LakeSession.create)
    evolve = _asked(LakeSession.evolve)
    set_layout = _asked(LakeSession.set_layout)
    set_properties = _asked(LakeSession.set_properties)
    remove_files = _asked(LakeSession.remove_files)
    history = _asked(LakeSession.history)
    delete_rows = _asked(LakeSession.delete_rows)
    run = _asked(LakeSession.run)
    settle = _asked(LakeSession.settle)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        call = Request(request.table, "commit", (request,), self._commit_deadline_seconds)
        outcome: CommitOutcome = self.call(call)
        return outcome

    def run_within(
        self,
        seconds: float,
        name: str,
        function: Callable[Concatenate[LakeSession, str, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call `LakeSession.run` for a function that ends within this time; a later deadline covers
        what may hang."""
        deadline_seconds = seconds + self.deadline_seconds
        result: T = self.call(
            Request(name, "run", (name, function, *args), deadline_seconds, named)
        )
        return result

    def request(self) -> None:
        """Have the process started, and return at once."""
        self._services.request_shared_service(self._service)

    def start(self) -> None:
        """Have a process running, and a session in it. After a death: in the next process.

        Raises:
            RetriableError: It does not start now.
            ConnectError: It cannot start. The text says why.
        """
        self._address = self._services.shared_service(
            self._service, broken=self.generation, timeout_seconds=_START_SECONDS
        )
        config = self._config
        try:
            connection = connect(self._address)
            connection.send(
                Opened(self._user, config.catalog, config.session_settings(), self._engine)
            )
        except (OSError, EOFError, AuthenticationError) as error:
            raise CatalogUnavailableError(f"the Spark driver cannot be reached: {error}") from error
        self._connection = connection

    @property
    def generation(self) -> int | None:
        """The generation of the driver process that this client connected to last."""
        return self._address.generation if self._address is not None else None

    def alive(self) -> bool:
        """Return True if there is a connection that the driver has not closed. Not called during a
        request."""
        connection = self._connection
        with contextlib.suppress(OSError, ValueError):  # another thread closed it
            # only its end makes an idle connection readable
            if connection is not None and not connection.poll():
                return True
        self._disconnect()
        return False

    def stop(self) -> None:
        """End the session; the process ends with its last user. A call under way fails."""
        self._disconnect()
        self._services.release_shared_service(self._service)

    def hang_up(self) -> None:
        """End the call under way, and the session; `start` makes another one. From any thread."""
        self._address = None
        self._disconnect()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, request: Request) -> Any:
        """Call a method of the driver's `LakeSession`.

        Raises: SparkDiedError: The driver is gone, or does not answer; `start` makes a session in
            the next one. ConnectError: What the method raised.
        """
        connection, subject, seconds = self._connection, request.subject, request.deadline_seconds
        if connection is None:
            raise SparkDiedError("Spark is not running")
        try:
            connection.send(request)
            if not connection.poll(seconds + _EXTRA_SECONDS):
                self._disconnect()
                raise SparkDiedError(
                    f"{subject}: the Spark driver did not answer within {seconds:.0f} s"
                )
            answer = connection.recv()
        except (OSError, EOFError, ValueError) as error:  # ValueError: another thread closed it
            self._disconnect()
            raise SparkDiedError(f"{subject}: the Spark driver is gone") from error
        if isinstance(answer, Failed):
            answer.reraise()
        return answer

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        hang_up(connection)
