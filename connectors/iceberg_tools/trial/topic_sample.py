"""`TopicSample`: reads some records from each partition of a connector's topics.

It does not join a consumer group, and the connector's offsets do not change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connect_py.api.errors import ConnectError
from connect_py.api.message_run import MessageRun
from connectors.iceberg.config.table_config import compile_java_pattern
from connectors.iceberg_tools.client_error_log import TO_THE_END, consumer_of

TIMEOUT_SECONDS: Final = 30.0  # timeout for each request to the cluster
_BATCH: Final = 1000
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Number of records to read, and whether to read the oldest or the newest records."""

    records: int
    newest: bool = False  # read the last records in each partition instead of the first


class TopicSample:
    """Reads sample records from a connector's topics. Call `read` only once."""

    def __init__(
        self, settings: Mapping[str, str], connector: Mapping[str, str], request: SampleRequest
    ) -> None:
        """Create a sample.

        Args:
            settings: Settings of the Kafka client.
            connector: The connector's configuration with `topics` or `topics.regex`.
            request: Which records to read.
        """
        self._settings = {**settings, **TO_THE_END, "group.id": "connect-py-try"}
        self._connector = connector
        self._request = request
        self.topics: list[str] = []  # set by `read`
        self.records = 0  # number of records read so far
        self._sizes: dict[str, list[int]] = {}  # number of messages and total bytes by topic

    def read(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[MessageRun]:
        """Yield the records in batches. Each batch is from one topic.

        Partitions are read one after another, and repeated runs return the records in the same
        order. The order matters because the first value of a field determines its column type.

        Raises:
            ConnectError: The topic does not exist, or the cluster does not respond.
        """
        with consumer_of(self._settings, "the topics cannot be read") as consumer:
            for partition, (start, end) in self._ranges(consumer).items():
                consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
                remaining, is_at_end = end - start, False
                while remaining and not is_at_end:
                    messages, is_at_end = self._next(consumer, remaining)
                    if not messages:
                        continue
                    remaining -= len(messages)
                    self.records += len(messages)
                    self._measure(messages)
                    progress(self.records)
                    yield from MessageRun.of(
                        pa.RecordBatch.from_pylist(list(map(_row, messages)), schema=_SCHEMA)
                    )

    def _measure(self, messages: Sequence[Message]) -> None:
        for message in messages:
            size = self._sizes.setdefault(str(message.topic()), [0, 0])
            size[0] += 1
            size[1] += len(message.key() or b"") + len(message.value() or b"")

    @property
    def message_bytes(self) -> dict[str, float]:
        """Return the average message size by topic, in bytes without headers."""
        return {topic: size / count for topic, (count, size) in self._sizes.items()}

    def _ranges(self, consumer: Consumer) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offset range to read from each partition, in shares of similar size."""
        existing: dict[TopicPartition, tuple[int, int]] = {}
        for partition in self._partitions(consumer):
            low, high = consumer.get_watermark_offsets(partition, TIMEOUT_SECONDS)
            if high > low:
                existing[partition] = low, high
        shares = _shares([high - low for low, high in existing.values()], self._request.records)
        newest = self._request.newest
        return {
            tp: (high - share, high) if newest else (low, low + share)
            for (tp, (low, high)), share in zip(existing.items(), shares, strict=True)
            if share
        }

    def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        names = [
            each.strip() for each in self._connector.get("topics", "").split(",") if each.strip()
        ]
        topics = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        if not names:
            pattern = compile_java_pattern(self._connector.get("topics.regex", ""))
            names = sorted(
                name for name in topics if pattern.fullmatch(name) and not name.startswith("__")
            )
        self.topics = [name for name in names if name in topics and topics[name].error is None]
        if not self.topics:
            missing = ", ".join(names) or self._connector.get("topics.regex", "")
            raise ConnectError(f"topic {missing or 'in topics or topics.regex'} does not exist")
        return [
            TopicPartition(name, number)
            for name in self.topics
            for number in sorted(topics[name].partitions)
        ]

    def _next(self, consumer: Consumer, limit: int) -> tuple[list[Message], bool]:
        """Return up to `limit` messages from the assigned partition, and True at its end.

        A partition may end before `limit` messages, because transactions and compaction leave gaps
        in its offsets. The Kafka client reports the end only once.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            events = consumer.consume(min(_BATCH, limit), 1.0)
            for event in events:
                error = event.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
            if events:
                messages = [event for event in events if event.error() is None]
                return messages, len(messages) < len(events)
        raise ConnectError(f"timed out after {TIMEOUT_SECONDS:.0f} s while reading the records")


def _shares(counts: Sequence[int], total: int) -> list[int]:
    """Divide the total among the partitions as evenly as their record counts allow."""
    shares, remaining = [0] * len(counts), total
    while remaining > 0 and (open_ := [i for i, count in enumerate(counts) if shares[i] < count]):
        each = max(remaining // len(open_), 1)
        for i in open_:
            more = min(each, counts[i] - shares[i], remaining)
            shares[i] += more
            remaining -= more
    return shares


def _row(message: Message) -> dict[str, Any]:
    kind, moment = message.timestamp()
    headers: Any = message.headers()
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": moment,
        "timestampType": kind - 1,  # Spark numbers the types from 0
        "headers": headers and [{"key": name, "value": value} for name, value in headers],
    }
