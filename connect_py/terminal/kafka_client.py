"""`KafkaClient`: topics and records, for commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConnectError

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Message

ANSWER_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as people see it."""

    name: str
    partitions: int
    replicas: int
    # offsets between the ends of its logs; compaction and transactions leave some without a record
    records: int


class KafkaClient:
    """One cluster. Errors are `ConnectError`s in words."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Take client settings in Java's names, `bootstrap.servers` among them."""
        self._settings = settings

    def topics(self, *, internal: bool) -> list[TopicView]:
        """All topics, by name; `internal`: those that begin with `__` as well.

        Raises:
            ConnectError: The cluster does not answer.
        """
        from confluent_kafka import KafkaException

        consumer = self._consumer()
        try:
            listed = consumer.list_topics(timeout=ANSWER_SECONDS).topics
            return [
                TopicView(
                    name,
                    len(found.partitions),
                    max(len(p.replicas) for p in found.partitions.values()),
                    sum(
                        high - low
                        for low, high in self._ranges(consumer, name, found.partitions).values()
                    ),
                )
                for name, found in sorted(listed.items())
                if found.partitions and (internal or not name.startswith("__"))
            ]
        except KafkaException as error:
            raise _in_words(error, self._servers) from error
        finally:
            consumer.close()

    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        """Create a topic.

        Raises:
            ConnectError: The cluster does not answer, or refuses.
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
            raise _in_words(error, self._servers) from error

    def produce(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Write records of key and value; returns how many once the brokers have them.

        Raises:
            ConnectError: The brokers do not have them all.
        """
        from confluent_kafka import KafkaException, Producer

        failures: list[str] = []
        written = 0

        def ended(error: Any, _message: Message) -> None:
            if error is not None:
                failures.append(error.str())

        try:
            producer = Producer(
                {**self._translated("producer"), "message.timeout.ms": int(FLUSH_SECONDS * 1000)}
            )
            for key, value in records:
                while True:
                    try:
                        producer.produce(topic, value, key, on_delivery=ended)
                        break
                    except BufferError:
                        producer.poll(POLL_SECONDS)
                written += 1
            waiting = producer.flush(FLUSH_SECONDS)
        except KafkaException as error:
            raise _in_words(error, self._servers) from error
        if failures or waiting:
            reason = failures[0] if failures else f"no answer in {FLUSH_SECONDS:g} s"
            raise ConnectError(
                f"{len(failures) + waiting} of {written} records were not written: {reason}"
            )
        return written

    def consume(self, topic: str, *, newest: int | None, follow: bool) -> Iterator[Message]:
        """The records of a topic, oldest first within each partition.

        Args: topic: The topic. newest: Only the last so many offsets of each partition. follow: Go
            on with new records. Otherwise the iterator ends with the records that were there.

        Raises:
            ConnectError: There is no such topic, or the cluster does not answer.
        """
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        try:
            found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
            if found.error is not None:
                raise ConnectError(f"topic {topic}: {found.error.str()}")
            ranges = self._ranges(consumer, topic, found.partitions)
            starts = {
                p: low if newest is None else max(low, high - newest)
                for p, (low, high) in ranges.items()
            }
            left = {p for p, (_, high) in ranges.items() if starts[p] < high}
            consumer.assign(
                [TopicPartition(topic, p, starts[p]) for p in (ranges if follow else left)]
            )
            while follow or left:
                message = consumer.poll(POLL_SECONDS)
                if message is not None and message.error() is None:
                    yield message
                elif (
                    message is not None
                    and message.error().retriable() is False
                    and not _is_end(message)
                ):
                    raise ConnectError(f"topic {topic}: {message.error().str()}")
                for place in consumer.position([TopicPartition(topic, p) for p in left]):
                    if place.offset >= ranges[place.partition][1]:
                        left.discard(place.partition)
        except KafkaException as error:
            raise _in_words(error, self._servers) from error
        finally:
            consumer.close()

    # --- clients

    @property
    def _servers(self) -> str:
        return self._settings["bootstrap.servers"]

    def _translated(self, kind: Any) -> dict[str, Any]:
        from connect_py.kafka.client_config import translate

        return {**translate(self._settings, kind), "log_level": 0}

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        own = {
            "group.id": "connect-py",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
        return Consumer({**self._translated("consumer"), **own})

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


def _in_words(error: KafkaException, servers: str) -> ConnectError:
    return ConnectError(f"Kafka at {servers}: {error.args[0].str()}")
