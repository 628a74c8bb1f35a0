"""Access of a sink to the Kafka cluster with its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from connect_py.api.record import OffsetAndMetadata, TopicPartition

ClientKind: TypeAlias = Literal["producer", "consumer", "admin"]


class SinkCluster(Protocol):
    """The cluster of one sink connector.

    Methods are thread-safe and may block for a few seconds.
    """

    @property
    def connector(self) -> str:
        """Name of the connector."""

    @property
    def cluster_id(self) -> str:
        """ID of the consumed Kafka cluster."""

    @property
    def start_number(self) -> int:
        """Offset in the config topic of the record that last started or changed the connector.

        It only increases.
        """

    @property
    def group_id(self) -> str:
        """The effective consumer group of the connector."""

    def client_config(self, kind: ClientKind) -> dict[str, Any]:
        """Return the settings of an additional Kafka client of the plugin, with librdkafka's names.

        They contain the addresses and the security settings of the task's clients, and pass the log
        output of the client to the worker's log. The plugin adds IDs and groups.
        """

    def topic_id(self, topic: str) -> str:
        """Request the current ID of a topic. It changes when the topic is deleted and recreated.

        Raises:
            RetriableError: The cluster does not respond.
            NotFoundError: The topic does not exist.
        """

    def partition_count(self, topic: str) -> int:
        """Request the current number of partitions of a topic. Errors: see `topic_id`."""

    def topics(self) -> Sequence[str]:
        """Return the existing topics that the connector consumes. A regex is resolved."""

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Request the committed offsets of the group with their metadata.

        Partitions without an offset are omitted.

        Raises:
            RetriableError: The cluster does not respond.
        """

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Request the first offset and the end offset of partitions. Errors: see `committed`.

        With `committed`, the end is the last stable offset, which excludes open transactions.
        """

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Request the first offsets with at least this timestamp, or else the end offsets.

        Errors: see `committed`.
        """
