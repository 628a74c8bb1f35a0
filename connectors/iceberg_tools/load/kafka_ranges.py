"""Ranges of Kafka's topics, read by Spark's executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.protocol.positions import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from connectors.iceberg.driver.lake_session import LakeSession

# As `MessageRun.of` takes them.
_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
# Spark weighs a batch with each row that it adds, which takes longer than all the rest, unless
# there is no limit.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
# Spark sets these itself, and refuses to be given them.
_OF_SPARK: Final = frozenset(
    {
        "group.id",
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
        "client.id",
        "max.poll.records",
    }
)


@dataclass(frozen=True, slots=True)
class KafkaRanges:
    """What is read, and how."""

    properties: Mapping[str, str]  # of a consumer, in Java's words
    # the first offset, and the one behind the last
    ranges: Mapping[TopicPartition, tuple[int, int]]
    batch_rows: int  # messages that an executor is handed at once

    def options(self) -> dict[str, str]:
        """The options of Spark's Kafka source."""
        topics = sorted({tp.topic for tp in self.ranges})
        starts: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        ends: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        for tp, (start, end) in self.ranges.items():
            starts[tp.topic][str(tp.partition)], ends[tp.topic][str(tp.partition)] = start, end
        return {
            **{
                f"kafka.{key}": value
                for key, value in self.properties.items()
                if key not in _OF_SPARK
            },
            "assign": json.dumps({topic: sorted(map(int, starts[topic])) for topic in topics}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
        }


def read_ranges(
    session: LakeSession,
    _: str,
    asked: Sequence[KafkaRanges],
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result_type: str,
) -> list[bytes]:
    """Read each range on an executor, and have `work` done with it; what it returns, in any order.

    Spark has a partition for each range that is not empty, with its messages in their order.

    Args:
        asked: What is read, all at once; each has one range of a partition.
        work: Takes the messages of one range. It can be pickled.
        result_type: The type of what it returns, one column of bytes.
    """
    for key, value in {_BATCH_ROWS: str(asked[0].batch_rows), _BATCH_BYTES: _NO_LIMIT}.items():
        session.spark.conf.set(key, value)
    frames: list[Any] = [
        session.spark.read.format("kafka").options(**each.options()).load() for each in asked
    ]
    messages = reduce(
        lambda one, other: one.union(other), [frame.select(*_COLUMNS) for frame in frames]
    )
    return [bytes(row[0]) for row in messages.mapInArrow(work, result_type).collect()]
