"""`SnapshotEntry`: one snapshot as it is displayed to users. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY, MAIN, TASK_ID_KEY
from connectors.iceberg.protocol.ledger import Ledger, LedgerFormatError
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata
from connectors.iceberg.table.table_history import LEDGER_PREFIX

VALID_THROUGH_KEY: Final = "kafka.connect.valid-through-ts"
REWRITE: Final = "replace"  # operation of a snapshot with the same rows as its parent
# prefix of the properties that the Java sinks write
_JAVA_OFFSETS: Final = "kafka.connect.offsets."
_ADDED: Final = "added-records"
# The counts in `_REMOVED` include deletes that earlier snapshots had already counted.
_REMOVED: Final = ("deleted-records", "added-position-deletes")
_REMOVED_BEFORE: Final = "removed-position-deletes"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writer of a snapshot."""

    kind: str  # `connector` (this sink), `java-sink`, or `other`
    name: str  # connect group, or name of the engine or application
    commit: str | None = None
    task: str | None = None
    epoch: int | None = None
    cycle: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One snapshot of a table."""

    id: int
    parent: int | None
    timestamp_ms: int
    operation: str | None
    engine: str  # name and version, or empty if the summary lacks them
    writer: Writer
    rows_in: int
    rows_out: int  # excludes rows that equality deletes remove, because their number is unknown
    equality_deletes: int
    valid_through: str | None
    # next offsets by topic and partition
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    refs: tuple[str, ...] = ()  # branches and tags that refer to this snapshot
    on_ref: bool = True  # whether it is an ancestor of the ref's head

    def to_json(self) -> dict[str, Any]:
        return {
            "snapshot": self.id,
            "parent": self.parent,
            "time": utc(self.timestamp_ms),
            "operation": self.operation,
            "engine": self.engine or None,
            "writer": {n: getattr(self.writer, n) for n in Writer.__slots__},
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "equality_deletes": self.equality_deletes,
            "valid_through": self.valid_through,
            "refs": list(self.refs),
            "on_ref": self.on_ref,
            "source_offsets": {
                t: {str(p): n for p, n in parts.items()} for t, parts in self.offsets.items()
            },
        }


def utc(timestamp_ms: int) -> str:
    """Format an Iceberg timestamp as ISO 8601 in UTC."""
    text = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def entries(
    metadata: TableMetadata, ref: str = MAIN, *, everything: bool = False
) -> list[SnapshotEntry]:
    """Return the snapshots of a ref, newest first.

    If `everything` is True, snapshots that are not ancestors of the ref's head are included.
    """
    line = {snapshot["snapshot-id"] for snapshot in metadata.ancestors(metadata.head(ref))}
    chosen = [each for number, each in metadata.snapshots.items() if everything or number in line]
    chosen.sort(
        key=lambda each: (each.get("sequence-number", 0), each["timestamp-ms"]), reverse=True
    )
    return [_entry(metadata, each, on_ref=each["snapshot-id"] in line) for each in chosen]


def ledgers(metadata: TableMetadata, snapshot: Snapshot) -> Iterator[tuple[str, Ledger]]:
    """Yield a snapshot's connect groups and ledgers, except ledgers copied from other tables."""
    for key, text in snapshot["summary"].items():
        if key.startswith(LEDGER_PREFIX):
            try:
                ledger = Ledger.from_json(text)
            except LedgerFormatError:
                continue  # reported by `connect-py audit`
            if ledger.table == metadata.uuid:
                yield key.removeprefix(LEDGER_PREFIX), ledger


def _entry(metadata: TableMetadata, snapshot: Snapshot, *, on_ref: bool) -> SnapshotEntry:
    summary, number = snapshot["summary"], snapshot["snapshot-id"]
    engine = " ".join(filter(None, (summary.get("engine-name"), summary.get("engine-version"))))
    snapshot_ledgers = list(ledgers(metadata, snapshot))
    offsets = {
        name: {p: entry.next for p, entry in sorted(topic.partitions.items())}
        for _, ledger in snapshot_ledgers
        for name, topic in ledger.topics.items()
    }
    same_rows = summary.get("operation") == REWRITE
    removed = sum(_count(summary, key) for key in _REMOVED) - _count(summary, _REMOVED_BEFORE)
    return SnapshotEntry(
        number,
        snapshot.get("parent-snapshot-id"),
        snapshot["timestamp-ms"],
        summary.get("operation"),
        engine,
        _writer(summary, snapshot_ledgers),
        0 if same_rows else _count(summary, _ADDED),
        0 if same_rows else max(removed, 0),
        _count(summary, "added-equality-deletes"),
        summary.get(VALID_THROUGH_KEY),
        offsets,
        tuple(sorted(name for name, at in metadata.refs.items() if at == number)),
        on_ref,
    )


def _writer(summary: Mapping[str, str], snapshot_ledgers: list[tuple[str, Ledger]]) -> Writer:
    commit, task = summary.get(COMMIT_ID_KEY), summary.get(TASK_ID_KEY)
    if snapshot_ledgers:
        [(group, ledger), *_] = snapshot_ledgers
        return Writer("connector", group, ledger.commit, task, ledger.epoch.number, ledger.cycle)
    java = next((key for key in summary if key.startswith(_JAVA_OFFSETS)), None)
    if java is not None:
        return Writer("java-sink", java.rpartition(".")[2], commit, task)
    name = (
        summary.get("app-name")
        or summary.get("engine-name")
        or summary.get("spark.app.id")
        or "unnamed"
    )
    return Writer("other", name)


def _count(summary: Mapping[str, str], key: str) -> int:
    text = summary.get(key, "0")
    return int(text) if text.isdecimal() else 0
