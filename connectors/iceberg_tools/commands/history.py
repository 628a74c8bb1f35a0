"""`connect-py history` and `connect-py at`: the snapshots of a table, and which one holds a moment
or an offset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import asks_worker, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import (
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    Worker,
)
from connectors.iceberg_tools.commands.table_session import TableOptions, table_session

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry

NOT_THERE, UNDECIDED = 1, 2
_PARTITIONS = 6  # that people are shown of a snapshot


@asks_worker
@uses_java
def history(
    table: Table,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    limit: Annotated[
        int, typer.Option(help="Snapshots to show, the newest first; 0: all.", min=0)
    ] = 20,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also snapshots that are not in this history: rolled back, or of other refs.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List a table's snapshots: when, by whom, rows in and out, source offsets, and up to when
    sources are complete.

    Exit status 0: listed; 2: not known (no such table, no answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.history import HISTORY, HistoryArguments

        arguments = HistoryArguments(table=table, branch=branch, limit=limit, everything=everything)
        with table_session(
            TableOptions(table, config, worker, catalog_property, catalog)
        ) as session:
            found = session.run(HISTORY, arguments)
    shown, ref, count = found.snapshots, found.ref, found.count
    if as_json:
        listed = [entry.to_json() for entry in shown]
        typer.echo(json.dumps({"table": table, "ref": ref, "snapshots": listed}, indent=2))
        return
    typer.echo(
        f"{table} ({ref}): {count} snapshots" + (f", {limit} shown" if len(shown) < count else "")
    )
    _print_table(shown)


@asks_worker
@uses_java
def at(
    table: Table,
    time: Annotated[
        str | None, typer.Option(help="ISO 8601, as 2026-01-02T03:04:05Z; UTC without a zone.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="As orders:0:1234.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option(help="Id of a snapshot, or first, or last.")
    ] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or a tag.")] = None,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Say which snapshot readers saw at a time, holds an offset, or is behind a ref, and what it
    holds.

    Exit status 0: this one; 1: there is none, and why; 2: not known (no such table, no answer from
    the catalog).
    """
    asked = {"time": time, "offset": offset, "snapshot": snapshot, "ref": ref}
    given = {name: text for name, text in asked.items() if text is not None}
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.history import AT, AtArguments, check_point

        if len(given) != 1:
            raise ConfigError("", "say one of --time, --offset, --snapshot and --ref")
        [(by, value)] = given.items()
        check_point(by, value)
        arguments = AtArguments(table=table, by=by, value=value, branch=branch)  # type: ignore[arg-type] # one of these
        with table_session(
            TableOptions(table, config, worker, catalog_property, catalog)
        ) as session:
            found = session.run(AT, arguments)
    entry, note, sql = found.entry, found.note, found.sql
    if entry is None:
        typer.echo(f"connect-py: table {table}: {note}", err=True)
        raise typer.Exit(NOT_THERE)
    if as_json:
        typer.echo(
            json.dumps(
                {"table": table, "asked": given, **entry.to_json(), "note": note, "sql": sql},
                indent=2,
            )
        )
        return
    for label, text in _described(entry, note, sql).items():
        typer.echo(f"{label:<15} {text}")


def _described(entry: SnapshotEntry, note: str, sql: str) -> dict[str, str]:
    from connectors.iceberg_tools.history.snapshot_entry import utc

    lines = {
        "snapshot": str(entry.id),
        "time": utc(entry.timestamp_ms),
        "by": _by(entry),
        "commit": _commit(entry),
        "operation": entry.operation or "",
        "engine": entry.engine,
        "rows": f"{entry.rows_in} in, {_out(entry)} out",
        "offsets": ", ".join(_offsets(entry, None)),
        "valid through": entry.valid_through or "",
        "refs": ", ".join(entry.refs),
        "note": note
        or (
            "" if entry.on_ref else "not in the history of this ref: rolled back, or of another one"
        ),
        "read it": sql,
    }
    return {label: text for label, text in lines.items() if text}


def _print_table(shown: list[SnapshotEntry]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from connectors.iceberg_tools.history.snapshot_entry import utc

    grid = RichTable(
        "SNAPSHOT", "TIME (UTC)", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=""
    )
    for heading in ("IN", "OUT"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("BY, OFFSETS", overflow="fold")
    for entry in shown:
        more = [f"{_by(entry)}: {entry.operation}", *_offsets(entry, _PARTITIONS)]
        more += [f"commit {entry.writer.commit[:8]}"] if entry.writer.commit else []
        more += [f"valid through {entry.valid_through}"] if entry.valid_through else []
        more += [f"ref {name}" for name in entry.refs]
        more += [] if entry.on_ref else ["not in this history"]
        time = utc(entry.timestamp_ms).replace("T", " ")[:19]
        cells = [str(entry.id), time, str(entry.rows_in), _out(entry), "\n".join(more)]
        grid.add_row(*map(Text, cells))
    Console(highlight=False).print(grid)


def _out(entry: SnapshotEntry) -> str:
    return (
        f"{entry.rows_out}+{entry.equality_deletes}eq"
        if entry.equality_deletes
        else str(entry.rows_out)
    )


def _by(entry: SnapshotEntry) -> str:
    return (
        f"Java sink {entry.writer.name}" if entry.writer.kind == "java-sink" else entry.writer.name
    )


def _commit(entry: SnapshotEntry) -> str:
    """Which commit of which task it was, as far as it was a sink's."""
    writer = entry.writer
    parts = {
        "": writer.commit,
        "task ": writer.task,
        "epoch ": writer.epoch,
        "cycle ": writer.cycle,
    }
    return ", ".join(f"{label}{value}" for label, value in parts.items() if value is not None)


def _offsets(entry: SnapshotEntry, limit: int | None) -> list[str]:
    """One text a topic: `orders 0:120 1:87`."""
    made = []
    for topic, partitions in entry.offsets.items():
        shown = [f"{number}:{following}" for number, following in partitions.items()][:limit]
        more = f" and {len(partitions) - len(shown)} more" if len(shown) < len(partitions) else ""
        made.append(f"{topic} {' '.join(shown)}{more}")
    return made
