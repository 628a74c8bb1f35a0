"""`RangeContext`: the context of a task that processes one range on a Spark executor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from connect_py.api.cluster import ClientKind
from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.service import WAIT_SECONDS, ServiceAddress, SharedService
from connect_py.api.task import ErrantRecordReporter
from connectors.iceberg_tools.load.counted_metrics import CountedMetrics


class RangeContext:
    """Implements `connect_py.api.task.SinkTaskContext` without a connection to the cluster.

    Not thread-safe.
    """

    start_number = 0  # unused because `TaskState` already contains the load's start number
    cluster_id = ""
    group_id = ""

    def __init__(
        self,
        connector: str,
        partition: TopicPartition,
        topic_id: str,
        partition_counts: Mapping[str, int],
    ) -> None:
        self.connector = connector
        self.task = partition.partition
        self.metrics = CountedMetrics()
        self.errant_record_reporter: ErrantRecordReporter | None = None
        self.stopped = False  # whether the rest of the range must be read again later
        self._partition = partition
        self._topic_id = topic_id
        self._partition_counts = partition_counts

    def topic_id(self, topic: str) -> str:
        return self._topic_id

    def partition_count(self, topic: str) -> int:
        return self._partition_counts[topic]

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset([self._partition])

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {}

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.stopped = True

    def pause(self, *partitions: TopicPartition) -> None:
        return

    def resume(self, *partitions: TopicPartition) -> None:
        return

    def timeout(self, timeout_ms: int) -> None:
        return

    def request_commit(self) -> None:
        return

    def request_stop(self, reason: str) -> None:
        return

    def waits(self, subject: str, reason: str | None) -> None:
        return

    def warns(self, subject: str, warning: str | None) -> None:
        return

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        return

    def configs(self) -> Mapping[str, str]:
        return {}

    def topics(self) -> list[str]:
        return [self._partition.topic]

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        raise ConnectError("an executor has no connection to the Kafka cluster")

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        raise ConnectError("an executor has no connection to the Kafka cluster")

    def client_config(self, kind: ClientKind) -> dict[str, Any]:
        raise ConnectError("an executor has no connection to the Kafka cluster")

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        raise ConnectError("an executor has no shared services")

    def request_shared_service(self, service: SharedService) -> None:
        return

    def release_shared_service(self, service: SharedService) -> None:
        return

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return {}
