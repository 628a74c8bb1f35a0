"""`OperationRequest`: a request to `POST /connectors/{connector}/operations/{operation}`.

Operations are entry points in the group `connect_py.iceberg.operations`. The name of an entry point
is the name of the operation. Its function accepts an `OperationRequest` and returns a JSON value.
The connector loads an operation only when it is called, so it works without the package that
provides the operations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.pipeline import PipelineFactory
from connect_py.api.service import SharedServices
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.protocol.commit_request import MAIN

OPERATIONS: Final = "connect_py.iceberg.operations"
DEADLINE_SECONDS: Final = 120.0  # deadline of one driver call


class Cancellation:
    """Ends the driver session of an operation whose client has disconnected. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lake: LakeClient | None = None
        self.requested = False

    def cancel(self) -> None:
        """Interrupt the current driver call, and prevent new sessions."""
        with self._lock:
            self.requested = True
            if self._lake is not None:
                self._lake.hang_up()

    @contextmanager
    def covering(self, lake: LakeClient) -> Iterator[LakeClient]:
        """Open a session that `cancel` can end.

        Raises:
            ConnectError: The operation was canceled.
        """
        try:
            with lake:
                with self._lock:
                    self._lake = lake
                    if self.requested:
                        raise ConnectError("the operation was canceled: its client disconnected")
                yield lake
        finally:
            with self._lock:
                self._lake = None


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """Request for an operation on a connector, with the services that its worker provides.

    `arguments` is the JSON object in the request, in which numbers are represented as strings.
    """

    config: IcebergSinkConfig
    props: Mapping[str, str]
    services: SharedServices
    arguments: Mapping[str, Any]
    cluster: SinkCluster | None = None  # None outside a worker
    pipelines: PipelineFactory | None = None
    progress: Callable[[str], None] = lambda _: None  # reports the current step to the client
    cancellation: Cancellation = field(default_factory=Cancellation)

    @contextmanager
    def lake(self, deadline_seconds: float = DEADLINE_SECONDS) -> Iterator[LakeClient]:
        """Open a session in the worker's Spark driver for the duration of the `with` block."""
        spark = worker_spark_config(self.config, self.services.worker_settings)
        lake = LakeClient(
            self.services, spark, user=self.config.connector, deadline_seconds=deadline_seconds
        )
        with self.cancellation.covering(lake):
            yield lake

    def ref(self, table: str) -> str:
        """Return the branch that the connector commits to."""
        return self.config.table(table).commit_branch or MAIN

    def kafka(self) -> dict[str, Any]:
        """Return Kafka client settings for the cluster that contains the connector's topics."""
        if self.cluster is None:
            raise ConfigError("", "the operation requires a worker with a connection to Kafka")
        return self.cluster.client_config("admin")

    def refuse_unknown(self, names: tuple[str, ...], operation: str) -> None:
        """Raise a `ConfigError` if the request has an argument that is not in `names`."""
        for name in self.arguments.keys() - set(names):
            raise ConfigError(
                name, f"unknown argument; {operation} accepts {', '.join(names) or 'none'}"
            )

    def text(self, name: str) -> str:
        """Return a required string argument."""
        value = self.arguments.get(name)
        if not isinstance(value, str) or not value:
            raise ConfigError(name, "must be a non-empty string")
        return value

    def text_or_none(self, name: str) -> str | None:
        """Return an optional string argument, or None if it is missing."""
        return self.text(name) if self.arguments.get(name) is not None else None

    def count(self, name: str, default: int, most: int) -> int:
        """Return an optional integer argument from 1 to `most`, or the default."""
        value = self.arguments.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value.isdecimal() or not 1 <= int(value) <= most:
            raise ConfigError(name, f"must be a number from 1 to {most}")
        return int(value)

    def flag(self, name: str) -> bool:
        """Return an optional boolean argument, or False if it is missing."""
        value = self.arguments.get(name, False)
        if not isinstance(value, bool):
            raise ConfigError(name, "must be true or false")
        return value


def operate(request: OperationRequest, operation: str) -> Any:
    """Call an operation, and return its result as a JSON value.

    Raises:
        NotFoundError: The operation, or the object that it applies to, does not exist.
        ConfigError: The arguments are not valid, or the request is not possible.
        ConnectError: The catalog, the storage, or Kafka does not respond.
    """
    operations = registered_operations()
    if operation not in operations:
        names = ", ".join(sorted(operations)) or "none"
        raise NotFoundError(f"The Iceberg sink has no operation {operation}; available: {names}")
    return operations[operation].load()(request)


def registered_operations() -> dict[str, EntryPoint]:
    """Return the installed operations by name."""
    return {entry.name: entry for entry in entry_points(group=OPERATIONS)}
