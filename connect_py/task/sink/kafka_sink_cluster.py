"""`KafkaSinkCluster`: a sink connector's access to the Kafka cluster that it consumes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from connect_py.api.cluster import ClientKind
from connect_py.api.errors import NotFoundError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.client_log import client_log
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.task.topic_selection import TopicSelection


class KafkaSinkCluster:
    """Implements `connect_py.api.cluster.SinkCluster`, which documents threading and errors."""

    def __init__(
        self,
        connector: str,
        start_number: int,
        clients: ClientConfigs,
        admin: ClusterAdmin,
        topics: TopicSelection,
    ) -> None:
        self._connector = connector
        self._start_number = start_number
        self._clients = clients
        self._admin = admin
        self._topics = topics
        self._cluster_id: str | None = None

    @property
    def connector(self) -> str:
        return self._connector

    @property
    def cluster_id(self) -> str:
        """Return the cluster ID, which is cached. Raises the same errors as `topic_id`."""
        if self._cluster_id is None:
            self._cluster_id = self._admin.cluster_id()
        return self._cluster_id

    @property
    def start_number(self) -> int:
        return self._start_number

    @property
    def group_id(self) -> str:
        return self._clients.group_id()

    def client_config(self, kind: ClientKind) -> dict[str, object]:
        # An admin client is not polled between requests, so its log lines would not be delivered.
        # Its responses contain all errors.
        log: dict[str, object] = {"log_level": 2} if kind == "admin" else {"logger": client_log}
        settings = {**log, **self._clients.of(kind)}
        if kind == "consumer" and self._topics.has_replays:
            settings["isolation.level"] = "read_committed"  # same level as the task's own consumer
        return settings

    def topic_id(self, topic: str) -> str:
        return self._admin.topic_id(topic)

    def partition_count(self, topic: str) -> int:
        return self._admin.partition_count(topic)

    def topics(self) -> Sequence[str]:
        if self._topics.is_regex:
            return self._topics.among(self._admin.topics())
        existing = []
        for topic in self._topics.listed():
            try:
                self._admin.topic_id(topic)
            except NotFoundError:
                continue
            existing.append(topic)
        return existing

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._admin.committed(self.group_id, partitions)

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        return self._admin.log_range(partitions, committed=committed)

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        return self._admin.offsets_at(partitions, timestamp_ms)
