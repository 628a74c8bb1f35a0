"""List the snapshots of a table, or find the snapshot for a time or an offset. Read only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from connect_py.api.errors import ConfigError
from connectors.iceberg.catalog.sql_names import shown
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.offset_search import find_offset, parse_offset
from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry, entries
from connectors.iceberg_tools.history.table_point import (
    FIRST,
    LAST,
    NotInHistoryError,
    find_point,
    parse_time,
    resolve_ref,
    resolve_snapshot,
    snapshot_at_time,
)
from connectors.iceberg_tools.operations.table_operation import (
    Rows,
    TableArguments,
    TableOperation,
    TableTarget,
)


class HistoryArguments(TableArguments, frozen=True, kw_only=True):
    """Selects the snapshots to list."""

    branch: str | None = None
    limit: Rows = 20  # 0 for all snapshots
    everything: bool = False  # include snapshots that are not in the history of the branch


@dataclass(frozen=True, slots=True)
class TableSnapshots:
    """Snapshots of a table, newest first."""

    ref: str
    count: int  # number of snapshots before the limit is applied
    snapshots: list[SnapshotEntry]


def history(target: TableTarget, arguments: HistoryArguments) -> TableSnapshots:
    """List snapshots.

    Raises:
        NotInHistoryError: The branch does not exist.
    """
    metadata = target.metadata()
    ref = target.commit_ref(metadata, arguments.branch)
    if metadata.snapshots and ref != MAIN:  # the connector's branch is created by its first commit
        resolve_ref(metadata, ref)
    snapshots = entries(metadata, ref, everything=arguments.everything)
    return TableSnapshots(ref, len(snapshots), snapshots[: arguments.limit or None])


class AtArguments(TableArguments, frozen=True, kw_only=True):
    """Selects a snapshot."""

    by: Literal["time", "offset", "snapshot", "ref"]
    value: str
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotAnswer:
    """A snapshot, or the reason why it was not found."""

    entry: SnapshotEntry | None
    note: str  # how the snapshot was found, or why it was not found
    sql: str


def check_point(by: str, value: str) -> None:
    """Raise a `ConfigError` if a value is malformed. Does not require a driver."""
    if by == "offset":
        parse_offset(value)
    if by == "snapshot" and not value.isdecimal() and value not in (FIRST, LAST):
        raise ConfigError("--snapshot", f"invalid snapshot ID {value!r}: expected a number")
    if by == "time":
        try:
            parse_time(value)
        except ValueError as error:
            raise ConfigError(
                "--time", f"invalid time {value!r}: expected a time such as 2026-01-02T03:04:05Z"
            ) from error


def at(target: TableTarget, arguments: AtArguments) -> SnapshotAnswer:
    """Return the snapshot for a time, an offset, or a ref."""
    check_point(arguments.by, arguments.value)
    metadata = target.metadata()
    ref = target.commit_ref(metadata, arguments.branch)
    try:
        number, note = _find(metadata, arguments, ref, target.group)
    except NotInHistoryError as error:
        return SnapshotAnswer(None, str(error), "")
    [entry] = [each for each in entries(metadata, ref, everything=True) if each.id == number]
    name = ".".join(map(shown, (target.catalog, *target.table.split("."))))
    sql = f"SELECT * FROM {name} VERSION AS OF {number}"
    return SnapshotAnswer(entry, note, sql)


def _find(
    metadata: TableMetadata, arguments: AtArguments, ref: str, group: str | None
) -> tuple[int, str]:
    """Return the ID of the snapshot and a note on how it was found."""
    value = arguments.value
    if arguments.by == "offset":
        result = find_offset(metadata, *parse_offset(value), ref, group)
        return result.snapshot, result.note
    if arguments.by == "time":
        return snapshot_at_time(metadata, parse_time(value), ref), ""
    if arguments.by == "ref":
        return resolve_ref(metadata, value), ""
    return (
        resolve_snapshot(metadata, int(value))
        if value.isdecimal()
        else find_point(metadata, value, ref)
    ), ""


HISTORY = TableOperation("history", HistoryArguments, TableSnapshots, history)
AT = TableOperation("at", AtArguments, SnapshotAnswer, at)
