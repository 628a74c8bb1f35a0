"""`ClusterAdmin`: what tasks ask the cluster, with deadlines and errors translated once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.api.record import OffsetAndMetadata, TopicPartition

REQUEST_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = REQUEST_SECONDS + 2.0  # the client's own time-out comes first
_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_REFUSED: Final = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_VERSION, KafkaError._AUTHENTICATION,
})  # fmt: skip

T = TypeVar("T")


class ClusterAdmin:
    """Questions to the cluster; each waits 10 s at most. Safe on any thread.

    Unless a method says otherwise, RetriableError means that the cluster does not answer, ConnectError that it
    refuses.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Take settings of an admin client, in librdkafka's names. Nothing connects before the first question."""
        self._settings = dict(settings)
        self._client: AdminClient | None = None

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._settings)  # type: ignore[arg-type] # values are texts, numbers and booleans
        return self._client

    def cluster_id(self) -> str:
        """The id of the cluster."""
        description = _answer(self._admin().describe_cluster(request_timeout=REQUEST_SECONDS), "the cluster's id")
        return str(description.cluster_id)

    def _describe(self, topic: str) -> Any:
        futures = self._admin().describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)
        return _answer(futures[topic], f"topic {topic!r}")

    def topic_id(self, topic: str) -> str:
        """The id of a topic; NotFoundError: there is no such topic."""
        return str(self._describe(topic).topic_id)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; NotFoundError: there is no such topic."""
        return len(self._describe(topic).partitions)

    def topics(self) -> list[str]:
        """The names of all topics."""
        try:
            listed = self._admin().list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException as error:
            raise translated(error, "the list of topics") from error
        return sorted(name for name, topic in listed.items() if topic.error is None)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's offsets with their metadata; partitions without one are left out."""
        wanted = [ClientTopicPartition(tp.topic, tp.partition) for tp in partitions]
        if not wanted:
            return {}
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        futures = self._admin().list_consumer_group_offsets(request, request_timeout=REQUEST_SECONDS)
        answer = _answer(futures[group], f"offsets of group {group!r}")
        return {
            TopicPartition(p.topic, p.partition): OffsetAndMetadata(p.offset, p.metadata or "")
            for p in answer.topic_partitions
            if p.error is None and p.offset >= 0
        }

    def log_range(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the end of the log of each partition; NotFoundError: one does not exist."""
        wanted = list(partitions)
        first = self._offsets(wanted, OffsetSpec.earliest())  # type: ignore[no-untyped-call] # the client's
        end = self._offsets(wanted, OffsetSpec.latest())  # type: ignore[no-untyped-call] # the client's
        return {tp: (first[tp], end[tp]) for tp in wanted}

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        asked = {ClientTopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        if not asked:
            return {}
        futures = self._admin().list_offsets(asked, request_timeout=REQUEST_SECONDS)
        return {
            TopicPartition(p.topic, p.partition): int(_answer(future, f"log of {p.topic}-{p.partition}").offset)
            for p, future in futures.items()
        }

    def create_topic(self, topic: str, partitions: int, replication_factor: int) -> bool:
        """Create a topic; False: it exists already."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor)
        future = self._admin().create_topics([new], request_timeout=REQUEST_SECONDS)[topic]
        try:
            _answer(future, f"new topic {topic!r}")
        except _ExistsError:
            return False
        return True


class _ExistsError(ConnectError):
    """The topic to create exists."""


def _answer(future: Future[T], asked_for: str) -> T:
    try:
        return future.result(_ANSWER_SECONDS)
    except FutureTimeoutError as error:
        raise RetriableError(f"the Kafka cluster did not answer within {_ANSWER_SECONDS:.0f} s: {asked_for}") from error
    except KafkaException as error:
        raise translated(error, asked_for) from error


def translated(error: KafkaException, about: str) -> ConnectError:
    """The client library's error as one of ours: missing, refused, or worth another try."""
    kafka_error: KafkaError = error.args[0]
    code = kafka_error.code()
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return _ExistsError(about)
    text = f"{about}: {kafka_error.str()}"
    if code in _MISSING:
        return NotFoundError(text)
    if code in _REFUSED:
        return ConnectError(text)
    return RetriableError(text)
