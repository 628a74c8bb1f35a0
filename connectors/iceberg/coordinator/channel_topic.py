"""The channel topic: how tasks and the coordinator talk. Of what it stores, bounds alone must
survive (rule 35).

One partition, made if missing. Tasks write plainly; the coordinator writes in transactions under a
stable id, so that a new coordinator fences the old one. Everybody reads committed records only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connect_py.api.cluster import ClientKind
from connect_py.api.errors import ConnectError, RetriableError
from connectors.iceberg.protocol.messages import Message, decode, encode_all

log = logging.getLogger(__name__)

PARTITION = 0
RETENTION_MS = 24 * 3600 * 1000
RETENTION_BYTES = 256 << 20  # a coordinator reads all that is there when its life begins
SEGMENT_BYTES = 64 << 20  # retention removes whole segments
REQUEST_SECONDS = 15.0
# an open transaction of a dead coordinator blocks readers this long at worst
TRANSACTION_MS = 10_000
MESSAGE_MS = 30_000  # a task asks again long before
POLL_MESSAGES = 500
LOOK_AGAIN_SECONDS = 0.2
KEY = b"connect-py"
_NOT_KNOWN_YET = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)

ClientConfig = Callable[[ClientKind], dict[str, Any]]


def producer_settings(client_config: ClientConfig, timeout_ms: int, **own: Any) -> dict[str, Any]:
    """Settings of a producer of the sink's own: messages are given up after `timeout_ms`, where
    Connect never would."""
    settings = client_config("producer")
    settings.pop("delivery.timeout.ms", None)
    return {
        **settings,
        "message.timeout.ms": timeout_ms,
        "enable.idempotence": True,
        "linger.ms": 0,
        **own,
    }


class FencedError(ConnectError):
    """Another coordinator has taken over, or it is no longer certain that none has."""


class OvertakenError(FencedError):
    """A newer coordinator leads."""


def create_topic(
    client_config: ClientConfig, topic: str, config: Mapping[str, str] | None = None
) -> None:
    """Make a topic of one partition unless it exists, replicated as the broker does by default.

    Raises:
        RetriableError: The cluster does not answer.
        ConnectError: It refuses.
    """
    admin = AdminClient(client_config("admin"))
    try:
        if topic in admin.list_topics(timeout=REQUEST_SECONDS).topics:
            return
        wanted = NewTopic(topic, num_partitions=1, config=dict(config or {}))
        admin.create_topics([wanted], operation_timeout=REQUEST_SECONDS)[topic].result(
            REQUEST_SECONDS
        )
        log.info("created topic %s", topic)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        kind = RetriableError if error.args[0].retriable() or code in _AWAY else ConnectError
        raise kind(f"cannot create topic {topic}: {error.args[0].str()}") from error


def create_channel(client_config: ClientConfig, topic: str) -> None:
    """Make the channel topic unless it exists; errors as for `create_topic`."""
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": str(RETENTION_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
    }
    create_topic(client_config, topic, config)


_AWAY = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})


class ChannelReader:
    """Reads the channel from a position on. Owned by one thread."""

    def __init__(self, client_config: ClientConfig, topic: str) -> None:
        self._topic = topic
        self._at_end = False
        self._consumer = Consumer(
            {
                **client_config("consumer"),
                # required by the client; never joined, never committed
                "group.id": f"{topic}-reader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",  # of a topic that was made again
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 100,
                "queued.min.messages": 100,
                "enable.partition.eof": True,
            }
        )

    def start_at_end(self) -> None:
        """Read what is written from now on.

        Raises:
            RetriableError: The cluster does not answer.
        """
        self._consumer.assign([TopicPartition(self._topic, PARTITION, self._end())])

    def read_to_end(self) -> Iterator[Message]:
        """Read everything that is there, from the beginning, and stay at its end.

        A day of short cycles is a lot: messages are handed out as they come, and nothing limits the
        time but silence.

        Raises:
            RetriableError: The cluster does not answer in time.
        """
        self._consumer.assign([TopicPartition(self._topic, PARTITION, OFFSET_BEGINNING)])
        self._at_end = False
        heard = time.monotonic()
        while not self._at_end:
            messages = self.poll(0.5)
            if messages:
                heard = time.monotonic()
                yield from messages
            elif time.monotonic() > heard + REQUEST_SECONDS:
                raise RetriableError(
                    f"channel topic {self._topic}: nothing for {REQUEST_SECONDS} s, and no end"
                )

    def _end(self) -> int:
        """The end of the topic. It may have been made a moment ago, and not be known to every
        broker yet."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                _, end = self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, PARTITION), REQUEST_SECONDS
                )
            except KafkaException as error:
                if error.args[0].code() not in _NOT_KNOWN_YET or time.monotonic() > deadline:
                    raise RetriableError(
                        f"channel topic {self._topic}: {error.args[0].str()}"
                    ) from error
                time.sleep(LOOK_AGAIN_SECONDS)
            else:
                return int(end)

    def poll(self, seconds: float = 0.0) -> list[Message]:
        """Return what has arrived, waiting a while when nothing has. Foreign records are
        skipped."""
        polled = self._consumer.consume(1, seconds)
        if polled:
            polled += self._consumer.consume(POLL_MESSAGES, 0)
        messages = []
        for record in polled:
            error = record.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._at_end = True
                else:
                    log.warning("channel topic %s: %s", self._topic, error.str())
                continue
            message = decode(record.value())
            if message is not None:
                messages.append(message)
        return messages

    def close(self) -> None:
        self._consumer.close()


