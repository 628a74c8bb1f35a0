"""`ClusterAdmin`: what tasks ask the cluster, with deadlines and errors translated once."""

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
AGAIN_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = REQUEST_SECONDS + 2.0  # the client's own time-out comes first
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.GROUP_ID_NOT_FOUND,
    }
)
# An alteration of a live group is refused with the second of these, a deletion of single offsets
# with the third.
_NOT_EMPTY: Final = frozenset(
    {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC}
)
# A broker that is just taking over; the client asks again by itself for some requests only.
_PASSING: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
_REFUSED: Final = REFUSALS | {KafkaError.UNSUPPORTED_VERSION}
# A topic that can never be made like this.
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
    """Questions to the cluster; each waits 10 s at most. Safe on any thread.

    Unless a method says otherwise, RetriableError means that the cluster does not answer,
    ConnectError that it refuses.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Take settings of an admin client, in librdkafka's names. Nothing connects before the
        first question."""
        # No thread reads its log between questions; the answers hold the errors.
        self._settings = {"log_level": 2, **settings}
        self._client: AdminClient | None = None

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._settings)  # type: ignore[arg-type] # values are texts, numbers and booleans
        return self._client

    def _answer(self, future: Future[T], asked_for: str) -> T:
        try:
            return _answer(future, asked_for)
        except _PassingError:
            raise
        except RetriableError:
            # After a line or a broker broke, a client may wait for ever for a group's coordinator:
            # ask with a new one.
            self._client = None
            raise

    def cluster_id(self) -> str:
        """The id of the cluster."""
        description = self._answer(
            self._admin().describe_cluster(request_timeout=REQUEST_SECONDS), "the cluster's id"
        )
        return str(description.cluster_id)

    def _describe(self, topic: str) -> Any:
        futures = self._admin().describe_topics(
            TopicCollection([topic]), request_timeout=REQUEST_SECONDS
        )
        return self._answer(futures[topic], f"topic {topic!r}")

    def topic_id(self, topic: str) -> str:
        """The id of a topic; NotFoundError: there is no such topic."""
        return str(self._describe(topic).topic_id)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; NotFoundError: there is no such topic."""
        return len(self._describe(topic).partitions)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return sorted(self._partition_counts())

    def _partition_counts(self) -> dict[str, int]:
        try:
            listed = self._admin().list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException as error:
            raise translated(error, "the list of topics") from error
        return {
            name: len(topic.partitions) for name, topic in listed.items() if topic.error is None
        }

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's offsets with their metadata; partitions without one are left out."""
        wanted = [ClientTopicPartition(tp.topic, tp.partition) for tp in partitions]
        if not wanted:
            return {}
        return _patiently(lambda: self._committed(group, wanted))

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All offsets of a group, of topics that exist; empty when there is no such group."""
        counts = self._partition_counts()
        return self.committed(
            group, (TopicPartition(t, p) for t, count in counts.items() for p in range(count))
        )

    def _committed(
        self, group: str, partitions: list[ClientTopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As a consumer asks that never joins its group.

        The library's admin clients ask the same and end the whole process (2.16.0, NULL read in
        `rd_kafka_cgrp_op`) when the broker answers that it no longer coordinates the group: they
        have no group to tell of it.
        """
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
        try:
            consumer = Consumer({**self._settings, **own})
            try:
                found = consumer.committed(partitions, timeout=REQUEST_SECONDS)
            finally:
                consumer.close()
        except KafkaException as error:
            raise translated(error, f"offsets of group {group!r}") from error
        for p in found:
            if p.error is not None:
                raise translated(
                    KafkaException(p.error), f"offset of {p.topic}-{p.partition} in group {group!r}"
                )
        return {
            TopicPartition(p.topic, p.partition): OffsetAndMetadata(p.offset, p.metadata or "")
            for p in found
            if p.offset >= 0
        }

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set a group's offsets, all in one request; GroupNotEmptyError: the group has members."""
        wanted = [
            ClientTopicPartition(tp.topic, tp.partition, at.offset, at.metadata)
            for tp, at in offsets.items()
        ]
        if not wanted:
            return
        _patiently(lambda: self._alter_offsets(ConsumerGroupTopicPartitions(group, wanted)))

    def _alter_offsets(self, request: ConsumerGroupTopicPartitions) -> None:
        group = request.group_id
        futures = self._admin().alter_consumer_group_offsets(
            [request], request_timeout=REQUEST_SECONDS
        )
        answer = self._answer(futures[group], f"offsets of group {group!r}")
        for p in answer.topic_partitions:
            if p.error is not None:
                raise translated(
                    KafkaException(p.error), f"offset of {p.topic}-{p.partition} in group {group!r}"
                )

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's offsets of some partitions, all in one request.

        Raises:
            GroupNotEmptyError: The group has members.
            NotFoundError: There is no such group, topic or partition.
        """
        wanted = list(partitions)
        if wanted:
            _patiently(lambda: self._delete_offsets(group, wanted))

    def _delete_offsets(self, group: str, partitions: list[TopicPartition]) -> None:
        try:
            delete_group_offsets(self._settings, group, partitions, REQUEST_SECONDS)
        except KafkaException as error:
            raise translated(error, f"offsets of group {group!r}") from error

    def delete_group(self, group: str) -> None:
        """Delete a group with its offsets; a missing one is fine. GroupNotEmptyError: the group has
        members."""
        try:
            _patiently(lambda: self._delete_group(group))
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
        """The first offset and the end of the log of each partition; NotFoundError: one does not
        exist.

        Args: committed: Whether the end is the one for readers of committed transactions, which an
            open one lies behind.
        """
        wanted = list(partitions)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        first = _patiently(lambda: self._offsets(wanted, OffsetSpec.earliest(), level))  # type: ignore[no-untyped-call] # the client's
        end = _patiently(lambda: self._offsets(wanted, OffsetSpec.latest(), level))  # type: ignore[no-untyped-call] # the client's
        return {tp: (first[tp], end[tp]) for tp in wanted}

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record has this time or a later one; the end of
        the log if none has.

        Errors as for `log_range`. Records that come meanwhile do not count where none had the time
        before.
        """
        ends = {tp: end for tp, (_, end) in self.log_range(partitions).items()}
        spec, level = OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED
        found = _patiently(lambda: self._offsets(ends, spec, level))
        return {tp: found[tp] if found[tp] >= 0 else end for tp, end in ends.items()}

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        asked = {ClientTopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        if not asked:
            return {}
        futures = self._admin().list_offsets(
            asked, isolation_level=level, request_timeout=REQUEST_SECONDS
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
        """Create a topic with these topic configs; False: it exists already. -1: the broker's
        default."""
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
    """A consumer group still has members, so its offsets cannot be changed from outside."""


class _PassingError(RetriableError):
    """The same question has an answer in a moment."""


class _ExistsError(ConnectError):
    """The topic to create exists."""


def _patiently(ask: Callable[[], T]) -> T:
    """Ask again for a while as long as a broker is just taking over."""
    clock = SystemClock()
    deadline = clock.monotonic() + REQUEST_SECONDS
    while True:
        try:
            return ask()
        except _PassingError:
            if clock.monotonic() >= deadline:
                raise
        clock.sleep(AGAIN_SECONDS)


def _answer(future: Future[T], asked_for: str) -> T:
    try:
        return future.result(_ANSWER_SECONDS)
    except FutureTimeoutError as error:
        raise RetriableError(
            f"the Kafka cluster did not answer within {_ANSWER_SECONDS:.0f} s: {asked_for}"
        ) from error
    except KafkaException as error:
        raise translated(error, asked_for) from error


def translated(error: KafkaException, about: str) -> ConnectError:
    """The client library's error as one of ours: missing, refused, or worth another try."""
    kafka_error: KafkaError = error.args[0]
    code = kafka_error.code()
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return _ExistsError(about)
    text = f"{about}: {kafka_error.str()}"
    if code in _PASSING:
        return _PassingError(text)
    if code in _NOT_EMPTY:
        return GroupNotEmptyError(text)
    if code in _MISSING:
        return NotFoundError(text)
    if code in _REFUSED or code in _IMPOSSIBLE:
        return ConnectError(text)
    return RetriableError(text)
