"""What a sink may ask of the Kafka cluster that its topics are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from connect_py.api.record import OffsetAndMetadata, TopicPartition

ClientKind: TypeAlias = Literal["producer", "consumer", "admin"]


class SinkCluster(Protocol):
    """The cluster as one sink connector reaches it. Members may be called on any thread, and may
    wait some seconds."""

    @property
    def connector(self) -> str:
        """The connector's name."""

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster that is consumed."""

    @property
    def start_number(self) -> int:
        """The config topic offset of the record that last started or changed the connector; it only
        grows."""

    @property
    def group_id(self) -> str:
        """The consumer group that really holds the connector's offsets."""

    def client_config(self, kind: ClientKind) -> dict[str, Any]:
        """Settings, in librdkafka's names, for a Kafka client of the plugin's own.

        They reach the cluster as the task's clients do (addresses, security), and what the client
        has to say goes to the worker's log; ids and groups are the plugin's to add.
        """

    def topic_id(self, topic: str) -> str:
        """Ask the cluster for the id of a topic, now: it changes when a topic is deleted and made
        again.

        Raises:
            RetriableError: The cluster does not answer.
            NotFoundError: There is no such topic.
        """

    def partition_count(self, topic: str) -> int:
        """Ask the cluster how many partitions a topic has, now. Errors as for `topic_id`."""

    def topics(self) -> Sequence[str]:
        """The topics that the connector consumes, as far as they exist (a regex is resolved)."""

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Ask for the group's offsets with their metadata; a partition without one is left out.

        Raises:
            RetriableError: The cluster does not answer.
        """

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Ask for the first offset and the end of the log of partitions. Errors as for `committed`.

        With `committed` the end is the one that readers of committed transactions see: an open one
        lies behind it.
        """

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Ask for the first offset whose record has this time or a later one; the end of the log if
        none has.

        Errors as for `committed`.
        """
