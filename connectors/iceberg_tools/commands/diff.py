"""`connect-py diff`: the rows in which two snapshots of a table differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import asks_worker, uses_java
from connect_py.api.errors import ConfigError
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
    from connectors.iceberg_tools.history.table_diff import TableDiff

DIFFERENT, UNDECIDED = 1, 2


@asks_worker
@uses_java
def diff(
    table: Table,
    before: Annotated[str, typer.Argument(metavar="A", help=f"The first state: {POINT}.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The second state, likewise.")],
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of the key; may be repeated.",
            show_default="the connector's, or the identifier fields",
        ),
    ] = None,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Compare whole rows, and how often they occur.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Rows to show.", min=0)] = 20,
    parquet: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write all rows to a new folder.")
    ] = None,
    to_table: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Write all rows to a new table.")
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statement as well.")] = False,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Compare two snapshots of a table: rows inserted, updated and deleted; counts first, then
    rows.

    Rows of a merged table are compared by key. Those of a table without key are compared whole: how
    often each occurs. Columns are matched by field id. Exit status 0: equal; 1: different; 2: not
    known.
    """
    with errors_exit(UNDECIDED):
        import msgspec

        from connectors.iceberg_tools.operations.diff import DIFF, DiffArguments, LocalDiffArguments

        if key and without_key:
            raise ConfigError("--key", "cannot be combined with --without-key")
        arguments = DiffArguments(
            table=table,
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
        options = TableOptions(table, config, worker, catalog_property, catalog, timeout)
        with table_session(options, separate=separate) as session:
            found = session.run(DIFF, arguments)
    if as_json:
        typer.echo(json.dumps({"table": table, **found.to_json()}, indent=2))
    else:
        for line in difference_lines(table, found):
            typer.echo(line)
        if sql:
            typer.echo(f"\n{found.sql}")
    raise typer.Exit(DIFFERENT if found.total else 0)


def difference_lines(table: str, found: TableDiff) -> Iterator[str]:
    """The difference for people."""
    from connectors.iceberg_tools.history.table_diff import RowChange

    request = found.request
    by = f"rows by key ({', '.join(request.keys)})" if request.keys else "whole rows"
    yield f"{table}: {request.before} -> {request.after}, {by}"
    for what in ("added", "dropped", "retyped"):
        if names := getattr(found.columns, what):
            yield f"columns {what}: {', '.join(names)}"
    if found.columns.renamed:
        yield (
            f"columns renamed: {', '.join(f'{old} -> {new}' for old, new in found.columns.renamed)}"
        )
    for change in RowChange:
        if change is not RowChange.UPDATED or request.keys:
            count = found.counts.get(change, 0)
            if change is not RowChange.SEVERAL_ROWS:
                yield f"{count:>9} {change.value}"
            elif count:
                yield f"{count:>9} keys with several rows in one state, which are not compared"
    if found.rows:
        yield ""
        yield from map(_row, found.rows)
        if request.limit == len(found.rows) < found.total:
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
        f"{name}: {_text(before.get(name))} -> {_text(after.get(name))}" for name in row["changed"]
    )
    return f"updated {_values(row['key'])}: {changes}"


def _values(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in row.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
