"""`LoadContext`: the context of a load's task and coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connect_py.api.sink_host import SinkHost
from connect_py.api.task import ErrantRecordReporter
from connectors.iceberg_tools.load.counted_metrics import CountedMetrics


class LoadContext:
    """Implements `connect_py.api.task.SinkTaskContext` without a consumer."""

    task = 0
    errant_record_reporter: ErrantRecordReporter | None = None

    def __init__(
        self, host: SinkHost, props: Mapping[str, str], partitions: frozenset[TopicPartition]
    ) -> None:
        self.metrics = CountedMetrics()
        self.paused: set[TopicPartition] = set()
        self.commit_requested = False
        self.waiting: dict[str, tuple[str, float]] = {}  # reason and start time by subject
        self._props = props
        self._partitions = partitions
        self._bound_seconds: float | None = None
        self.connector = host.connector
        self.cluster_id = host.cluster_id
        self.start_number = host.start_number
        self.group_id = host.group_id
        self.client_config = host.client_config
        self.topic_id = host.topic_id
        self.partition_count = host.partition_count
        self.topics = host.topics
        self.committed = host.committed
        self.log_range = host.log_range
        self.offsets_at = host.offsets_at
        self.shared_service = host.shared_service
        self.request_shared_service = host.request_shared_service
        self.release_shared_service = host.release_shared_service
        self.worker_settings = host.worker_settings

    def configs(self) -> Mapping[str, str]:
        return self._props

    def assignment(self) -> frozenset[TopicPartition]:
        return self._partitions

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: `TaskState` contains the positions."""

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused.difference_update(partitions)

    def timeout(self, timeout_ms: int) -> None:
        return

    def request_commit(self) -> None:
        self.commit_requested = True

    def request_stop(self, reason: str) -> None:
        return

    def waits(self, subject: str, reason: str | None) -> None:
        if reason is None:
            self.waiting.pop(subject, None)
        else:
            since = self.waiting[subject][1] if subject in self.waiting else time.monotonic()
            self.waiting[subject] = reason, since

    def warns(self, subject: str, warning: str | None) -> None:
        return

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        self._bound_seconds = None if milliseconds is None else milliseconds / 1000

    def passed_over(self, seconds: float) -> None:
        """Exclude a period from all waits because no wait could have ended during it."""
        self.waiting = {
            subject: (reason, since + seconds)
            for subject, (reason, since) in list(self.waiting.items())
        }

    def check_waiting(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Check whether a wait exceeds the time limit.

        Raises:
            ConnectError: A wait took too long. The message contains its subject and reason.
        """
        for subject, (reason, since) in list(self.waiting.items()):
            if self._bound_seconds is not None and clock() - since > self._bound_seconds:
                raise ConnectError(f"timed out while waiting for {subject}: {reason}")
