"""`KafkaClient`: Kafka client for commands that read and write topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConnectError
from connect_py.plurals import pluralize

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Message

ANSWER_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class TopicView:
    """Name and size of a topic."""

    name: str
    partitions: int
    replicas: int
    # number of offsets in the logs; compaction and transactions leave offsets without a record
    records: int


class KafkaClient:
    """Client for one cluster. Kafka errors are raised as ConnectError with a readable message."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Create a client from settings that use the Java client's names.

        They must include `bootstrap.servers`.
        """
        self._settings = settings

    def topics(self, *, internal: bool) -> list[TopicView]:
        """Return all topics, sorted by name.

        Topics whose names begin with `__` are included only if `internal` is true.

        Raises:
            ConnectError: The cluster does not respond.
        """
        from confluent_kafka import KafkaException

        consumer = self._consumer()
        try:
            cluster_topics = consumer.list_topics(timeout=ANSWER_SECONDS).topics
            return [
                TopicView(
                    name,
                    len(topic.partitions),
                    max(len(p.replicas) for p in topic.partitions.values()),
                    sum(
                        high - low
                        for low, high in self._ranges(consumer, name, topic.partitions).values()
                    ),
                )
                for name, topic in sorted(cluster_topics.items())
                if topic.partitions and (internal or not name.startswith("__"))
            ]
        except KafkaException as error:
            raise _connect_error(error, self._servers) from error
        finally:
            consumer.close()

    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        """Create a topic.

        Raises:
            ConnectError: The cluster does not respond or rejects the request.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        new = NewTopic(name, partitions, replicas)
        try:
            admin = AdminClient(self._translated("admin"))
            admin.create_topics([new], request_timeout=ANSWER_SECONDS)[name].result(
                ANSWER_SECONDS + 1
            )
        except KafkaException as error:
            raise _connect_error(error, self._servers) from error

    def produce(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Write records, wait until all of them are acknowledged, and return the record count.

        Raises:
            ConnectError: The brokers did not acknowledge all records.
        """
        from confluent_kafka import KafkaException, Producer

        failures: list[str] = []
        count = 0

        def on_delivery(error: Any, _message: Message) -> None:
            if error is not None:
                failures.append(error.str())

        try:
            producer = Producer(
                {**self._translated("producer"), "message.timeout.ms": int(FLUSH_SECONDS * 1000)}
            )
            for key, value in records:
                while True:
                    try:
                        producer.produce(topic, value, key, on_delivery=on_delivery)
                        break
                    except BufferError:
                        producer.poll(POLL_SECONDS)
                count += 1
            unsent = producer.flush(FLUSH_SECONDS)
        except KafkaException as error:
            raise _connect_error(error, self._servers) from error
        if failures or unsent:
            reason = failures[0] if failures else f"no acknowledgment within {FLUSH_SECONDS:g} s"
            unwritten = f"{len(failures) + unsent} of {pluralize(count, 'record')}"
            raise ConnectError(f"failed to write {unwritten}: {reason}")
        return count

    def consume(self, topic: str, *, newest: int | None, follow: bool) -> Iterator[Message]:
        """Yield the records of a topic, in offset order within each partition.

        Args:
            topic: Name of the topic.
            newest: Read only this many offsets at the end of each partition. None reads all.
            follow: Continue with new records. Otherwise, the iterator ends after the records that
                existed at the time of the call.

        Raises:
            ConnectError: The topic does not exist, or the cluster does not respond.
        """
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        try:
            metadata = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
            if metadata.error is not None:
                raise ConnectError(f"topic {topic}: {metadata.error.str()}")
            ranges = self._ranges(consumer, topic, metadata.partitions)
            starts = {
                p: low if newest is None else max(low, high - newest)
                for p, (low, high) in ranges.items()
            }
            unfinished = {p for p, (_, high) in ranges.items() if starts[p] < high}
            consumer.assign(
                [TopicPartition(topic, p, starts[p]) for p in (ranges if follow else unfinished)]
            )
            while follow or unfinished:
                message = consumer.poll(POLL_SECONDS)
                if message is not None and message.error() is None:
                    yield message
                elif (
                    message is not None
                    and message.error().retriable() is False
                    and not _is_end(message)
                ):
                    raise ConnectError(f"topic {topic}: {message.error().str()}")
                for position in consumer.position([TopicPartition(topic, p) for p in unfinished]):
                    if position.offset >= ranges[position.partition][1]:
                        unfinished.discard(position.partition)
        except KafkaException as error:
            raise _connect_error(error, self._servers) from error
        finally:
            consumer.close()

    # --- Clients

    @property
    def _servers(self) -> str:
        return self._settings["bootstrap.servers"]

    def _translated(self, kind: Any) -> dict[str, Any]:
        from connect_py.kafka.client_config import translate

        return {**translate(self._settings, kind), "log_level": 0}

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        settings = {
            "group.id": "connect-py",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
        return Consumer({**self._translated("consumer"), **settings})

    @staticmethod
    def _ranges(consumer: Any, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        from confluent_kafka import TopicPartition

        return {
            partition: consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ANSWER_SECONDS
            )
            for partition in partitions
        }


def _is_end(message: Message) -> bool:
    from confluent_kafka import KafkaError

    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _connect_error(error: KafkaException, servers: str) -> ConnectError:
    return ConnectError(f"Kafka at {servers}: {error.args[0].str()}")
