"""Points of a table: a snapshot by its id, a branch or tag, a time, or one end of the history."""

from __future__ import annotations

from datetime import UTC, datetime

from connect_py.api.errors import ConnectError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.snapshot_entry import utc

FIRST, LAST = "first", "last"


class NotInHistoryError(ConnectError):
    """The table has no such snapshot, or has it no more."""


def find_point(metadata: TableMetadata, text: str, ref: str = MAIN) -> int:
    """Id of the snapshot that a text names.

    `first` and `last` are the ends of the ref's history as far as it is left; times are those of
    the ref.

    Raises:
        NotInHistoryError: There is none.
    """
    if text in (FIRST, LAST):
        line = [int(snapshot["snapshot-id"]) for snapshot in metadata.ancestors(metadata.head(ref))]
        if not line:
            raise NotInHistoryError("the table has no snapshot yet")
        return line[-1] if text == FIRST else line[0]
    if text.isdecimal() and int(text) in metadata.snapshots:
        return int(text)
    if text in metadata.refs:
        return metadata.refs[text]
    if text.isdecimal() and len(text) != len("20260102"):  # a day without dashes
        return known_snapshot(metadata, int(text))
    try:
        moment = parse_time(text)
    except ValueError as error:
        refs = ", ".join(sorted(metadata.refs)) or "none"
        raise NotInHistoryError(
            f"{text} is no snapshot id, no branch or tag of the table ({refs}), no time such as "
            f"2026-01-02T03:04:05Z, and neither {FIRST} nor {LAST}"
        ) from error
    return snapshot_at_time(metadata, moment, ref)


def known_snapshot(metadata: TableMetadata, number: int) -> int:
    """The id, if the table has this snapshot.

    Raises:
        NotInHistoryError: It has not.
    """
    if number in metadata.snapshots:
        return number
    parents = {each.get("parent-snapshot-id") for each in metadata.snapshots.values()}
    why = (
        "was expired"
        if number in parents
        else "is none of the table's: it was expired, or never there"
    )
    raise NotInHistoryError(f"snapshot {number} {why}")


def known_ref(metadata: TableMetadata, name: str) -> int:
    """The snapshot of a branch or a tag.

    Raises:
        NotInHistoryError: There is none of this name.
    """
    if name not in metadata.refs:
        refs = ", ".join(sorted(metadata.refs)) or "none"
        raise NotInHistoryError(f"the table has no branch or tag {name}; it has: {refs}")
    return metadata.refs[name]


def parse_time(text: str) -> int:
    """Milliseconds of a time in ISO 8601; without a zone it is UTC.

    Raises:
        ValueError: It is none.
    """
    moment = datetime.fromisoformat(text)
    try:
        return int(
            (
                moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            ).timestamp()
            * 1000
        )
    except OverflowError as error:  # in UTC it is before the year 1
        raise ValueError(f"{text} is too early") from error


def snapshot_at_time(metadata: TableMetadata, moment_ms: int, ref: str = MAIN) -> int:
    """What readers of a ref saw at a time: its newest snapshot then.

    Of main by the table's log, which knows roll-backs; of other refs by the age of the head's
    ancestors.

    Raises:
        NotInHistoryError: The history that is left begins later.
    """
    line = [
        (int(s["timestamp-ms"]), int(s["snapshot-id"]))
        for s in metadata.ancestors(metadata.head(ref))
    ]
    log = sorted((metadata.snapshot_log if ref == MAIN else ()) or line, key=lambda each: each[0])
    before = [number for at, number in log if at <= moment_ms]
    if not before:
        begins = (
            f"the history that is left begins at {utc(log[0][0])}"
            if log
            else "the table has no snapshot yet"
        )
        raise NotInHistoryError(f"no snapshot of {ref} is as old as {utc(moment_ms)}: {begins}")
    return known_snapshot(metadata, before[-1])
