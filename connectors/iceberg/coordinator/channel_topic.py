"""The channel topic, through which tasks and the coordinator communicate.

The topic has one partition and is created if it does not exist. Only the messages with bounds must
be retained (rule 35 of the commit protocol). Tasks write without transactions. The coordinator
writes in transactions with a stable transactional ID, so a new coordinator fences the previous one.
All readers use the isolation level `read_committed`.
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
RETENTION_BYTES = 256 << 20  # low, because every run of a coordinator reads the entire topic
SEGMENT_BYTES = 64 << 20  # low, because retention removes whole segments
REQUEST_SECONDS = 15.0
# maximum time for which the open transaction of a terminated coordinator blocks readers
TRANSACTION_MS = 10_000
MESSAGE_MS = 30_000  # maximum delivery time; tasks repeat their requests much earlier
POLL_MESSAGES = 500
RETRY_SECONDS = 0.2
KEY = b"connect-py"
_NOT_AVAILABLE_YET = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)

ClientConfig = Callable[[ClientKind], dict[str, Any]]


def producer_settings(
    client_config: ClientConfig, timeout_ms: int, **overrides: Any
) -> dict[str, Any]:
    """Return the settings for a producer whose messages expire after `timeout_ms`."""
    settings = client_config("producer")
    settings.pop("delivery.timeout.ms", None)
    return {
        **settings,
        "message.timeout.ms": timeout_ms,
        "enable.idempotence": True,
        "linger.ms": 0,
        **overrides,
    }


class FencedError(ConnectError):
    """Another coordinator has taken over or may have taken over."""


class OvertakenError(FencedError):
    """A newer coordinator has taken over."""


def create_topic(
    client_config: ClientConfig, topic: str, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic with one partition and the default replication, unless it exists.

    Raises:
        RetriableError: The cluster does not respond.
        ConnectError: The cluster rejects the request.
    """
    admin = AdminClient(client_config("admin"))
    try:
        if topic in admin.list_topics(timeout=REQUEST_SECONDS).topics:
            return
        new_topic = NewTopic(topic, num_partitions=1, config=dict(config or {}))
        futures = admin.create_topics([new_topic], operation_timeout=REQUEST_SECONDS)
        futures[topic].result(REQUEST_SECONDS)
        log.info("created topic %s", topic)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        is_temporary = error.args[0].retriable() or code in _UNREACHABLE
        kind = RetriableError if is_temporary else ConnectError
        raise kind(f"cannot create topic {topic}: {error.args[0].str()}") from error


def create_channel(client_config: ClientConfig, topic: str) -> None:
    """Create the channel topic unless it exists. Raises the same errors as `create_topic`."""
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": str(RETENTION_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
    }
    create_topic(client_config, topic, config)


_UNREACHABLE = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
)


