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
    ends: Mapping[int, int]  # per partition the offset behind its last message

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
        rows = [row for row, partition in enumerate(self.partitions.to_pylist()) if partition in kept]
        return MessageRun(
            self.topic, self.partitions.take(rows), self.offsets.take(rows),
            [self.keys[row] for row in rows], [self.values[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            self.timestamps.take(rows), self.timestamp_type, {p: self.ends[p] for p in kept},
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
        {partition: offset + 1 for partition, offset in dict(zip(partitions, offsets, strict=True)).items()},
    )
