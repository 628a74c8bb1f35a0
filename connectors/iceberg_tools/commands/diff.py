"""`connect-py diff`: compares the rows of two snapshots of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.table_options import (
    POINT,
    TIMEOUT,
    Branch,
    KeyColumns,
    TableOptions,
    Timeout,
)
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.diff import DIFF, DiffArguments, LocalDiffArguments

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.table_diff import TableDiff

DIFFERENT, UNDECIDED = 1, 2


@command(worker=True, json=True, failure_status=UNDECIDED)
def diff(
    context: CommandContext,
    source: TableOptions,
    before: Annotated[str, typer.Argument(metavar="A", help=f"First snapshot: {POINT}.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Second snapshot, in the same form.")],
    branch: Branch = None,
    key: KeyColumns = None,
    without_key: Annotated[
        bool,
        typer.Option("--without-key", help="Compare whole rows and their number of occurrences."),
    ] = False,
    limit: Annotated[int, typer.Option(help="Maximum number of rows to show.", min=0)] = 20,
    parquet: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write all differing rows to a new folder.")
    ] = None,
    to_table: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Write all differing rows to a new table.")
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Also print the SQL statement.")] = False,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Compare two snapshots of a table: count and show the inserted, updated, and deleted rows.

    Rows of a merged table are compared by key. Rows of a table without a key are compared as a
    whole, with their number of occurrences. Columns are matched by field ID. Exit status 0: equal;
    1: different; 2: unknown.
    """
    if key and without_key:
        raise ConfigError("--key", "cannot be combined with --without-key")
    arguments = DiffArguments(
        table=source.table,
        before=before,
        after=after,
        branch=branch,
        keys=tuple(key or ()),
        without_key=without_key,
        limit=limit,
        to_table=to_table,
    )
    separate = None
    if parquet is not None:
        folder = parquet if "://" in parquet else f"file://{Path(parquet).absolute()}"
        arguments = LocalDiffArguments(**msgspec.structs.asdict(arguments), parquet=folder)
        separate = "--parquet writes files with your permissions"
    with table_session(context, source, timeout, separate=separate) as session:
        difference = session.run(DIFF, arguments)
    context.show(
        {"table": source.table, **difference.to_json()},
        _lines(source.table, difference, sql=sql),
    )
    raise typer.Exit(DIFFERENT if difference.total else 0)


def _lines(table: str, difference: TableDiff, *, sql: bool) -> Iterator[str]:
    yield from difference_lines(table, difference)
    if sql:
        yield f"\n{difference.sql}"


def difference_lines(table: str, difference: TableDiff) -> Iterator[str]:
    """Yield the lines of a report about the difference."""
    from connectors.iceberg_tools.history.table_diff import RowChange

    request = difference.request
    by = f"rows by key ({', '.join(request.keys)})" if request.keys else "whole rows"
    yield f"{table}: {request.before} -> {request.after}, {by}"
    for category in ("added", "dropped", "retyped"):
        if names := getattr(difference.columns, category):
            yield f"columns {category}: {', '.join(names)}"
    if difference.columns.renamed:
        renamed = ", ".join(f"{old} -> {new}" for old, new in difference.columns.renamed)
        yield f"columns renamed: {renamed}"
    for change in RowChange:
        if change is not RowChange.UPDATED or request.keys:
            count = difference.counts.get(change, 0)
            if change is not RowChange.SEVERAL_ROWS:
                yield f"{count:>9} {change.value}"
            elif count:
                yield f"{count:>9} not compared (keys with several rows in one snapshot)"
    if difference.rows:
        yield ""
        yield from map(_row, difference.rows)
        if request.limit == len(difference.rows) < difference.total:
            yield "..."
    for where in filter(None, (request.parquet, request.table)):
        yield f"all rows are in {where}"


def _row(row: Mapping[str, Any]) -> str:
    before, after = row.get("before"), row.get("after")
    times = f" {row['times']} times" if row.get("times", 1) != 1 else ""
    if row.get("key") is None:
        return f"{row['change']}{times} {_values(after or before or {})}"
    if row["change"] != "updated" or not before or not after:
        return f"{row['change']} {_values(after or before or {})}"
    changes = ", ".join(
        f"{name}: {_format(before.get(name))} -> {_format(after.get(name))}"
        for name in row["changed"]
    )
    return f"updated {_values(row['key'])}: {changes}"


def _values(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_format(value)}" for name, value in row.items())


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
