"""`connect-py scan`: shows the files and rows that a query with a condition skips."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.table_options import (
    TIMEOUT,
    At,
    Branch,
    TableOptions,
    Timeout,
)
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.scan import SCAN, ScanArguments

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.scan_levels import ScanReport

UNDECIDED = 2


@command(worker=True, json=True, failure_status=UNDECIDED)
def scan(
    context: CommandContext,
    source: TableOptions,
    where: Annotated[str, typer.Option(help="Condition in Spark SQL, without WHERE.")],
    at: At = "last",
    branch: Branch = None,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Show how many files and rows a query skips because of partitions, bounds, and bloom filters.

    No rows are read. Exit status 0: shown; 2: unknown (the table does not exist, the condition is
    invalid, or the catalog does not respond).
    """
    table = source.table
    with table_session(context, source, timeout) as session:
        report = session.run(SCAN, ScanArguments(table=table, where=where, at=at, branch=branch))
    context.show({"table": table, "where": where, **report.to_json()}, _lines(table, where, report))


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
        yield f"row groups of {pluralize(report.files_opened, 'file')}: {groups}"
    if report.bloom_columns:
        yield f"new files get bloom filters for: {', '.join(report.bloom_columns)}"
