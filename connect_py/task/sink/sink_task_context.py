"""`WorkerSinkTaskContext`: context of a sink task, backed by its loop and the Kafka cluster."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.record import TopicPartition
from connect_py.api.task import ErrantRecordReporter
from connect_py.api.waiting import BoundedWaitReporter
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.metrics.plugin_metrics import TaskPluginMetrics
from connect_py.model import ConnectorTaskId
from connect_py.task.messages import RequestStop
from connect_py.task.sink.kafka_sink_cluster import KafkaSinkCluster
from connect_py.task.sink.sink_loop import SinkTaskRunner
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.worker_client import WorkerClient, WorkerSharedServices


class WorkerSinkTaskContext(KafkaSinkCluster, WorkerSharedServices):
    """Implements `connect_py.api.task.SinkTaskContext`, which documents threading and errors."""

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - named as in Kafka Connect
        start_number: int,
        task_config: Mapping[str, str],
        clients: ClientConfigs,
        admin: ClusterAdmin,
        loop: SinkTaskRunner,
        reporter: ErrantRecordReporter | None,
        topics: TopicSelection,
        metrics: TaskPluginMetrics,
        worker: WorkerClient,
        worker_props: Mapping[str, str],
        waiting: BoundedWaitReporter,
    ) -> None:
        KafkaSinkCluster.__init__(self, id.connector, start_number, clients, admin, topics)
        WorkerSharedServices.__init__(self, worker, worker_props)
        self._id = id
        self._task_config = dict(task_config)
        self._loop = loop
        self._reporter = reporter
        self._metrics = metrics
        self.waits = waiting.waits
        self.warns = waiting.warns
        self.bound_waiting = waiting.bound_waiting

    @property
    def task(self) -> int:
        return self._id.task

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        return self._reporter

    @property
    def metrics(self) -> TaskPluginMetrics:
        return self._metrics

    def configs(self) -> Mapping[str, str]:
        return dict(self._task_config)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._loop.assignment()

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._loop.rewind(offsets)

    def pause(self, *partitions: TopicPartition) -> None:
        self._loop.pause_partitions(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._loop.resume_partitions(partitions)

    def timeout(self, timeout_ms: int) -> None:
        self._loop.bound_next_poll(timeout_ms)

    def request_commit(self) -> None:
        self._loop.request_commit()

    def request_stop(self, reason: str) -> None:
        self._worker.notify(RequestStop(reason))
