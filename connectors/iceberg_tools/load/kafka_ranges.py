"""Reads ranges of Kafka topics on Spark executors."""

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

# Columns of Spark's Kafka source, in the order that `MessageRun.of` expects.
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
# Batches have no byte limit because Spark would compute the size of the batch after each row.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
# Spark sets these properties itself and rejects other values.
_SET_BY_SPARK: Final = frozenset(
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
    """Ranges to read, with the consumer settings."""

    properties: Mapping[str, str]  # settings of the Java consumer
    # first offset and exclusive end offset of each range
    ranges: Mapping[TopicPartition, tuple[int, int]]
    batch_rows: int  # maximum number of messages in a batch for an executor

    def options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source."""
        topics = sorted({tp.topic for tp in self.ranges})
        starts: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        ends: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        for tp, (start, end) in self.ranges.items():
            starts[tp.topic][str(tp.partition)], ends[tp.topic][str(tp.partition)] = start, end
        return {
            **{
                f"kafka.{key}": value
                for key, value in self.properties.items()
                if key not in _SET_BY_SPARK
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
    requests: Sequence[KafkaRanges],
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result_type: str,
) -> list[bytes]:
    """Read each range on an executor, apply `work` to it, and return the results in any order.

    Spark creates one partition, with messages in offset order, for each range that is not empty.

    Args:
        session: The Spark driver's session.
        requests: Ranges to read in parallel. A request has at most one range per Kafka partition.
        work: Function to apply to the messages of one range. It must be picklable.
        result_type: Spark type of the results, which have one binary column.
    """
    for key, value in {_BATCH_ROWS: str(requests[0].batch_rows), _BATCH_BYTES: _NO_LIMIT}.items():
        session.spark.conf.set(key, value)
    frames: list[Any] = [
        session.spark.read.format("kafka").options(**each.options()).load() for each in requests
    ]
    messages = reduce(
        lambda one, other: one.union(other), [frame.select(*_COLUMNS) for frame in frames]
    )
    return [bytes(row[0]) for row in messages.mapInArrow(work, result_type).collect()]
