"""`connect-py scan`: what a query with a condition need not read of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import asks_worker, uses_java
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import (
    POINT,
    TIMEOUT,
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    Timeout,
    Worker,
)
from connectors.iceberg_tools.commands.table_session import TableOptions, table_session

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.scan_levels import ScanReport

UNDECIDED = 2


@asks_worker
@uses_java
def scan(
    table: Table,
    where: Annotated[
        str, typer.Option(help="The condition, as it would follow WHERE in Spark SQL.")
    ],
    at: Annotated[str, typer.Option("--at", help=f"Which state: {POINT}.")] = "last",
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Say how many files and rows partitions, bounds and bloom filters let a query skip. No rows
    are read.

    Exit status 0: here it is; 2: not known (no such table, a condition that is none, no answer from
    the catalog).
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.scan import SCAN, ScanArguments

        options = TableOptions(table, config, worker, catalog_property, catalog, timeout)
        with table_session(options) as session:
            report = session.run(
                SCAN, ScanArguments(table=table, where=where, at=at, branch=branch)
            )
    if as_json:
        typer.echo(json.dumps({"table": table, "where": where, **report.to_json()}, indent=2))
        return
    for line in _lines(table, where, report):
        typer.echo(line)


def _lines(table: str, where: str, report: ScanReport) -> Iterator[str]:
    if report.snapshot is None:
        yield f"{table} has no snapshot yet"
        return
    yield f"{table}, snapshot {report.snapshot}: WHERE {where}"
    yield f"{'':<18}{'files':>10}{'rows':>14}{'bytes':>16}"
    for level in report.levels:
        yield f"{level.name:<18}{level.files:>10,}{level.rows:>14,}{level.bytes:>16,}"
    if report.files_opened:
        groups = ", ".join(f"{name} {count}" for name, count in report.row_groups.items())
        yield f"row groups of {report.files_opened} files: {groups}"
    if report.bloom_columns:
        yield f"new files get bloom filters for: {', '.join(report.bloom_columns)}"
