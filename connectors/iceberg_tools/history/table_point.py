"""Points in a table's history: a snapshot ID, a branch or tag, a time, `first`, or `last`."""

from __future__ import annotations

from datetime import UTC, datetime

from connect_py.api.errors import ConnectError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.snapshot_entry import utc

FIRST, LAST = "first", "last"


class NotInHistoryError(ConnectError):
    """The snapshot does not exist or was expired."""


def find_point(metadata: TableMetadata, point: str, ref: str = MAIN) -> int:
    """Return the ID of the snapshot that a string refers to.

    `first` and `last` are the oldest and newest remaining snapshots of the ref. Times also refer to
    the history of the ref.

    Raises:
        NotInHistoryError: There is no such snapshot.
    """
    if point in (FIRST, LAST):
        line = [int(snapshot["snapshot-id"]) for snapshot in metadata.ancestors(metadata.head(ref))]
        if not line:
            raise NotInHistoryError("the table has no snapshot yet")
        return line[-1] if point == FIRST else line[0]
    if point.isdecimal() and int(point) in metadata.snapshots:
        return int(point)
    if point in metadata.refs:
        return metadata.refs[point]
    if point.isdecimal() and len(point) != len("20260102"):  # eight digits are a date
        return resolve_snapshot(metadata, int(point))
    try:
        moment = parse_time(point)
    except ValueError as error:
        refs = ", ".join(sorted(metadata.refs)) or "none"
        raise NotInHistoryError(
            f"invalid point {point!r}: expected a snapshot ID, a branch or tag of the table "
            f"({refs}), a time such as 2026-01-02T03:04:05Z, {FIRST}, or {LAST}"
        ) from error
    return snapshot_at_time(metadata, moment, ref)


def resolve_snapshot(metadata: TableMetadata, number: int) -> int:
    """Return the ID if the table has this snapshot.

    Raises:
        NotInHistoryError: The snapshot does not exist.
    """
    if number in metadata.snapshots:
        return number
    parents = {each.get("parent-snapshot-id") for each in metadata.snapshots.values()}
    why = (
        "was expired"
        if number in parents
        else "does not exist; it was expired or is from another table"
    )
    raise NotInHistoryError(f"snapshot {number} {why}")


def resolve_ref(metadata: TableMetadata, name: str) -> int:
    """Return the snapshot of a branch or a tag.

    Raises:
        NotInHistoryError: There is no branch or tag with this name.
    """
    if name not in metadata.refs:
        refs = ", ".join(sorted(metadata.refs)) or "none"
        raise NotInHistoryError(f"the table has no branch or tag {name}; existing: {refs}")
    return metadata.refs[name]


def parse_time(value: str) -> int:
    """Parse a time in ISO 8601, by default in UTC, and return it in milliseconds since the epoch.

    Raises:
        ValueError: `value` is not a valid time.
    """
    moment = datetime.fromisoformat(value)
    try:
        return int(
            (
                moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            ).timestamp()
            * 1000
        )
    except OverflowError as error:  # before the year 1 in UTC
        raise ValueError(f"{value} is too early") from error


def snapshot_at_time(metadata: TableMetadata, moment_ms: int, ref: str = MAIN) -> int:
    """Return the snapshot to which a ref pointed at a given time.

    For main, the result is based on the table's snapshot log, which includes rollbacks. For other
    refs, it is based on the timestamps of the head's ancestors.

    Raises:
        NotInHistoryError: The remaining history begins later.
    """
    line = [
        (int(s["timestamp-ms"]), int(s["snapshot-id"]))
        for s in metadata.ancestors(metadata.head(ref))
    ]
    log = sorted((metadata.snapshot_log if ref == MAIN else ()) or line, key=lambda each: each[0])
    before = [number for at, number in log if at <= moment_ms]
    if not before:
        begins = (
            f"the remaining history begins at {utc(log[0][0])}"
            if log
            else "the table has no snapshot yet"
        )
        raise NotInHistoryError(f"{ref} has no snapshot at or before {utc(moment_ms)}: {begins}")
    return resolve_snapshot(metadata, before[-1])
