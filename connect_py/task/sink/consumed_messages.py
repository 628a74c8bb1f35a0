"""Conversion of the Kafka client's messages to message runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from connect_py.api.message_run import MessageRun, bounds_of
from connect_py.api.record import TimestampType

# confluent_kafka's Message; its accessors are called through map for speed
Consumed: TypeAlias = Any

TIMESTAMP_TYPES: Mapping[int, TimestampType] = {
    TIMESTAMP_CREATE_TIME: TimestampType.CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}


def message_runs(messages: Sequence[Consumed]) -> list[MessageRun]:
    """Split messages into runs of consecutive messages with the same topic and timestamp type.

    For speed, the messages in a run are not processed one by one in Python.
    """
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
        pa.nulls(len(messages), pa.int64())
        if timestamp_type is None
        else pa.array(times, pa.int64()),
        timestamp_type or TimestampType.NO_TIMESTAMP_TYPE,
        *bounds_of(partitions, offsets),
    )
