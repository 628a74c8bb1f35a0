"""`connect-py history` and `connect-py at`: the snapshots of a table, and which one holds a moment or an offset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg.commands.exit_status import errors_exit
from connectors.iceberg.commands.table_options import (
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    Worker,
    known_branch,
    table_place,
)

if TYPE_CHECKING:
    from connectors.iceberg.history.snapshot_entry import SnapshotEntry
    from connectors.iceberg.protocol.table_metadata import TableMetadata

NOT_THERE, UNDECIDED = 1, 2
_PARTITIONS = 6  # that people are shown of a snapshot


@uses_java
def history(
    table: Table,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    limit: Annotated[int, typer.Option(help="Snapshots to show, the newest first; 0: all.", min=0)] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="Also snapshots that are not in this history: rolled back, or of other refs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List a table's snapshots: when, by whom, rows in and out, source offsets, and up to when sources are complete.

    Exit status 0: listed; 2: not known (no such table, no answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg.history.snapshot_entry import entries
        from connectors.iceberg.history.table_diff import read_metadata
        from connectors.iceberg.history.table_point import known_ref
        from connectors.iceberg.protocol.commit_request import MAIN

        place = table_place(table, config, worker, catalog_property, catalog)
        with place.open() as lake:
            metadata = lake.run(table, read_metadata)
        ref = known_branch(metadata, branch, place)
        if metadata.snapshots and ref != MAIN:  # the connector's branch is there from its first commit on
            known_ref(metadata, ref)
        found = entries(metadata, ref, everything=everything)
    shown = found[: limit or None]
    if as_json:
        listed = [entry.to_json() for entry in shown]
        typer.echo(json.dumps({"table": table, "ref": ref, "snapshots": listed}, indent=2))
        return
    typer.echo(f"{table} ({ref}): {len(found)} snapshots" + (f", {limit} shown" if len(shown) < len(found) else ""))
    _print_table(shown)


@uses_java
def at(
    table: Table,
    time: Annotated[str | None, typer.Option(help="ISO 8601, as 2026-01-02T03:04:05Z; UTC without a zone.")] = None,
    offset: Annotated[str | None, typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="As orders:0:1234.")] = None,
    snapshot: Annotated[str | None, typer.Option(help="Id of a snapshot, or first, or last.")] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or a tag.")] = None,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Say which snapshot readers saw at a time, holds an offset, or is behind a ref, and what it holds.

    Exit status 0: this one; 1: there is none, and why; 2: not known (no such table, no answer from the catalog).
    """
    asked = {"time": time, "offset": offset, "snapshot": snapshot, "ref": ref}
    given = {name: text for name, text in asked.items() if text is not None}
    with errors_exit(UNDECIDED):
        from connectors.iceberg.catalog.sql_names import shown
        from connectors.iceberg.history.snapshot_entry import entries
        from connectors.iceberg.history.table_diff import read_metadata
        from connectors.iceberg.history.table_point import NotInHistoryError

        if len(given) != 1:
            raise ConfigError("", "say one of --time, --offset, --snapshot and --ref")
        _check(given)
        place = table_place(table, config, worker, catalog_property, catalog)
        with place.open() as lake:
            metadata = lake.run(table, read_metadata)
        line = known_branch(metadata, branch, place)
        try:
            number, note = _find(metadata, given, line, place.group)
        except NotInHistoryError as error:
            typer.echo(f"connect-py: table {table}: {error}", err=True)
            raise typer.Exit(NOT_THERE) from error
        [entry] = [each for each in entries(metadata, line, everything=True) if each.id == number]
    sql = f"SELECT * FROM {'.'.join(map(shown, (place.spark.catalog, *table.split('.'))))} VERSION AS OF {number}"
    if as_json:
        typer.echo(json.dumps({"table": table, "asked": given, **entry.to_json(), "note": note, "sql": sql}, indent=2))
        return
    for label, text in _described(entry, note, sql).items():
        typer.echo(f"{label:<15} {text}")


def _check(given: Mapping[str, str]) -> None:
    """Refuse what is malformed before Spark starts. ConfigError: it is."""
    from connectors.iceberg.history.offset_search import parse_offset
    from connectors.iceberg.history.table_point import FIRST, LAST, parse_time

    if "offset" in given:
        parse_offset(given["offset"])
    if "snapshot" in given and not given["snapshot"].isdecimal() and given["snapshot"] not in (FIRST, LAST):
        raise ConfigError("--snapshot", f"{given['snapshot']} is no id of a snapshot, which is a number")
    if "time" in given:
        try:
            parse_time(given["time"])
        except ValueError as error:
            raise ConfigError("--time", f"{given['time']} is no time such as 2026-01-02T03:04:05Z") from error


def _find(metadata: TableMetadata, given: Mapping[str, str], ref: str, group: str | None) -> tuple[int, str]:
    """The snapshot, and what there is to say about how it was found."""
    from connectors.iceberg.history.offset_search import find_offset, parse_offset
    from connectors.iceberg.history.table_point import (
        find_point,
        known_ref,
        known_snapshot,
        parse_time,
        snapshot_at_time,
    )

    [(kind, text)] = given.items()
    if kind == "offset":
        place = find_offset(metadata, *parse_offset(text), ref, group)
        return place.snapshot, place.note
    if kind == "time":
        return snapshot_at_time(metadata, parse_time(text), ref), ""
    if kind == "ref":
        return known_ref(metadata, text), ""
    return (known_snapshot(metadata, int(text)) if text.isdecimal() else find_point(metadata, text, ref)), ""


def _described(entry: SnapshotEntry, note: str, sql: str) -> dict[str, str]:
    from connectors.iceberg.history.snapshot_entry import utc

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
        "note": note or ("" if entry.on_ref else "not in the history of this ref: rolled back, or of another one"),
        "read it": sql,
    }
    return {label: text for label, text in lines.items() if text}


def _print_table(shown: list[SnapshotEntry]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from connectors.iceberg.history.snapshot_entry import utc

    grid = RichTable("SNAPSHOT", "TIME (UTC)", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
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
    return f"{entry.rows_out}+{entry.equality_deletes}eq" if entry.equality_deletes else str(entry.rows_out)


def _by(entry: SnapshotEntry) -> str:
    return f"Java sink {entry.writer.name}" if entry.writer.kind == "java-sink" else entry.writer.name


def _commit(entry: SnapshotEntry) -> str:
    """Which commit of which task it was, as far as it was a sink's."""
    writer = entry.writer
    parts = {"": writer.commit, "task ": writer.task, "epoch ": writer.epoch, "cycle ": writer.cycle}
    return ", ".join(f"{label}{value}" for label, value in parts.items() if value is not None)


def _offsets(entry: SnapshotEntry, limit: int | None) -> list[str]:
    """One text a topic: `orders 0:120 1:87`."""
    made = []
    for topic, partitions in entry.offsets.items():
        shown = [f"{number}:{following}" for number, following in partitions.items()][:limit]
        more = f" and {len(partitions) - len(shown)} more" if len(shown) < len(partitions) else ""
        made.append(f"{topic} {' '.join(shown)}{more}")
    return made
