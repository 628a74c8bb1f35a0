"""`MessageRun`: consumed messages, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from connect_py.api.record import RawHeaders, RecordOrigin, TimestampType, TopicPartition

Consumed: TypeAlias = Any  # confluent_kafka's Message; its accessors are called by the thousand through map

TIMESTAMP_TYPES: Mapping[int, TimestampType] = {
    TIMESTAMP_CREATE_TIME: TimestampType.CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Consecutive messages of one topic with one kind of timestamps; at least one, none with an error."""

    topic: str
    partitions: pa.Int32Array
    offsets: pa.Int64Array
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[RawHeaders | None] | None  # None: no message has any
    timestamps: pa.Int64Array
    timestamp_type: TimestampType
    starts: Mapping[int, int]  # per partition the offset of its first message
    ends: Mapping[int, int]  # and the one behind its last message

    def __len__(self) -> int:
        return len(self.offsets)

    def origin(self, row: int) -> RecordOrigin:
        """Where one message is from, and its bytes."""
        return RecordOrigin(
            self.topic, self.partitions[row].as_py(), self.offsets[row].as_py(), self.keys[row], self.values[row],
            () if self.headers is None else self.headers[row] or (),
        )  # fmt: skip

    def origins(self) -> list[RecordOrigin]:
        """The origin of each message."""
        headers = [()] * len(self) if self.headers is None else [h or () for h in self.headers]
        fields = self.partitions.to_pylist(), self.offsets.to_pylist(), self.keys, self.values, headers
        return [RecordOrigin(self.topic, *row) for row in zip(*fields, strict=True)]

    def first(self) -> tuple[TopicPartition, int]:
        """The place of the first message."""
        return TopicPartition(self.topic, self.partitions[0].as_py()), self.offsets[0].as_py()

    def consumed(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, once these messages are worked off."""
        return {TopicPartition(self.topic, partition): end for partition, end in self.ends.items()}

    def only(self, wanted: Callable[[TopicPartition], bool]) -> MessageRun | None:
        """Leave out the messages of partitions that are not wanted; None: nothing is left."""
        kept = {p for p in self.ends if wanted(TopicPartition(self.topic, p))}
        if len(kept) == len(self.ends):
            return self
        if not kept:
            return None
        return self._of([row for row, partition in enumerate(self.partitions.to_pylist()) if partition in kept])

    def since(self, positions: Mapping[TopicPartition, int]) -> MessageRun | None:
        """Leave out messages below the next offset of their partition; None: nothing is left."""
        low = {p: positions.get(TopicPartition(self.topic, p), start) for p, start in self.starts.items()}
        if all(low[p] <= start for p, start in self.starts.items()):
            return self
        places = enumerate(zip(self.partitions.to_pylist(), self.offsets.to_pylist(), strict=True))
        rows = [row for row, (partition, offset) in places if offset >= low[partition]]
        return self._of(rows) if rows else None

    def _of(self, rows: Sequence[int]) -> MessageRun:
        partitions, offsets = self.partitions.take(rows), self.offsets.take(rows)
        return MessageRun(
            self.topic, partitions, offsets,
            [self.keys[row] for row in rows], [self.values[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            self.timestamps.take(rows), self.timestamp_type, *_bounds(partitions.to_pylist(), offsets.to_pylist()),
        )  # fmt: skip


def message_runs(messages: Sequence[Consumed]) -> list[MessageRun]:
    """Cut messages where the topic or the kind of timestamp changes; accessors are called without a Python loop."""
    if not messages:
        return []
    topics: list[Any] = list(map(Message.topic, messages))
    stamps: list[Any] = list(map(Message.timestamp, messages))
    kinds, times = zip(*stamps, strict=True)
    if topics.count(topics[0]) == len(topics) and kinds.count(kinds[0]) == len(kinds):
        return [_run(topics[0], kinds[0], messages, times)]
    runs = []
    start = 0
    for (topic, kind), rows in groupby(zip(topics, kinds, strict=True)):
        stop = start + sum(1 for _ in rows)
        runs.append(_run(topic, kind, messages[start:stop], times[start:stop]))
        start = stop
    return runs


def _run(topic: str, kind: int, messages: Sequence[Consumed], times: Sequence[int]) -> MessageRun:
    headers: list[Any] = list(map(Message.headers, messages))
    partitions: list[Any] = list(map(Message.partition, messages))
    offsets: list[Any] = list(map(Message.offset, messages))
    timestamp_type = TIMESTAMP_TYPES.get(kind)
    return MessageRun(
        topic,
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        None if headers.count(None) == len(headers) else headers,
        pa.nulls(len(messages), pa.int64()) if timestamp_type is None else pa.array(times, pa.int64()),
        timestamp_type or TimestampType.NO_TIMESTAMP_TYPE,
        *_bounds(partitions, offsets),
    )


def _bounds(partitions: Sequence[int], offsets: Sequence[int]) -> tuple[Mapping[int, int], Mapping[int, int]]:
    starts = dict(zip(reversed(partitions), reversed(offsets), strict=True))
    lasts = dict(zip(partitions, offsets, strict=True))
    return starts, {partition: last + 1 for partition, last in lasts.items()}
