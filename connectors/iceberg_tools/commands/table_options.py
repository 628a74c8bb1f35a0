"""Options that the table commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.key_values import key_values
from connectors.iceberg_tools.operations.connector_table import MAX_SECONDS, ConnectorTable

if TYPE_CHECKING:
    from connect_py.api.command import CommandContext
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.spark_config import SparkConfig
    from connectors.iceberg.driver.lake_client import LakeClient

POINT = "a snapshot ID, a branch or tag, a time (2026-01-02T03:04:05Z), first, or last"
TIMEOUT = 3600

Table = Annotated[
    str, typer.Argument(metavar="TABLE", help="Full name of the table: namespace.table.")
]
ConnectorFile = Annotated[
    Path,
    typer.Argument(
        help="Connector file, in the format of the REST API.", exists=True, dir_okay=False
    ),
]
# the file may be missing, because `read_connector` reports this error
RequiredConfig = Annotated[
    Path, typer.Option("--config", help="Connector file, in the format of the REST API.")
]
Worker = Annotated[
    Path | None,
    typer.Option(
        help="File of worker properties, from which the connector inherits settings.",
        exists=True,
        dir_okay=False,
    ),
]
Branch = Annotated[
    str | None,
    typer.Option(help="Branch whose history is used.", show_default="the connector's, or main"),
]
Group = Annotated[
    str | None,
    typer.Option(help="Connect group: `connect-<connector>`.", show_default="every group"),
]
Timeout = Annotated[int, typer.Option(help="Time limit in Spark, in seconds.", min=1)]
At = Annotated[str, typer.Option("--at", help=f"Snapshot: {POINT}.")]
KeyColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        help="Key column; may be repeated.",
        show_default="the connector's, or the identifier fields",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """A table and its catalog, as specified on the command line."""

    table: Table
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Connector file, for the catalog, branch, and group."),
    ] = None
    worker: Worker = None
    catalog_property: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Property without the prefix `iceberg.catalog.`; may be repeated.",
        ),
    ] = None
    catalog: Annotated[str, typer.Option(help="Catalog name if --config is not set.")] = "iceberg"

    def catalog_properties(self) -> dict[str, str]:
        """Return the values of `--catalog-property`.

        Raises:
            ConfigError: A value is not of the form key=value.
        """
        return key_values("--catalog-property", self.catalog_property)

    def local_table(self, context: CommandContext) -> LocalTable:
        """Return the table with its catalog settings, for a separate driver.

        Raises:
            ConfigError: An option or a file is invalid.
        """
        from connectors.iceberg.config.spark_config import SparkConfig, worker_spark_config
        from connectors.iceberg_tools.commands.connector_json import parse_connector

        properties = self.catalog_properties()
        if self.config is None:
            if self.worker is not None:
                raise ConfigError("--worker", "requires --config, which specifies the connector")
            if not properties.keys() & {"type", "catalog-impl"}:
                raise ConfigError(
                    "",
                    "no catalog; specify one with --config connector.json or "
                    "--catalog-property type=…",
                )
            return LocalTable(self.table, SparkConfig(self.catalog, properties), None, context)
        connector, host = parse_connector(context, self.config, self.worker)
        if host is None:
            spark = SparkConfig(
                connector.catalog_name,
                connector.catalog,
                connector.hadoop_settings(),
                connector.spark,
            )
        else:
            spark = worker_spark_config(connector, host.worker_settings)
        merged = {**spark.catalog_properties, **properties}
        spark = replace(spark, catalog_properties=merged)
        return LocalTable(self.table, spark, connector, context, host)


@dataclass(frozen=True, slots=True)
class LocalTable(ConnectorTable):
    """A table and its catalog settings, for a driver that the command starts."""

    table: str
    spark: SparkConfig
    connector: IcebergSinkConfig | None  # None if only the catalog is specified
    context: CommandContext = field(repr=False, compare=False)
    host: SinkHost | None = None  # settings that the connector inherits from its worker

    @contextmanager
    def open(self, timeout_seconds: float = 120.0) -> Iterator[LakeClient]:
        """Open a session in a Spark driver that ends with the `with` block."""
        from connectors.iceberg.driver.lake_client import LakeClient

        with LakeClient(
            self.context.services(), self.spark, deadline_seconds=min(timeout_seconds, MAX_SECONDS)
        ) as lake:
            yield lake
