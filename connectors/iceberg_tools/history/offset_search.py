"""Searches the ledgers for the snapshot that contains a topic's offset. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from connect_py.api.errors import ConfigError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import LedgerFormatError, LedgerProperty
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table_history import LEDGER_PREFIX
from connectors.iceberg_tools.history.snapshot_entry import ledgers
from connectors.iceberg_tools.history.table_point import NotInHistoryError


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """Offsets [first, next) of one partition in one commit."""

    snapshot: int
    group: str
    topic_id: str
    generation: int
    first: int
    next: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class OffsetSearchResult:
    """Snapshot that contains an offset. The record may have been routed to another table."""

    snapshot: int  # oldest snapshot of the ref that contains the offset
    # commit that added the offset, or None if its snapshot was expired
    range: CommittedRange | None
    # other commits that cover the offset, because offsets were moved back or the topic was
    # re-created
    again: Sequence[CommittedRange] = ()

    @property
    def note(self) -> str:
        """Note on the search result, or empty if the snapshot added the offset."""
        if self.range is None:
            return (
                "the snapshot that added it was expired; this is the oldest remaining snapshot "
                "that contains it"
            )
        return (
            ""
            if not self.again
            else "read again later because offsets were moved back or the topic was re-created"
        )


def parse_offset(value: str) -> tuple[TopicPartition, int]:
    """Parse `topic:partition:offset`.

    Raises:
        ConfigError: The string does not have this form.
    """
    topic, partition, offset = ["", "", *value.rsplit(":", 2)][-3:]
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise ConfigError(
            "--offset",
            f"invalid offset {value!r}: expected topic:partition:offset, for example orders:0:1234",
        )
    return TopicPartition(topic, int(partition)), int(offset)


def find_offset(
    metadata: TableMetadata,
    partition: TopicPartition,
    offset: int,
    ref: str = MAIN,
    group: str | None = None,
) -> OffsetSearchResult:
    """Find an offset in the snapshots of a ref.

    Args:
        group: Connect group, if several connectors read the topic, or None for any group.

    Raises:
        NotInHistoryError: No snapshot contains the offset. The message states the reason.
    """
    aged_ranges = sorted(_ranges(metadata, partition, ref, group), key=lambda each: each[0])
    ranges = [each for _, each in aged_ranges]
    if not ranges:
        return _from_properties(metadata, partition, offset, ref, group)
    hits = [each for each in ranges if each.first <= offset < each.next]
    topic_id = ranges[-1].topic_id  # ID of the current topic
    newest = [each for each in ranges if each.topic_id == topic_id]
    best = next((each for each in hits if each.topic_id == topic_id), hits[0] if hits else None)
    if best is not None:
        return OffsetSearchResult(best.snapshot, best, [each for each in hits if each is not best])
    if offset >= max(each.next for each in newest):
        raise NotInHistoryError(
            f"{partition}: offset {offset} is not committed: {ref} ends before {newest[-1].next}"
        )
    if offset < newest[0].first:
        opened = _opened(metadata, partition, newest[0].group)
        if (opened is None or opened <= offset) and not _complete(metadata, ref):
            return OffsetSearchResult(newest[0].snapshot, None)
        begin = newest[0].first if opened is None else opened
        raise NotInHistoryError(
            f"{partition}: offset {offset} is not in the table, which begins at offset {begin}"
        )
    raise NotInHistoryError(
        f"{partition}: offset {offset} is in no commit because the offsets were moved past it"
    )


def _ranges(
    metadata: TableMetadata, partition: TopicPartition, ref: str, group: str | None
) -> Iterator[tuple[int, CommittedRange]]:
    """Yield the committed ranges, each with its snapshot's position in the history."""
    for age, snapshot in enumerate(metadata.ancestors(metadata.head(ref))):
        for name, ledger in ledgers(metadata, snapshot):
            entry = ledger.entry(partition)
            if entry is not None and group in (None, name):
                topic_id = ledger.topics[partition.topic].topic_id
                number = snapshot["snapshot-id"]
                yield (
                    -age,
                    CommittedRange(
                        number, name, topic_id, entry.generation, entry.base, entry.next
                    ),
                )


def _complete(metadata: TableMetadata, ref: str) -> bool:
    *_, oldest = metadata.ancestors(metadata.head(ref))
    return oldest.get("parent-snapshot-id") is None


def _properties(metadata: TableMetadata) -> Iterator[tuple[str, LedgerProperty]]:
    for key, text in metadata.properties.items():
        if key.startswith(LEDGER_PREFIX):
            try:
                ledger_property = LedgerProperty.from_json(text)
            except LedgerFormatError:
                continue
            if ledger_property.ledger.table == metadata.uuid:
                yield key.removeprefix(LEDGER_PREFIX), ledger_property


def _opened(metadata: TableMetadata, partition: TopicPartition, group: str) -> int | None:
    """Return the offset at which the table's rows from a partition begin, or None if unknown."""
    position = next(
        (p.opened.get(partition) for name, p in _properties(metadata) if name == group), None
    )
    return None if position is None else position.next


def _from_properties(
    metadata: TableMetadata, partition: TopicPartition, offset: int, ref: str, group: str | None
) -> OffsetSearchResult:
    """Search the table properties if no snapshot with a ledger remains.

    The oldest remaining snapshot contains all rows before the positions in a property.
    """
    line = list(metadata.ancestors(metadata.head(ref)))
    partitions: set[str] = set()
    for name, ledger_property in _properties(metadata):
        entry = ledger_property.ledger.entry(partition)
        partitions |= {
            f"{topic}:{p}"
            for topic, each in ledger_property.ledger.topics.items()
            for p in each.partitions
        }
        if entry is None or group not in (None, name) or not line:
            continue
        opened = _opened(metadata, partition, name)
        expired = ledger_property.snapshot not in metadata.snapshots and not _complete(
            metadata, ref
        )
        if expired and (opened is None or opened <= offset) and offset < entry.next:
            return OffsetSearchResult(int(line[-1]["snapshot-id"]), None)
        if expired and offset >= entry.next:
            raise NotInHistoryError(
                f"{partition}: offset {offset} is not committed: {ref} ends before {entry.next}"
            )
    reason = (
        f"the table has ledgers for {', '.join(sorted(partitions)[:5])}"
        if partitions
        else "the table was not written by this sink"
    )
    raise NotInHistoryError(f"no ledger of {ref} contains {partition}: {reason}")