class ChannelReader:
    """Reads messages from the channel. Owned by one thread."""

    def __init__(self, client_config: ClientConfig, topic: str) -> None:
        self._topic = topic
        self._at_end = False
        self._consumer = Consumer(
            {
                **client_config("consumer"),
                # required by the client library, but never joined
                "group.id": f"{topic}-reader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",  # if the topic was recreated
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 100,
                "queued.min.messages": 100,
                "enable.partition.eof": True,
            }
        )

    def start_at_end(self) -> None:
        """Read only messages that are written after this call.

        Raises:
            RetriableError: The cluster does not respond.
        """
        self._consumer.assign([TopicPartition(self._topic, PARTITION, self._end())])

    def read_to_end(self) -> Iterator[Message]:
        """Iterate over all messages in the channel, up to its current end.

        The timeout applies only between messages, because there may be many messages.

        Raises:
            RetriableError: The cluster does not respond in time.
        """
        self._consumer.assign([TopicPartition(self._topic, PARTITION, OFFSET_BEGINNING)])
        self._at_end = False
        received_at = time.monotonic()
        while not self._at_end:
            messages = self.poll(0.5)
            if messages:
                received_at = time.monotonic()
                yield from messages
            elif time.monotonic() > received_at + REQUEST_SECONDS:
                raise RetriableError(
                    f"channel topic {self._topic}: no message for {REQUEST_SECONDS} s before its "
                    "end"
                )

    def _end(self) -> int:
        """Return the end offset. Retry while some brokers do not have a new topic yet."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                _, end = self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, PARTITION), REQUEST_SECONDS
                )
            except KafkaException as error:
                if error.args[0].code() not in _NOT_AVAILABLE_YET or time.monotonic() > deadline:
                    raise RetriableError(
                        f"channel topic {self._topic}: {error.args[0].str()}"
                    ) from error
                time.sleep(RETRY_SECONDS)
            else:
                return int(end)

    def poll(self, seconds: float = 0.0) -> list[Message]:
        """Return the messages that arrive within `seconds`. Other records are skipped."""
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
        """Close the consumer."""
        self._consumer.close()


class ChannelWriter:
    """Writes a task's messages without delivery guarantees. Owned by one thread.

    The task repeats requests whose messages are lost.
    """

    def __init__(self, client_config: ClientConfig, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(producer_settings(client_config, MESSAGE_MS))

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages in order, without waiting.

        Raises:
            ConnectError: The client rejects a message, probably because of its size.
        """
        for message in messages:
            for data in encode_all(message):
                try:
                    self._producer.produce(
                        self._topic, data, KEY, PARTITION, on_delivery=_log_failure
                    )
                except BufferError:
                    log.warning(
                        "channel topic %s: the queue is full, dropping a message", self._topic
                    )
                except KafkaException as error:
                    raise ConnectError(
                        f"channel topic {self._topic}: a {type(message).__name__} of {len(data)} "
                        f"bytes cannot be written: {error.args[0].str()}"
                    ) from error
        self._producer.poll(0)

    def poll(self) -> None:
        """Handle delivery reports."""
        self._producer.poll(0)

    def close(self) -> None:
        """Wait briefly for messages in flight."""
        self._producer.flush(2.0)


def _log_failure(error: KafkaError | None, _record: object) -> None:
    if error is not None:
        log.warning("a message to the coordinator was lost: %s", error.str())


class CoordinatorWriter:
    """Writes the coordinator's messages in one transaction per call. Owned by one thread.

    If the outcome of a transaction is unknown, the coordinator's run ends. The next run reads the
    channel again.
    """

    def __init__(self, client_config: ClientConfig, topic: str, transactional_id: str) -> None:
        """Fence all earlier writers with this transactional ID.

        Raises:
            RetriableError: The cluster does not respond.
            FencedError: A newer coordinator has taken over in the meantime.
            ConnectError: The ACLs do not allow the transactional ID.
        """
        self._topic = topic
        self._id = transactional_id
        settings = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_MS}
        self._producer = Producer(producer_settings(client_config, TRANSACTION_MS, **settings))
        self._perform(
            "fencing earlier coordinators",
            lambda: self._producer.init_transactions(REQUEST_SECONDS),
        )

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages in one transaction.

        When the call returns, the messages are visible and precede the start of any newer
        coordinator.

        Raises:
            FencedError: Another coordinator has taken over, or the outcome is unknown.
        """
        self._perform("beginning a transaction", self._producer.begin_transaction)
        for message in messages:
            for data in encode_all(message):
                self._producer.produce(self._topic, data, KEY, PARTITION)
        self._perform(
            "committing a transaction", lambda: self._producer.commit_transaction(REQUEST_SECONDS)
        )

    def _perform(self, description: str, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise ConnectError(
                    f"the ACLs do not allow the transactional ID '{self._id}' (Write and Describe "
                    f"on TransactionalId '{self._id}'), which exactly-once commits require; "
                    "iceberg.coordinator.transactional.prefix adds a prefix to it"
                ) from error
            if description.startswith("fencing") and cause.code() not in _FENCED:
                raise RetriableError(f"{description}: {cause.str()}") from error
            kind = OvertakenError if cause.code() in _FENCED else FencedError
            raise kind(f"{description}: {cause.str()}") from error

    def close(self) -> None:
        """Close the producer. The broker or the next coordinator aborts an open transaction."""
        self._producer.purge()
        self._producer.flush(1.0)


_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
