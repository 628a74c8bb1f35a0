"""Records of a connector's topics, a few of each partition, read without a group: nothing of the
connector is moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connect_py.api.errors import ConnectError
from connect_py.api.message_run import MessageRun
from connectors.iceberg.config.java_pattern import compile_java_pattern
from connectors.iceberg_tools.client_error_log import TO_THE_END, consumer_of

SECONDS: Final = 30.0  # for each answer of the cluster
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
    """How many records, and from which end."""

    records: int
    newest: bool = False  # the last ones of each partition, and not the first


class TopicSample:
    """Reads a sample. `read` may be called once."""

    def __init__(
        self, settings: Mapping[str, str], connector: Mapping[str, str], request: SampleRequest
    ) -> None:
        """`settings`: of the Kafka client. `connector`: its configuration, for `topics` or
        `topics.regex`."""
        self._settings = {**settings, **TO_THE_END, "group.id": "connect-py-try"}
        self._connector = connector
        self._request = request
        self.topics: list[str] = []  # once `read` has begun
        self.records = 0  # read so far
        self._sizes: dict[str, list[int]] = {}  # by topic: messages and bytes

    def read(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[MessageRun]:
        """Yield the records in batches of one topic.

        Partitions are read one after another, in order, so that repeated calls return the same
        records in the same order: the first value of a field decides the type of its column.

        Raises:
            ConnectError: There is no such topic, or the cluster does not answer.
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
        """Of a message of each topic, on average, without headers."""
        return {topic: size / count for topic, (count, size) in self._sizes.items()}

    def _ranges(self, consumer: Consumer) -> dict[TopicPartition, tuple[int, int]]:
        """By partition the offsets to read: those that are there, in equal shares."""
        there: dict[TopicPartition, tuple[int, int]] = {}
        for partition in self._partitions(consumer):
            low, high = consumer.get_watermark_offsets(partition, SECONDS)
            if high > low:
                there[partition] = low, high
        shares = _shares([high - low for low, high in there.values()], self._request.records)
        newest = self._request.newest
        return {
            tp: (high - share, high) if newest else (low, low + share)
            for (tp, (low, high)), share in zip(there.items(), shares, strict=True)
            if share
        }

    def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        named = [
            each.strip() for each in self._connector.get("topics", "").split(",") if each.strip()
        ]
        known = consumer.list_topics(timeout=SECONDS).topics
        if not named:
            pattern = compile_java_pattern(self._connector.get("topics.regex", ""))
            named = sorted(
                name for name in known if pattern.fullmatch(name) and not name.startswith("__")
            )
        self.topics = [name for name in named if name in known and known[name].error is None]
        if not self.topics:
            missing = ", ".join(named) or self._connector.get("topics.regex", "")
            raise ConnectError(f"there is no topic {missing or 'named by topics or topics.regex'}")
        return [
            TopicPartition(name, number)
            for name in self.topics
            for number in sorted(known[name].partitions)
        ]

    def _next(self, consumer: Consumer, limit: int) -> tuple[list[Message], bool]:
        """Return the next messages of the assigned partition, at most `limit`, and if it ended.

        A partition may end before `limit` messages, because transactions and compaction leave gaps
        in its offsets. Kafka's client reports the end once.
        """
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            events = consumer.consume(min(_BATCH, limit), 1.0)
            for event in events:
                error = event.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
            if events:
                messages = [event for event in events if event.error() is None]
                return messages, len(messages) < len(events)
        raise ConnectError(f"no record within {SECONDS:.0f} s, although there are some")


def _shares(counts: Sequence[int], total: int) -> list[int]:
    """Of each partition's records so many that the total is reached, as equal as possible."""
    shares, left = [0] * len(counts), total
    while left > 0 and (open_ := [i for i, count in enumerate(counts) if shares[i] < count]):
        each = max(left // len(open_), 1)
        for i in open_:
            more = min(each, counts[i] - shares[i], left)
            shares[i] += more
            left -= more
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
        "timestampType": kind - 1,  # Spark counts from 0
        "headers": headers and [{"key": name, "value": value} for name, value in headers],
    }
