"""Options of commands that ask a table, and how they get at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import command_services
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.key_values import key_values
from connectors.iceberg_tools.operations.connector_table import MAX_SECONDS, ConnectorTable

if TYPE_CHECKING:
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.spark_config import SparkConfig
    from connectors.iceberg.driver.lake_client import LakeClient

Table = Annotated[
    str, typer.Argument(metavar="TABLE", help="Full name of the table: namespace.table.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="The connector as it is posted: its catalog, branch and group."),
]
Worker = Annotated[
    Path | None,
    typer.Option(
        help="The worker's properties: what a connector has from its worker.",
        exists=True,
        dir_okay=False,
    ),
]
CatalogProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="KEY=VALUE",
        help="As after `iceberg.catalog.`; may be repeated.",
    ),
]
Catalog = Annotated[str, typer.Option(help="Name of the catalog, unless --config says it.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
Branch = Annotated[
    str | None,
    typer.Option(help="The branch whose history counts.", show_default="the connector's, or main"),
]
Timeout = Annotated[int, typer.Option(help="Seconds that Spark may take.", min=1)]
TIMEOUT = 3600
POINT = "a snapshot id, a branch or tag, a time (2026-01-02T03:04:05Z), first or last"


@dataclass(frozen=True, slots=True)
class TablePlace(ConnectorTable):
    """A table, and the catalog for a driver that the command starts."""

    table: str
    spark: SparkConfig
    connector: IcebergSinkConfig | None  # None: only the catalog was named
    host: SinkHost | None = None  # what the connector has from its worker, if that was named

    @contextmanager
    def open(self, timeout_seconds: float = 120.0) -> Iterator[LakeClient]:
        """A session in a Spark driver that ends with the block."""
        from connectors.iceberg.driver.lake_client import LakeClient

        with LakeClient(
            command_services(), self.spark, deadline_seconds=min(timeout_seconds, MAX_SECONDS)
        ) as lake:
            yield lake


def table_place(
    table: str,
    config: Path | None,
    worker: Path | None,
    catalog_properties: list[str] | None,
    catalog: str,
) -> TablePlace:
    """Read the options.

    Raises:
        ConfigError: An option or a file makes no sense.
    """
    from connectors.iceberg.config.spark_config import SparkConfig, worker_spark_config
    from connectors.iceberg_tools.commands.connector_json import parse_connector

    given = key_values("--catalog-property", catalog_properties)
    if config is None:
        if worker is not None:
            raise ConfigError("--worker", "needs --config: the connector whose values it has")
        if not given.keys() & {"type", "catalog-impl"}:
            raise ConfigError(
                "",
                "where is the catalog? Give --config connector.json or --catalog-property type=…",
            )
        return TablePlace(table, SparkConfig(catalog, given), None)
    connector, host = parse_connector(config, worker)
    if host is None:
        spark = SparkConfig(
            connector.catalog_name, connector.catalog, connector.hadoop_settings(), connector.spark
        )
    else:
        spark = worker_spark_config(connector, host.worker_settings)
    return TablePlace(
        table,
        replace(spark, catalog_properties={**spark.catalog_properties, **given}),
        connector,
        host,
    )
