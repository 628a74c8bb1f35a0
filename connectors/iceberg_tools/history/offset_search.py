"""Which snapshot holds an offset of a topic: an answer from the ledgers. Pure."""

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
    """Offsets [first, next) of a partition that one commit brought."""

    snapshot: int
    group: str
    topic_id: str
    generation: int
    first: int
    next: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class OffsetPlace:
    """Where an offset is. Its row is there if a row of it is routed to this table."""

    snapshot: int  # the oldest one of the ref that holds it
    range: CommittedRange | None  # by which it came; None: that snapshot was expired
    again: Sequence[
        CommittedRange
    ] = ()  # other commits of it: the offsets were moved back, or the topic made again

    @property
    def note(self) -> str:
        """What the snapshot alone does not say."""
        if self.range is None:
            return (
                "the snapshot that brought it was expired; this is the oldest one left that "
                "holds it"
            )
        return (
            ""
            if not self.again
            else "read again later: offsets were moved back, or the topic was created again"
        )


def parse_offset(text: str) -> tuple[TopicPartition, int]:
    """`topic:partition:offset`.

    Raises:
        ConfigError: It is not of this form.
    """
    topic, partition, offset = ["", "", *text.rsplit(":", 2)][-3:]
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise ConfigError(
            "--offset", f"{text} is not of the form topic:partition:offset, as orders:0:1234"
        )
    return TopicPartition(topic, int(partition)), int(offset)


def find_offset(
    metadata: TableMetadata,
    partition: TopicPartition,
    offset: int,
    ref: str = MAIN,
    group: str | None = None,
) -> OffsetPlace:
    """Find an offset in the snapshots of a ref.

    Args:
        group: the connector's, where several read the topic; None: any.

    Raises:
        NotInHistoryError: No snapshot holds it. The text says why.
    """
    found = sorted(_ranges(metadata, partition, ref, group), key=lambda each: each[0])
    ranges = [each for _, each in found]
    if not ranges:
        return _from_properties(metadata, partition, offset, ref, group)
    hits = [each for each in ranges if each.first <= offset < each.next]
    topic_id = ranges[-1].topic_id  # of the topic as it is now
    newest = [each for each in ranges if each.topic_id == topic_id]
    best = next((each for each in hits if each.topic_id == topic_id), hits[0] if hits else None)
    if best is not None:
        return OffsetPlace(best.snapshot, best, [each for each in hits if each is not best])
    if offset >= max(each.next for each in newest):
        raise NotInHistoryError(
            f"{partition}: offset {offset} is not committed: {ref} ends before {newest[-1].next}"
        )
    if offset < newest[0].first:
        opened = _opened(metadata, partition, newest[0].group)
        if (opened is None or opened <= offset) and not _complete(metadata, ref):
            return OffsetPlace(newest[0].snapshot, None)
        begin = newest[0].first if opened is None else opened
        raise NotInHistoryError(
            f"{partition}: offset {offset} is not in the table, which begins at offset {begin}"
        )
    raise NotInHistoryError(
        f"{partition}: offset {offset} is in no commit: it was skipped by a move of the offsets"
    )


def _ranges(
    metadata: TableMetadata, partition: TopicPartition, ref: str, group: str | None
) -> Iterator[tuple[int, CommittedRange]]:
    """Ranges that are not empty, each with its place in the history."""
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
                found = LedgerProperty.from_json(text)
            except LedgerFormatError:
                continue
            if found.ledger.table == metadata.uuid:
                yield key.removeprefix(LEDGER_PREFIX), found


def _opened(metadata: TableMetadata, partition: TopicPartition, group: str) -> int | None:
    """The offset at which the table began to take rows of a partition."""
    position = next(
        (p.opened.get(partition) for name, p in _properties(metadata) if name == group), None
    )
    return None if position is None else position.next


def _from_properties(
    metadata: TableMetadata, partition: TopicPartition, offset: int, ref: str, group: str | None
) -> OffsetPlace:
    """What the table property says when no snapshot with a ledger is left: the oldest one that is
    left holds it all."""
    line = list(metadata.ancestors(metadata.head(ref)))
    known: set[str] = set()
    for name, found in _properties(metadata):
        entry = found.ledger.entry(partition)
        known |= {
            f"{topic}:{p}" for topic, each in found.ledger.topics.items() for p in each.partitions
        }
        if entry is None or group not in (None, name) or not line:
            continue
        opened = _opened(metadata, partition, name)
        expired = found.snapshot not in metadata.snapshots and not _complete(metadata, ref)
        if expired and (opened is None or opened <= offset) and offset < entry.next:
            return OffsetPlace(int(line[-1]["snapshot-id"]), None)
        if expired and offset >= entry.next:
            raise NotInHistoryError(
                f"{partition}: offset {offset} is not committed: {ref} ends before {entry.next}"
            )
    speak = (
        f"the table knows {', '.join(sorted(known)[:5])}"
        if known
        else "no connector of ours wrote to it"
    )
    raise NotInHistoryError(f"no ledger of {ref} speaks of {partition}: {speak}")
