"""Access to the Kafka cluster from which a sink connector consumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from connect_py.api.record import OffsetAndMetadata, TopicPartition

ClientKind: TypeAlias = Literal["producer", "consumer", "admin"]


class SinkCluster(Protocol):
    """The Kafka cluster from which one sink connector consumes.

    Methods are thread-safe and may block for a few seconds.
    """

    @property
    def connector(self) -> str:
        """Name of the connector."""

    @property
    def cluster_id(self) -> str:
        """ID of the Kafka cluster from which the connector consumes."""

    @property
    def start_number(self) -> int:
        """Offset of the config topic record that last started or changed the connector.

        It never decreases.
        """

    @property
    def group_id(self) -> str:
        """Effective consumer group ID of the connector."""

    def client_config(self, kind: ClientKind) -> dict[str, Any]:
        """Return the librdkafka properties for an additional Kafka client that the plugin creates.

        They include the bootstrap servers and security settings of the task's clients, and redirect
        the client's log output to the worker's log. The plugin adds client and group IDs.
        """

    def topic_id(self, topic: str) -> str:
        """Fetch the current ID of a topic. The ID changes when the topic is deleted and recreated.

        Raises:
            RetriableError: The cluster does not respond.
            NotFoundError: The topic does not exist.
        """

    def partition_count(self, topic: str) -> int:
        """Fetch the current partition count of a topic. Raises the same errors as `topic_id`."""

    def topics(self) -> Sequence[str]:
        """Return the names of the existing topics that the connector consumes.

        A regular expression (`topics.regex`) is matched against the existing topics.
        """

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Fetch the committed offsets of the consumer group, including their metadata.

        Partitions without a committed offset are omitted.

        Raises:
            RetriableError: The cluster does not respond.
        """

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Fetch the first offset and the end offset of each partition.

        If `committed` is true, the end offset is the last stable offset, which excludes open
        transactions. Raises the same errors as the method `committed`.
        """

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Fetch each partition's offset of the first record at or after a timestamp.

        For partitions without such a record, the end offset is returned. Raises the same errors as
        `committed`.
        """
