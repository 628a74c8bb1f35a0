"""Columnar representation of consecutive Kafka messages.

Importing this module does not import pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from connect_py.api.record import RawHeaders, RecordOrigin, TimestampType, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

# values of the `timestampType` column in Spark's Kafka source
_TIMESTAMP_TYPES: Final[Mapping[int, TimestampType]] = {
    0: TimestampType.CREATE_TIME,
    1: TimestampType.LOG_APPEND_TIME,
}


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Consecutive messages from one topic with one timestamp type.

    Contains at least one message and no consumer errors.
    """

    topic: str
    partitions: pa.Int32Array
    offsets: pa.Int64Array
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[RawHeaders | None] | None  # None if no message has headers
    timestamps: pa.Int64Array
    timestamp_type: TimestampType
    starts: Mapping[int, int]  # offset of the first message, by partition
    ends: Mapping[int, int]  # offset after the last message, by partition

    @staticmethod
    def of(batch: pa.RecordBatch) -> Iterator[MessageRun]:
        """Yield the runs in a batch of messages that Spark's Kafka source has read.

        The columns are key, value, topic, partition, offset, timestamp, timestampType, and
        optionally headers. A new run starts where the topic or the timestamp type changes.

        Raises:
            KeyError: A column is missing.
        """
        import pyarrow.compute as pc

        kinds, topics = batch.column("timestampType"), batch.column("topic")
        changes = pc.or_(
            pc.not_equal(kinds.slice(1), kinds.slice(0, max(0, len(kinds) - 1))),
            pc.not_equal(topics.slice(1), topics.slice(0, max(0, len(topics) - 1))),
        )
        cuts = [0, *(row + 1 for row in pc.indices_nonzero(changes).to_pylist()), batch.num_rows]
        for start, stop in pairwise(cuts):
            if stop > start:
                yield _of_rows(batch.slice(start, stop - start))

    def __len__(self) -> int:
        return len(self.offsets)

    def origin(self, row: int) -> RecordOrigin:
        """Return the position and the raw bytes of a message."""
        return RecordOrigin(
            self.topic,
            self.partitions[row].as_py(),
            self.offsets[row].as_py(),
            self.keys[row],
            self.values[row],
            () if self.headers is None else self.headers[row] or (),
        )

    def origins(self) -> list[RecordOrigin]:
        """Return the positions and the raw bytes of all messages."""
        headers = [()] * len(self) if self.headers is None else [h or () for h in self.headers]
        fields = (
            self.partitions.to_pylist(),
            self.offsets.to_pylist(),
            self.keys,
            self.values,
            headers,
        )
        return [RecordOrigin(self.topic, *row) for row in zip(*fields, strict=True)]

    def first(self) -> tuple[TopicPartition, int]:
        """Return the partition and the offset of the first message."""
        return TopicPartition(self.topic, self.partitions[0].as_py()), self.offsets[0].as_py()

    def consumed(self) -> dict[TopicPartition, int]:
        """Return the next offset to read after these messages, keyed by partition."""
        return {TopicPartition(self.topic, partition): end for partition, end in self.ends.items()}

    def only(self, is_selected: Callable[[TopicPartition], bool]) -> MessageRun | None:
        """Return the messages from the selected partitions, or None if there are none."""
        selected = {p for p in self.ends if is_selected(TopicPartition(self.topic, p))}
        if len(selected) == len(self.ends):
            return self
        if not selected:
            return None
        return self._of([row for row, p in enumerate(self.partitions.to_pylist()) if p in selected])

    def since(self, positions: Mapping[TopicPartition, int]) -> MessageRun | None:
        """Return the messages at or after these offsets, or None if there are none.

        All messages from partitions that are missing from `positions` are included.
        """
        low = {
            p: positions.get(TopicPartition(self.topic, p), start)
            for p, start in self.starts.items()
        }
        if all(low[p] <= start for p, start in self.starts.items()):
            return self
        positioned_rows = enumerate(
            zip(self.partitions.to_pylist(), self.offsets.to_pylist(), strict=True)
        )
        rows = [row for row, (partition, offset) in positioned_rows if offset >= low[partition]]
        return self._of(rows) if rows else None

    def _of(self, rows: Sequence[int]) -> MessageRun:
        partitions, offsets = self.partitions.take(rows), self.offsets.take(rows)
        return MessageRun(
            self.topic,
            partitions,
            offsets,
            [self.keys[row] for row in rows],
            [self.values[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            self.timestamps.take(rows),
            self.timestamp_type,
            *bounds_of(partitions.to_pylist(), offsets.to_pylist()),
        )


def bounds_of(
    partitions: Sequence[int], offsets: Sequence[int]
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the first and the end offset of each partition. Messages must be in offset order."""
    starts = dict(zip(reversed(partitions), reversed(offsets), strict=True))
    lasts = dict(zip(partitions, offsets, strict=True))
    return starts, {partition: last + 1 for partition, last in lasts.items()}


def _of_rows(batch: pa.RecordBatch) -> MessageRun:
    import pyarrow as pa

    partitions, offsets = (
        batch.column("partition").cast(pa.int32()),
        batch.column("offset").cast(pa.int64()),
    )
    kind = _TIMESTAMP_TYPES.get(batch.column("timestampType")[0].as_py())
    headers: list[RawHeaders | None] | None = None
    if "headers" in batch.schema.names:
        header_lists = batch.column("headers").to_pylist()
        headers = [
            None if each is None else [(item["key"], item["value"]) for item in each]
            for each in header_lists
        ]
        headers = None if headers.count(None) == len(headers) else headers
    times = pa.nulls(batch.num_rows, pa.int64())
    if kind is not None:
        times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return MessageRun(
        batch.column("topic")[0].as_py(),
        partitions,
        offsets,
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        headers,
        times,
        kind or TimestampType.NO_TIMESTAMP_TYPE,
        *bounds_of(partitions.to_pylist(), offsets.to_pylist()),
    )
