"""`connect-py history` and `connect-py at`: show snapshots of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.table_options import Branch, TableOptions
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.history import (
    AT,
    HISTORY,
    AtArguments,
    HistoryArguments,
    check_point,
)

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry
    from connectors.iceberg_tools.operations.history import TableSnapshots

NOT_THERE, UNDECIDED = 1, 2
_PARTITIONS = 6  # maximum number of partitions to show per snapshot and topic


@command(worker=True, json=True, failure_status=UNDECIDED)
def history(
    context: CommandContext,
    source: TableOptions,
    branch: Branch = None,
    limit: Annotated[
        int, typer.Option(help="Number of snapshots to show, newest first. 0 shows all.", min=0)
    ] = 20,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Include snapshots outside this history: rolled back, or on other refs.",
        ),
    ] = False,
) -> None:
    """List a table's snapshots with their writers, row counts, and source offsets.

    The list also shows the time of each snapshot and whether its sources are complete. Exit status
    0: listed; 2: unknown (the table does not exist, or the catalog does not respond).
    """
    arguments = HistoryArguments(
        table=source.table, branch=branch, limit=limit, everything=everything
    )
    with table_session(context, source) as session:
        result = session.run(HISTORY, arguments)
    snapshots = [entry.to_json() for entry in result.snapshots]
    context.show(
        {"table": source.table, "ref": result.ref, "snapshots": snapshots},
        _history_lines(source.table, result, limit),
    )


@command(worker=True, json=True, failure_status=UNDECIDED)
def at(
    context: CommandContext,
    source: TableOptions,
    time: Annotated[
        str | None,
        typer.Option(help="ISO 8601 time, such as 2026-01-02T03:04:05Z; UTC by default."),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="For example, orders:0:1234."),
    ] = None,
    snapshot: Annotated[str | None, typer.Option(help="A snapshot ID, first, or last.")] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or tag.")] = None,
    branch: Branch = None,
) -> None:
    """Show the snapshot that was current at a time, contains an offset, or is the head of a ref.

    Exit status 0: shown; 1: there is no such snapshot; 2: unknown (the table does not exist, or the
    catalog does not respond).
    """
    options = {"time": time, "offset": offset, "snapshot": snapshot, "ref": ref}
    points = {name: value for name, value in options.items() if value is not None}
    if len(points) != 1:
        raise ConfigError("", "specify one of --time, --offset, --snapshot, and --ref")
    [(by, value)] = points.items()
    check_point(by, value)
    arguments = AtArguments(table=source.table, by=by, value=value, branch=branch)  # type: ignore[arg-type] # checked by check_point
    with table_session(context, source) as session:
        result = session.run(AT, arguments)
    entry, note, sql = result.entry, result.note, result.sql
    if entry is None:
        context.warn(f"table {source.table}: {note}")
        raise typer.Exit(NOT_THERE)
    document = {"table": source.table, "asked": points, **entry.to_json(), "note": note, "sql": sql}
    context.show(
        document, (f"{label:<15} {value}" for label, value in _details(entry, note, sql).items())
    )


def _history_lines(table: str, result: TableSnapshots, limit: int) -> Iterator[str]:
    snapshots, count = result.snapshots, result.count
    yield f"{table} ({result.ref}): {pluralize(count, 'snapshot')}" + (
        f", {limit} shown" if len(snapshots) < count else ""
    )
    yield from _grid_lines(snapshots)


def _details(entry: SnapshotEntry, note: str, sql: str) -> dict[str, str]:
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
            "" if entry.on_ref else "not in the history of this ref: rolled back, or on another ref"
        ),
        "read it": sql,
    }
    return {label: value for label, value in lines.items() if value}


def _grid_lines(snapshots: list[SnapshotEntry]) -> Iterator[str]:
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
    for entry in snapshots:
        more = [f"{_by(entry)}: {entry.operation}", *_offsets(entry, _PARTITIONS)]
        more += [f"commit {entry.writer.commit[:8]}"] if entry.writer.commit else []
        more += [f"valid through {entry.valid_through}"] if entry.valid_through else []
        more += [f"ref {name}" for name in entry.refs]
        more += [] if entry.on_ref else ["not in this history"]
        time = utc(entry.timestamp_ms).replace("T", " ")[:19]
        cells = [str(entry.id), time, str(entry.rows_in), _out(entry), "\n".join(more)]
        grid.add_row(*map(Text, cells))
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(grid)
    yield from capture.get().splitlines()


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
    """Return the commit, task, epoch, and cycle of a snapshot that a sink committed."""
    writer = entry.writer
    parts = {
        "": writer.commit,
        "task ": writer.task,
        "epoch ": writer.epoch,
        "cycle ": writer.cycle,
    }
    return ", ".join(f"{label}{value}" for label, value in parts.items() if value is not None)


def _offsets(entry: SnapshotEntry, limit: int | None) -> list[str]:
    """Return one string per topic, for example `orders 0:120 1:87`."""
    topics = []
    for topic, partitions in entry.offsets.items():
        entries = [f"{number}:{following}" for number, following in partitions.items()][:limit]
        more = (
            f" and {len(partitions) - len(entries)} more" if len(entries) < len(partitions) else ""
        )
        topics.append(f"{topic} {' '.join(entries)}{more}")
    return topics
