"""`SparkDriver`: a session in the worker's Spark driver process, and the connection to it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any, Final

from connect_py.api.service import ServiceAddress, SharedService, SharedServices
from connectors.iceberg.spark.commit_engine import EngineSettings
from connectors.iceberg.spark.connect_client import CONNECT_SERVICE, RemoteSpark
from connectors.iceberg.spark.driver_protocol import Failed, Opened, Request
from connectors.iceberg.spark.errors import CatalogUnavailableError, SparkDiedError
from connectors.iceberg.spark.spark_config import DRIVERS_MAX_KEY, SparkConfig

log = logging.getLogger(__name__)

PROGRAM: Final = "connectors.iceberg.spark.driver_program"
SERVICE: Final = "spark-driver"
_START_SECONDS: Final = 120.0
_EXTRA_SECONDS: Final = 15.0  # that the driver has to interrupt a statement before its user gives it up


def driver_service(config: SparkConfig) -> SharedService:
    """The service of connectors with equal static settings."""
    settings = {"static": json.dumps(config.static_settings(), sort_keys=True),
                "jvm_options": json.dumps(config.jvm_options()), "own": config.own_driver_of}  # fmt: skip
    return SharedService(SERVICE, PROGRAM, settings, DRIVERS_MAX_KEY, config.drivers_max)


class SparkDriver:
    """One thread calls; `alive` and `stop` from any thread."""

    def __init__(
        self,
        services: SharedServices,
        config: SparkConfig,
        engine: EngineSettings | None = None,
        user: str = "connect-py",
    ) -> None:
        """Start nothing yet.

        Args:
            services: The worker's, or a command's.
            config: What driver and session are made from.
            engine: What the configuration says of commits.
            user: The connector, for logs.
        """
        self.config = config
        self._services = services
        self._service = driver_service(config)
        self._engine = engine or EngineSettings()
        self._user = user
        self._address: ServiceAddress | None = None
        self._connection: Connection | None = None
        self._deadline_seconds = 120.0

    def request(self) -> None:
        """Have the process started, and return at once."""
        self._services.request_shared_service(self._service)
        if self.config.remote:
            self._services.request_shared_service(CONNECT_SERVICE)

    def start(self) -> None:
        """Have a process running, and a session in it. After a death: in the next process.

        Raises:
            RetriableError: It does not start now.
            ConnectError: It cannot start. The text says why.
        """
        broken = self._address.generation if self._address is not None else None
        address = self._services.shared_service(self._service, broken=broken, timeout_seconds=_START_SECONDS)
        self._address = address
        try:
            connection = Client(address.socket, "AF_UNIX", authkey=address.secret.encode())
            connection.send(Opened(self._user, self.config.catalog, self.config.session_settings(), self._engine))
        except (OSError, EOFError, AuthenticationError) as error:
            raise CatalogUnavailableError(f"the Spark driver cannot be reached: {error}") from error
        self._connection = connection

    def remote(self) -> RemoteSpark | None:
        """The Spark that runs the `MERGE`, where the configuration names a Spark Connect server; None: the driver.

        Raises:
            RetriableError: The Spark Connect process does not start now.
            ConnectError: It cannot start. The text says why.
        """
        config = self.config
        if not config.remote:
            return None
        program = self._services.shared_service(CONNECT_SERVICE, timeout_seconds=_START_SECONDS)
        return RemoteSpark(config.remote, config.remote_settings(), program)

    def alive(self) -> bool:
        """Whether there is a connection. The process may have died since the last call."""
        return self._connection is not None

    def stop(self) -> None:
        """End the session; the process ends with its last user. A call under way fails."""
        self._disconnect()
        self._services.release_shared_service(self._service)
        if self.config.remote:
            self._services.release_shared_service(CONNECT_SERVICE)

    def __enter__(self) -> SparkDriver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Calls inside are interrupted after this many seconds."""
        before, self._deadline_seconds = self._deadline_seconds, seconds
        try:
            yield
        finally:
            self._deadline_seconds = before

    def call(self, subject: str, method: str, *arguments: Any) -> Any:
        """Call a method of the driver's `LakeSession`. `subject` is mostly the table, for messages.

        Raises:
            SparkDiedError: The driver is gone, or does not answer; `start` makes a session in the next one.
            ConnectError: What the method raised.
        """
        connection = self._connection
        if connection is None:
            raise SparkDiedError("Spark is not running")
        try:
            connection.send(Request(subject, method, arguments, deadline_seconds=self._deadline_seconds))
            if not connection.poll(self._deadline_seconds + _EXTRA_SECONDS):
                self._disconnect()
                raise SparkDiedError(
                    f"{subject}: the Spark driver did not answer within {self._deadline_seconds:.0f} s"
                )
            answer = connection.recv()
        except (OSError, EOFError, ValueError) as error:  # ValueError: another thread closed it
            self._disconnect()
            raise SparkDiedError(f"{subject}: the Spark driver is gone") from error
        if isinstance(answer, Failed):
            answer.reraise()
        return answer.value

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                with socket.socket(fileno=os.dup(connection.fileno())) as shut:
                    shut.shutdown(socket.SHUT_RDWR)  # wakes a call that waits for its answer
                connection.close()
