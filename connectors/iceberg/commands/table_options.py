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
from connectors.iceberg.commands.key_values import key_values

if TYPE_CHECKING:
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.spark_config import SparkConfig
    from connectors.iceberg.driver.lake_client import LakeClient
    from connectors.iceberg.protocol.table_metadata import TableMetadata

Table = Annotated[str, typer.Argument(metavar="TABLE", help="Full name of the table: namespace.table.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="The connector as it is posted: its catalog, branch and group.")
]
Worker = Annotated[
    Path | None,
    typer.Option(help="The worker's properties: what a connector has from its worker.", exists=True, dir_okay=False),
]
CatalogProperties = Annotated[
    list[str] | None,
    typer.Option("--catalog-property", metavar="KEY=VALUE", help="As after `iceberg.catalog.`; may be repeated."),
]
Catalog = Annotated[str, typer.Option(help="Name of the catalog, unless --config says it.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
Branch = Annotated[
    str | None, typer.Option(help="The branch whose history counts.", show_default="the connector's, or main")
]
Timeout = Annotated[int, typer.Option(help="Seconds that Spark may take.", min=1)]
TIMEOUT = 3600
_MOST_SECONDS = 2_000_000  # 23 days: what operating systems wait at once
POINT = "a snapshot id, a branch or tag, a time (2026-01-02T03:04:05Z), first or last"


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is."""

    table: str
    spark: SparkConfig
    connector: IcebergSinkConfig | None  # None: only the catalog was named
    host: SinkHost | None = None  # what the connector has from its worker, if that was named

    @property
    def ref(self) -> str:
        """The ref that the connector commits to."""
        return (self.connector and self.connector.table(self.table).commit_branch) or "main"

    @property
    def group(self) -> str | None:
        return self.connector.connect_group if self.connector is not None else None

    @contextmanager
    def open(self, timeout_seconds: float = 120.0) -> Iterator[LakeClient]:
        """A session in a Spark driver that ends with the block."""
        from connectors.iceberg.driver.lake_client import LakeClient

        with LakeClient(command_services(), self.spark, deadline_seconds=min(timeout_seconds, _MOST_SECONDS)) as lake:
            yield lake


def table_place(
    table: str, config: Path | None, worker: Path | None, catalog_properties: list[str] | None, catalog: str
) -> TablePlace:
    """Read the options.

    Raises:
        ConfigError: An option or a file makes no sense.
    """
    from connectors.iceberg.commands.connector_json import parse_connector
    from connectors.iceberg.config.spark_config import SparkConfig, worker_spark_config

    given = key_values("--catalog-property", catalog_properties)
    if config is None:
        if worker is not None:
            raise ConfigError("--worker", "needs --config: the connector whose values it has")
        if not given.keys() & {"type", "catalog-impl"}:
            raise ConfigError("", "where is the catalog? Give --config connector.json or --catalog-property type=…")
        return TablePlace(table, SparkConfig(catalog, given), None)
    connector, host = parse_connector(config, worker)
    if host is None:
        spark = SparkConfig(connector.catalog_name, connector.catalog, connector.hadoop_settings(), connector.spark)
    else:
        spark = worker_spark_config(connector, host.worker_settings)
    return TablePlace(table, replace(spark, catalog_properties={**spark.catalog_properties, **given}), connector, host)


def known_branch(metadata: TableMetadata, branch: str | None, place: TablePlace) -> str:
    """The ref whose history counts.

    Raises:
        NotInHistoryError: The table has no such branch as was typed. Those of connectors are made by a first commit.
    """
    from connectors.iceberg.history.table_point import known_ref
    from connectors.iceberg.protocol.commit_request import MAIN

    if branch is not None and branch != MAIN:
        known_ref(metadata, branch)
    return branch or place.ref
