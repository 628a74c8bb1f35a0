"""`ReplayLog`: the topic from which a connector replays dead-letter records.

The topic also serves as the list of replayed records. A record is written at most once per attempt,
even if processes are killed:

    1 Initialize the transactional ID. Kafka fences an earlier writer and aborts its transaction.
    2 Read the topic to its end. Its records have been replayed.  -> nothing has changed yet
    3 Write the missing records in one transaction.               -> the records are invisible
    4 Commit the transaction.                                     -> all records are visible

If a process crashes before step 4, the connector reads none of the records, and the next replay
writes them again. If it crashes after step 4, all records are visible, and the next replay reads
them in step 2. The connector applies the records exactly once because it consumes this topic like
its other topics, and its ledgers cover it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.api.dead_letter import Replay
from connect_py.api.errors import ConnectError
from connect_py.plurals import pluralize
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg_tools.client_error_log import TO_THE_END, ClientErrorLog, consumer_of
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord

TIMEOUT_SECONDS = 30.0  # timeout for each request to the cluster
UNLIMITED_RETENTION = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class ReplayLog:
    """Reads and writes a replay topic, which has one writer at a time. Not thread-safe.

    Every method may raise:
        ConnectError: The cluster is not available or rejects the request, or another command is
            replaying records.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, connector: str) -> None:
        """Create a log.

        Args:
            settings: Settings of the Kafka client, including `bootstrap.servers`.
            topic: The replay topic.
            connector: The name of the connector.
        """
        self._errors = ClientErrorLog()
        self._settings = self._errors.quiet(settings)
        self._topic = topic
        self._producer: Producer | None = None
        # whether `open` created the topic, whose metadata a broker may not have yet
        self._topic_created = False
        self._id = f"connect-{connector}-dlq-replay"

    def open(self) -> Self:
        """Create the topic if it does not exist, and fence other writers (step 1)."""
        # the variable is necessary because the futures fail once the client is garbage-collected
        admin = AdminClient(self._settings)
        topic = NewTopic(self._topic, 1, config=UNLIMITED_RETENTION)
        future = admin.create_topics([topic], request_timeout=TIMEOUT_SECONDS)[self._topic]
        try:
            future.result(TIMEOUT_SECONDS + 1)
            self._topic_created = True
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                reason = self._errors.of(error, admin)
                raise ConnectError(f"topic {self._topic} cannot be created: {reason}") from error
        self._producer = Producer(self._settings | {"transactional.id": self._id, "linger.ms": 5})
        try:
            self._producer.init_transactions(TIMEOUT_SECONDS)
        except KafkaException as error:
            reason = self._errors.of(error, self._producer)
            raise ConnectError(f"topic {self._topic} cannot be written: {reason}") from error
        return self

    def written(self) -> set[Replay]:
        """Return all replayed records (step 2).

        If `open` has not been called, other writers are not affected.
        """
        consumer_settings = {**TO_THE_END, "group.id": self._id}
        with consumer_of(
            {**self._settings, **consumer_settings}, f"topic {self._topic} cannot be read"
        ) as consumer:
            return self._read(consumer)

    def _read(self, consumer: Consumer) -> set[Replay]:
        topic = consumer.list_topics(self._topic, TIMEOUT_SECONDS).topics[self._topic]
        if topic.error is not None:
            missing = topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if missing and (self._producer is None or self._topic_created):
                return set()
            raise KafkaException(topic.error)
        partitions = list(topic.partitions)
        for partition in partitions:
            start, _ = consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), TIMEOUT_SECONDS
            )
            if start > 0:
                raise ConnectError(
                    f"topic {self._topic} has lost its records before offset {start}, so it is "
                    "unknown which records were replayed; configure a new replay topic with "
                    "unlimited retention (retention.ms=-1)"
                )
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in partitions])
        replays: set[Replay] = set()
        ended = 0
        while ended < len(partitions):
            # `consume` would wait for the maximum number of messages
            first = consumer.poll(TIMEOUT_SECONDS)
            if first is None:
                raise ConnectError(
                    f"topic {self._topic} cannot be read to its end within {TIMEOUT_SECONDS:g} s"
                )
            for message in (first, *consumer.consume(1000, 0.0)):
                error = message.error()
                if error is None:
                    # a list of name-value pairs
                    headers: Any = message.headers() or ()
                    replay = Replay.of(headers)
                    if replay is not None:
                        replays.add(replay)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise KafkaException(error)
        return replays

    def write(self, dead_letters: Iterable[DeadLetterRecord]) -> int:
        """Replay all or none of the records that have not been replayed yet (steps 2 to 4).

        Return the number of records written.
        """
        written = self.written()
        missing = [
            dead_letter for dead_letter in dead_letters if dead_letter.next_replay() not in written
        ]
        if missing:
            self._commit(missing)
        return len(missing)

    def _commit(self, dead_letters: Sequence[DeadLetterRecord]) -> None:
        producer = self._producer
        assert producer is not None
        try:
            producer.begin_transaction()
            for record in dead_letters:
                self._produce(producer, record)
            producer.flush(TIMEOUT_SECONDS)
            fault_point("before_replay_commit")
            producer.commit_transaction(TIMEOUT_SECONDS)
            fault_point("after_replay_commit")
        except KafkaException as error:
            replayed = pluralize(len(dead_letters), "record was replayed", "records were replayed")
            raise ConnectError(
                f"it is unknown whether {replayed} ({self._errors.of(error, producer)}); "
                "replay again to find out"
            ) from error

    def _produce(self, producer: Producer, record: DeadLetterRecord) -> None:
        headers: list[Any] = [*record.headers, record.next_replay().to_header()]
        while True:
            try:
                producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=headers,
                    timestamp=record.timestamp or 0,
                )
                return
            except BufferError:
                producer.poll(0.1)
