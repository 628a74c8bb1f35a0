"""`ClusterAdmin`: cluster requests for tasks, with timeouts and translated errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.clock import SystemClock
from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.group_offset_deletion import delete_group_offsets

REQUEST_SECONDS = 10.0
RETRY_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = REQUEST_SECONDS + 2.0  # the client's own timeout expires earlier
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.GROUP_ID_NOT_FOUND,
    }
)
# If a group has members, altering offsets fails with the second of these errors, and deleting
# individual offsets fails with the third.
_NOT_EMPTY: Final = frozenset(
    {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC}
)
# A broker is taking over a partition or group. The client retries only some requests.
_TEMPORARY: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
_REFUSED: Final = REFUSALS | {KafkaError.UNSUPPORTED_VERSION}
# Errors that would recur if topic creation were retried with the same settings.
_IMPOSSIBLE: Final = frozenset(
    {
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_CONFIG,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_REQUEST,
    }
)

T = TypeVar("T")


class ClusterAdmin:
    """Sends requests to the cluster, each limited to 10 seconds. Thread-safe.

    Unless documented otherwise, RetriableError means that the cluster did not respond, and
    ConnectError means that it denied the request.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Create the object from admin client settings, which use librdkafka's names.

        The connection is opened on the first request.
        """
        # Suppress most log messages, because no thread polls the client between requests. The
        # responses contain the errors.
        self._settings = {"log_level": 2, **settings}
        self._client: AdminClient | None = None

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._settings)  # type: ignore[arg-type] # values are strings, numbers, and booleans
        return self._client

    def _answer(self, future: Future[T], subject: str) -> T:
        try:
            return _answer(future, subject)
        except _TemporaryError:
            raise
        except RetriableError:
            # After a connection failure, a client may wait indefinitely for a group's coordinator.
            # Replace the client.
            self._client = None
            raise

    def cluster_id(self) -> str:
        """Return the ID of the cluster."""
        description = self._answer(
            self._admin().describe_cluster(request_timeout=REQUEST_SECONDS), "cluster ID"
        )
        return str(description.cluster_id)

    def _describe(self, topic: str) -> Any:
        futures = self._admin().describe_topics(
            TopicCollection([topic]), request_timeout=REQUEST_SECONDS
        )
        return self._answer(futures[topic], f"topic {topic!r}")

    def topic_id(self, topic: str) -> str:
        """Return the ID of a topic. Raises NotFoundError if the topic does not exist."""
        return str(self._describe(topic).topic_id)

    def partition_count(self, topic: str) -> int:
        """Return the partition count of a topic. Raises NotFoundError if it does not exist."""
        return len(self._describe(topic).partitions)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(self._partition_counts())

    def _partition_counts(self) -> dict[str, int]:
        try:
            metadata = self._admin().list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException as error:
            raise translated(error, "list of topics") from error
        return {
            name: len(topic.partitions) for name, topic in metadata.items() if topic.error is None
        }

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets with their metadata.

        Partitions without a committed offset are omitted.
        """
        requested = [ClientTopicPartition(tp.topic, tp.partition) for tp in partitions]
        if not requested:
            return {}
        return _with_retries(lambda: self._committed(group, requested))

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's offsets in all existing topics. Empty if the group does not exist."""
        counts = self._partition_counts()
        return self.committed(
            group, (TopicPartition(t, p) for t, count in counts.items() for p in range(count))
        )

    def _committed(
        self, group: str, partitions: list[ClientTopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read committed offsets with a consumer that never joins the group.

        For the same request, librdkafka's admin client crashes the process if the broker responds
        that it is no longer the group's coordinator (seen in 2.16.0: NULL pointer dereference in
        `rd_kafka_cgrp_op`).
        """
        group_settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
        try:
            consumer = Consumer({**self._settings, **group_settings})
            try:
                committed = consumer.committed(partitions, timeout=REQUEST_SECONDS)
            finally:
                consumer.close()
        except KafkaException as error:
            raise translated(error, f"offsets of group {group!r}") from error
        for p in committed:
            if p.error is not None:
                raise translated(
                    KafkaException(p.error), f"offset of {p.topic}-{p.partition} in group {group!r}"
                )
        return {
            TopicPartition(p.topic, p.partition): OffsetAndMetadata(p.offset, p.metadata or "")
            for p in committed
            if p.offset >= 0
        }

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set a group's offsets in one request. Raises GroupNotEmptyError if it has members."""
        requested = [
            ClientTopicPartition(tp.topic, tp.partition, at.offset, at.metadata)
            for tp, at in offsets.items()
        ]
        if not requested:
            return
        _with_retries(lambda: self._alter_offsets(ConsumerGroupTopicPartitions(group, requested)))

    def _alter_offsets(self, request: ConsumerGroupTopicPartitions) -> None:
        group = request.group_id
        futures = self._admin().alter_consumer_group_offsets(
            [request], request_timeout=REQUEST_SECONDS
        )
        result = self._answer(futures[group], f"offsets of group {group!r}")
        for p in result.topic_partitions:
            if p.error is not None:
                raise translated(
                    KafkaException(p.error), f"offset of {p.topic}-{p.partition} in group {group!r}"
                )

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's offsets in one request.

        Raises:
            GroupNotEmptyError: The group has members.
            NotFoundError: The group, topic, or partition does not exist.
        """
        requested = list(partitions)
        if requested:
            _with_retries(lambda: self._delete_offsets(group, requested))

    def _delete_offsets(self, group: str, partitions: list[TopicPartition]) -> None:
        try:
            delete_group_offsets(self._settings, group, partitions, REQUEST_SECONDS)
        except KafkaException as error:
            raise translated(error, f"offsets of group {group!r}") from error

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets if the group exists.

        Raises GroupNotEmptyError if the group has members.
        """
        try:
            _with_retries(lambda: self._delete_group(group))
        except NotFoundError:
            return

    def _delete_group(self, group: str) -> None:
        future = self._admin().delete_consumer_groups([group], request_timeout=REQUEST_SECONDS)[
            group
        ]
        self._answer(future, f"group {group!r}")

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the start offset and the end offset of each partition's log.

        Raises NotFoundError if a partition does not exist.

        Args:
            partitions: Partitions whose offsets are returned.
            committed: Return the last stable offset as the end offset. It precedes the records of
                open transactions.
        """
        requested = list(partitions)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        first = _with_retries(lambda: self._offsets(requested, OffsetSpec.earliest(), level))  # type: ignore[no-untyped-call] # untyped in the library
        end = _with_retries(lambda: self._offsets(requested, OffsetSpec.latest(), level))  # type: ignore[no-untyped-call] # untyped in the library
        return {tp: (first[tp], end[tp]) for tp in requested}

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return each partition's first offset whose record has this timestamp or a later one.

        If no record in a partition matches, return the partition's end offset as of the start of
        the search. In that case, matching records that are written during the search are ignored.
        Raises the same errors as `log_range`.
        """
        ends = {tp: end for tp, (_, end) in self.log_range(partitions).items()}
        spec, level = OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED
        offsets = _with_retries(lambda: self._offsets(ends, spec, level))
        return {tp: offsets[tp] if offsets[tp] >= 0 else end for tp, end in ends.items()}

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        requests = {ClientTopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        if not requests:
            return {}
        futures = self._admin().list_offsets(
            requests, isolation_level=level, request_timeout=REQUEST_SECONDS
        )
        return {
            TopicPartition(p.topic, p.partition): int(
                self._answer(future, f"log of {p.topic}-{p.partition}").offset
            )
            for p, future in futures.items()
        }

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        settings: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic and return True, or return False if it already exists.

        -1 for `partitions` or `replication_factor` selects the broker's default. `settings` are
        topic configs.
        """
        config = dict(settings or {})
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=replication_factor, config=config
        )
        future = self._admin().create_topics([new], request_timeout=REQUEST_SECONDS)[topic]
        try:
            self._answer(future, f"new topic {topic!r}")
        except _ExistsError:
            return False
        return True


class GroupNotEmptyError(ConnectError):
    """A consumer group's offsets cannot be changed because the group has members."""


class _TemporaryError(RetriableError):
    """A temporary error. The same request is expected to succeed soon."""


class _ExistsError(ConnectError):
    """The topic to be created already exists."""


def _with_retries(send: Callable[[], T]) -> T:
    """Retry a request on temporary errors, for example while another broker is taking over."""
    clock = SystemClock()
    deadline = clock.monotonic() + REQUEST_SECONDS
    while True:
        try:
            return send()
        except _TemporaryError:
            if clock.monotonic() >= deadline:
                raise
        clock.sleep(RETRY_SECONDS)


def _answer(future: Future[T], subject: str) -> T:
    try:
        return future.result(_ANSWER_SECONDS)
    except FutureTimeoutError as error:
        raise RetriableError(
            f"the Kafka cluster did not respond within {_ANSWER_SECONDS:.0f} s: {subject}"
        ) from error
    except KafkaException as error:
        raise translated(error, subject) from error


def translated(error: KafkaException, about: str) -> ConnectError:
    """Translate a client library error to NotFoundError, ConnectError, or RetriableError."""
    kafka_error: KafkaError = error.args[0]
    code = kafka_error.code()
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return _ExistsError(about)
    message = f"{about}: {kafka_error.str()}"
    if code in _TEMPORARY:
        return _TemporaryError(message)
    if code in _NOT_EMPTY:
        return GroupNotEmptyError(message)
    if code in _MISSING:
        return NotFoundError(message)
    if code in _REFUSED or code in _IMPOSSIBLE:
        return ConnectError(message)
    return RetriableError(message)
