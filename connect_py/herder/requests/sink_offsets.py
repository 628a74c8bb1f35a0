"""Parses sink offsets from users.

Topics, partitions, and offsets may be JSON scalars of any type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from connect_py.api.record import TopicPartition
from connect_py.herder.herder import BadRequestError
from connect_py.model import ConnectorOffset

KAFKA_TOPIC: Final = "kafka_topic"
KAFKA_PARTITION: Final = "kafka_partition"
KAFKA_OFFSET: Final = "kafka_offset"
_INTEGER: Final = re.compile(r"[+-]?\d+")


def parse_sink_offsets(offsets: Iterable[ConnectorOffset]) -> dict[TopicPartition, int | None]:
    """Return the next offset to read for each partition, or None to reset the partition.

    If a partition has several entries, the last one is used.

    Raises:
        BadRequestError: An entry is invalid. The message is Kafka Connect's.
    """
    parsed: dict[TopicPartition, int | None] = {}
    for entry in offsets:
        parsed[_partition(entry.partition)] = _offset(entry.offset)
    return parsed


def _partition(partition: Mapping[str, Any] | None) -> TopicPartition:
    if partition is None:
        raise BadRequestError("The partition for a sink connector offset cannot be null or missing")
    if KAFKA_TOPIC not in partition or KAFKA_PARTITION not in partition:
        raise BadRequestError(
            f"The partition for a sink connector offset must contain the keys '{KAFKA_TOPIC}' and "
            f"'{KAFKA_PARTITION}'"
        )
    if partition[KAFKA_TOPIC] is None:
        raise BadRequestError("Kafka topic names must be valid strings and may not be null")
    if partition[KAFKA_PARTITION] is None:
        raise BadRequestError("Kafka partitions must be valid numbers and may not be null")
    number = _whole(partition[KAFKA_PARTITION], bits=32)
    if number is None:
        raise BadRequestError(
            "Failed to parse the following Kafka partition value in the provided offsets: "
            f"'{_java_string(partition[KAFKA_PARTITION])}'. Partition values for sink connectors "
            "need to be integers."
        )
    return TopicPartition(_java_string(partition[KAFKA_TOPIC]), number)


def _offset(offset: Mapping[str, Any] | None) -> int | None:
    if offset is None:
        return None
    if KAFKA_OFFSET not in offset:
        raise BadRequestError(
            f"The offset for a sink connector should either be null or contain the key "
            f"'{KAFKA_OFFSET}'"
        )
    number = _whole(offset[KAFKA_OFFSET], bits=64)
    if number is None:
        raise BadRequestError(
            "Failed to parse the following Kafka offset value in the provided offsets: "
            f"'{_java_string(offset[KAFKA_OFFSET])}'. Offset values for sink connectors need to be "
            f"integers."
        )
    return number


def _whole(value: Any, *, bits: int) -> int | None:
    string = _java_string(value)
    if not _INTEGER.fullmatch(string):
        return None
    number = int(string)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _java_string(value: Any) -> str:
    """Return the string that Java prints for a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_java_string(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_java_string, value)) + "]"
    return str(value)