class ChannelWriter:
    """A task's side: messages may be lost, and are then asked for again. Owned by one thread."""

    def __init__(self, client_config: ClientConfig, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(producer_settings(client_config, MESSAGE_MS))

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages in order, soon; does not wait.

        Raises:
            ConnectError: The client takes a message never, most likely for its size.
        """
        for message in messages:
            for data in encode_all(message):
                try:
                    self._producer.produce(
                        self._topic, data, KEY, PARTITION, on_delivery=_log_failure
                    )
                except BufferError:
                    log.warning(
                        "channel topic %s: the queue is full, a message is dropped", self._topic
                    )
                except KafkaException as error:
                    raise ConnectError(
                        f"channel topic {self._topic}: a {type(message).__name__} of {len(data)} "
                        f"bytes cannot be written: {error.args[0].str()}"
                    ) from error
        self._producer.poll(0)

    def poll(self) -> None:
        """Serve deliveries."""
        self._producer.poll(0)

    def close(self) -> None:
        """Wait a moment for what is on its way."""
        self._producer.flush(2.0)


def _log_failure(error: KafkaError | None, _record: object) -> None:
    if error is not None:
        log.warning("a message to the coordinator was lost: %s", error.str())


class CoordinatorWriter:
    """The coordinator's side: one transaction per call, under a stable id. Owned by one thread.

    A transaction whose outcome is unknown ends this coordinator's life: only a new one, which reads
    everything again, may go on.
    """

    def __init__(self, client_config: ClientConfig, topic: str, transactional_id: str) -> None:
        """Fence every earlier writer of this id.

        Raises:
            RetriableError: The cluster does not answer.
            FencedError: A newer coordinator came in between.
            ConnectError: The cluster does not grant the id.
        """
        self._topic = topic
        self._id = transactional_id
        own = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_MS}
        self._producer = Producer(producer_settings(client_config, TRANSACTION_MS, **own))
        self._during(
            "fencing earlier coordinators",
            lambda: self._producer.init_transactions(REQUEST_SECONDS),
        )

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages in one transaction; when this returns they are visible and no newer
        coordinator has begun.

        Raises:
            FencedError: Another coordinator has taken over, or the outcome is unknown.
        """
        self._during("beginning a transaction", self._producer.begin_transaction)
        for message in messages:
            for data in encode_all(message):
                self._producer.produce(self._topic, data, KEY, PARTITION)
        self._during(
            "committing a transaction", lambda: self._producer.commit_transaction(REQUEST_SECONDS)
        )

    def _during(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise ConnectError(
                    f"transactional id '{self._id}' is not granted (ACL: Write and Describe on "
                    f"TransactionalId '{self._id}'). The coordinator needs it for exactly-once "
                    "commits; iceberg.coordinator.transactional.prefix puts a prefix before it"
                ) from error
            if what.startswith("fencing") and cause.code() not in _FENCED:
                raise RetriableError(f"{what}: {cause.str()}") from error
            ended = OvertakenError if cause.code() in _FENCED else FencedError
            raise ended(f"{what}: {cause.str()}") from error

    def close(self) -> None:
        """Let go; an unfinished transaction is aborted by the broker or by the next coordinator."""
        self._producer.purge()
        self._producer.flush(1.0)


_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
