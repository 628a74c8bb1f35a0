"""`WorkerSourceTaskContext`: context of a source task, backed by the worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from connect_py.api.schema import Value
from connect_py.api.waiting import BoundedWaitReporter
from connect_py.metrics.plugin_metrics import TaskPluginMetrics
from connect_py.model import ConnectorTaskId
from connect_py.task.messages import ReadSourceOffsets
from connect_py.task.source.transaction_boundary import WorkerTransactionContext
from connect_py.task.worker_client import WorkerClient, WorkerSharedServices


class WorkerOffsetStorageReader:
    """Reads offsets through the worker, which first reads its offset topic to the end."""

    def __init__(self, worker: WorkerClient) -> None:
        self._worker = worker

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        """Return the offset of one source partition, or None if no offset is stored.

        Raises:
            ConnectError: The worker cannot read the offset.
        """
        return self.offsets([partition])[0]

    def offsets(
        self, partitions: Iterable[Mapping[str, Value]]
    ) -> Sequence[Mapping[str, Value] | None]:
        """Return the offsets of several source partitions, in order."""
        request = ReadSourceOffsets([dict(p) for p in partitions])
        offsets: Sequence[Mapping[str, Value] | None] = self._worker.call_until_stopped(request)
        return offsets


class WorkerSourceTaskContext(WorkerSharedServices):
    """Implements `connect_py.api.task.SourceTaskContext`."""

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - named as in Kafka Connect
        task_config: Mapping[str, str],
        reader: WorkerOffsetStorageReader,
        transactions: WorkerTransactionContext | None,
        metrics: TaskPluginMetrics,
        worker: WorkerClient,
        worker_props: Mapping[str, str],
        waiting: BoundedWaitReporter,
    ) -> None:
        super().__init__(worker, worker_props)
        self._id = id
        self._task_config = dict(task_config)
        self._reader = reader
        self._transactions = transactions
        self._metrics = metrics
        self.waits = waiting.waits
        self.warns = waiting.warns
        self.bound_waiting = waiting.bound_waiting

    @property
    def connector(self) -> str:
        return self._id.connector

    @property
    def task(self) -> int:
        return self._id.task

    @property
    def offset_storage_reader(self) -> WorkerOffsetStorageReader:
        return self._reader

    @property
    def transaction_context(self) -> WorkerTransactionContext | None:
        return self._transactions

    @property
    def metrics(self) -> TaskPluginMetrics:
        return self._metrics

    def configs(self) -> Mapping[str, str]:
        return dict(self._task_config)
