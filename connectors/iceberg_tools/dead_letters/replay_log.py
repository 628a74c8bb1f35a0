"""`ReplayLog`: the topic from which a connector tries dead letters again, which is also the record
of what was tried.

A letter is written at most once for each attempt, whatever dies when:

    1 take the transactional id: an earlier writer is fenced, what it left open is gone
    2 read the topic to its end: what stands there was replayed                  (nothing was changed so far)
    3 write the letters that are missing, in one transaction                    -> invisible
    4 commit                                                                   -> visible, all of them

Who dies before 4 leaves nothing that the connector sees, and the next replay writes the same
letters; who dies after it leaves everything, and the next replay finds it in step 2. The connector
applies what it reads exactly once, because the topic is one of its own: its tables' ledgers cover
it.
"""  # noqa: E501 - a table or a literal is wider

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.api.dead_letter import Replay
from connect_py.api.errors import ConnectError
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg_tools.client_error_log import TO_THE_END, ClientErrorLog, consumer_of
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord

SECONDS = 30.0  # for each answer of the cluster
KEPT_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class ReplayLog:
    """One writer at a time; used on one thread.

    Raises, from every method: ConnectError: The cluster does not answer or refuses, or another
        command replays at this moment.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, connector: str) -> None:
        """`settings` are the client library's, with `bootstrap.servers`."""
        self._news = ClientErrorLog()
        self._settings = self._news.quiet(settings)
        self._topic = topic
        self._producer: Producer | None = None
        # by us, just now: a broker that does not know the topic yet is not wrong
        self._made = False
        self._id = f"connect-{connector}-dlq-replay"

    def open(self) -> Self:
        """Make the topic if it is missing, and be the one who writes it (step 1)."""
        admin = AdminClient(self._settings)  # its answers die with it
        topic = NewTopic(self._topic, 1, config=KEPT_FOR_EVER)
        future = admin.create_topics([topic], request_timeout=SECONDS)[self._topic]
        try:
            future.result(SECONDS + 1)
            self._made = True
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                reason = self._news.of(error, admin)
                raise ConnectError(f"topic {self._topic} cannot be created: {reason}") from error
        self._producer = Producer(self._settings | {"transactional.id": self._id, "linger.ms": 5})
        try:
            self._producer.init_transactions(SECONDS)
        except KafkaException as error:
            reason = self._news.of(error, self._producer)
            raise ConnectError(f"topic {self._topic} cannot be written: {reason}") from error
        return self

    def written(self) -> set[Replay]:
        """Everything that was replayed so far (step 2). Without `open` a look, which disturbs no
        replay."""
        own = {**TO_THE_END, "group.id": self._id}
        with consumer_of(
            {**self._settings, **own}, f"topic {self._topic} cannot be read"
        ) as consumer:
            return self._read(consumer)

    def _read(self, consumer: Consumer) -> set[Replay]:
        topic = consumer.list_topics(self._topic, SECONDS).topics[self._topic]
        if topic.error is not None:
            missing = topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if missing and (self._producer is None or self._made):
                return set()
            raise KafkaException(topic.error)
        partitions = list(topic.partitions)
        for partition in partitions:
            start, _ = consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), SECONDS
            )
            if start > 0:
                raise ConnectError(
                    f"topic {self._topic} has lost its first {start} records, so it is not known "
                    f"what was replayed; "
                    "keep it for ever (retention.ms=-1), and give the connector a new one"
                )
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in partitions])
        found: set[Replay] = set()
        ended = 0
        while ended < len(partitions):
            first = consumer.poll(SECONDS)  # `consume` would wait for as many as it may return
            if first is None:
                raise ConnectError(
                    f"topic {self._topic} cannot be read to its end within {SECONDS:g} s"
                )
            for message in (first, *consumer.consume(1000, 0.0)):
                error = message.error()
                if error is None:
                    # pairs: the client makes no dictionary of them
                    headers: Any = message.headers() or ()
                    replay = Replay.of(headers)
                    if replay is not None:
                        found.add(replay)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise KafkaException(error)
        return found

    def write(self, dead_letters: Iterable[DeadLetterRecord]) -> int:
        """Replay the letters that were not replayed yet, all of them or none (steps 2 to 4);
        returns how many."""
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
            producer.flush(SECONDS)
            fault_point("before_replay_commit")
            producer.commit_transaction(SECONDS)
            fault_point("after_replay_commit")
        except KafkaException as error:
            raise ConnectError(
                f"it is not known whether {len(dead_letters)} letters were replayed "
                f"({self._news.of(error, producer)}); replay again to find out"
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
