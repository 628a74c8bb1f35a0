"""`WorkerSinkTaskContext`: what a sink task may ask of the worker, answered by its loop and by the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from connect_py.api.cluster import ClientKind
from connect_py.api.errors import NotFoundError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.task import ErrantRecordReporter
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.model import ConnectorTaskId
from connect_py.task.topic_selection import TopicSelection


class LoopControls(Protocol):
    """What the context asks of the loop, on the task thread."""

    def assignment(self) -> frozenset[TopicPartition]: ...

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def pause_partitions(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume_partitions(self, partitions: Iterable[TopicPartition]) -> None: ...

    def bound_next_poll(self, timeout_ms: int) -> None: ...

    def request_commit(self) -> None: ...


class WorkerSinkTaskContext:
    """Satisfies `connect_py.api.task.SinkTaskContext`; see there for threads and errors."""

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
        start_number: int,
        task_config: Mapping[str, str],
        clients: ClientConfigs,
        admin: ClusterAdmin,
        loop: LoopControls,
        reporter: ErrantRecordReporter | None,
        topics: TopicSelection,
    ) -> None:
        self._id = id
        self._start_number = start_number
        self._task_config = dict(task_config)
        self._clients = clients
        self._admin = admin
        self._loop = loop
        self._reporter = reporter
        self._topics = topics
        self._cluster_id: str | None = None

    @property
    def connector(self) -> str:
        return self._id.connector

    @property
    def task(self) -> int:
        return self._id.task

    @property
    def cluster_id(self) -> str:
        """Asked once. Errors as for `topic_id`."""
        if self._cluster_id is None:
            self._cluster_id = self._admin.cluster_id()
        return self._cluster_id

    @property
    def start_number(self) -> int:
        return self._start_number

    @property
    def group_id(self) -> str:
        return self._clients.group_id()

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        return self._reporter

    def configs(self) -> Mapping[str, str]:
        return dict(self._task_config)

    def client_config(self, kind: ClientKind) -> dict[str, object]:
        return self._clients.of(kind)

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

    def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._admin.committed(self.group_id, partitions)

    def log_range(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return self._admin.log_range(partitions)

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
