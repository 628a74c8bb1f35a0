"""`TableOperation`: an operation on a table, run by the Spark driver of a worker or command.

A command and a REST client run the same function with the same arguments. Over REST, the arguments
are a JSON object that is validated against the argument type, and the result is JSON. A client
cannot run arbitrary functions, because each operation is an entry point
(`connectors.iceberg.operation_request`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import msgspec

from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.connector_table import MAX_SECONDS, ConnectorTable

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.driver.lake_client import LakeClient
    from connectors.iceberg.operation_request import OperationRequest
    from connectors.iceberg.protocol.table_metadata import TableMetadata

MAX_ROWS: Final = 100_000  # maximum number of rows in the result of one operation
Name = Annotated[str, msgspec.Meta(min_length=1)]
Rows = Annotated[int, msgspec.Meta(ge=0, le=MAX_ROWS)]


class TableArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments common to all operations."""

    table: Name
    # If False, only the connector's catalog is used, and its settings for the table are ignored.
    use_connector: bool = True
    # timeout for each call to the driver
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_SECONDS)] = 120


A = TypeVar("A", bound=TableArguments)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TableTarget(ConnectorTable):
    """The table that an operation runs on, with a driver session."""

    table: str
    lake: LakeClient
    catalog: str  # name of the catalog in SQL
    connector: IcebergSinkConfig | None
    # returns the settings of a Kafka client, or raises a `ConfigError` if there are none
    kafka: Callable[[], Mapping[str, Any]]
    progress: Callable[[str], None]

    def metadata(self) -> TableMetadata:
        """Load the table's metadata."""
        metadata: TableMetadata = self.lake.run(self.table, read_metadata)
        return metadata


@dataclass(frozen=True, slots=True)
class TableOperation(Generic[A, R]):
    """A named operation on a table."""

    name: str
    arguments: type[A]
    result: type[R]
    run: Callable[[TableTarget, A], R]

    def __call__(self, request: OperationRequest) -> Any:
        """Run the operation for a REST client.

        Raises:
            ConfigError: The arguments are invalid.
            ConnectError: The operation failed.
        """
        try:
            # Not strict, because the connector receives numbers as strings.
            arguments = msgspec.convert(dict(request.arguments), self.arguments, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(
                "", f"invalid arguments for operation {self.name}: {error}"
            ) from error
        with request.lake(arguments.timeout_seconds) as lake:
            connector = request.config if arguments.use_connector else None
            target = TableTarget(
                arguments.table,
                lake,
                request.config.catalog_name,
                connector,
                request.kafka,
                request.progress,
            )
            return msgspec.to_builtins(self.run(target, arguments), str_keys=True)

    def encode(self, arguments: A) -> dict[str, Any]:
        """Return the arguments as a JSON object."""
        encoded: dict[str, Any] = msgspec.to_builtins(arguments)
        return encoded

    def decode(self, result: Any) -> R:
        """Decode a result from JSON.

        Raises:
            ValueError: The result has a different type because the worker runs another version.
        """
        return msgspec.convert(result, self.result, str_keys=True)
