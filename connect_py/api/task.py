"""Tasks, which copy records. Each task runs in its own process, on one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from connect_py.api.batch import Batch
from connect_py.api.cluster import SinkCluster
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.metrics import PluginMetrics
from connect_py.api.record import OffsetAndMetadata, SinkRecord, SourceRecord, TopicPartition
from connect_py.api.schema import Value
from connect_py.api.service import SharedServices
from connect_py.api.waiting import BoundedWaitReporter

SafeOffset: TypeAlias = int | OffsetAndMetadata


class Task(ABC):
    """Base class for sink and source tasks. All methods are called on the task's thread."""

    version: str | None = None  # None for the distribution's version

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Start with this configuration, in which placeholders are resolved.

        Raises:
            ConnectError: The task fails and must be restarted.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop and release all resources. This is the last call, even after a failed `start`.

        The process is killed after `task.shutdown.graceful.timeout.ms`, which is the total time for
        all tasks that are stopped together.
        """


class ErrantRecordReporter(Protocol):
    """Logs or dead-letters records that the task cannot write, according to `errors.*`.

    The worker waits for all reports before it commits the offsets of these records.
    """

    def report(self, record: SinkRecord, error: Exception) -> None:
        """Report a record.

        Raises:
            ConnectError: Errors are not tolerated (`errors.tolerance=none`). The task fails after
                `put`, even if this error is swallowed.
        """

    def report_row(self, batch: Batch, row: int, error: Exception) -> None:
        """Report a row of a batch by its index. Raises the same errors as `report`."""


class SinkTaskContext(SinkCluster, SharedServices, BoundedWaitReporter, Protocol):
    """Worker services for a sink task, and access to its Kafka cluster.

    Methods that query the cluster or return settings may be called on any thread. Methods that
    change the consumer (`offset`, `pause`, `resume`, `timeout`, `request_commit`) may be called
    only on the task's thread.
    """

    @property
    def task(self) -> int:
        """Task number, starting at 0."""

    @property
    def metrics(self) -> PluginMetrics:
        """Creates metrics for the task."""

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """The reporter, or None if errors are neither dead-lettered nor logged."""

    def configs(self) -> Mapping[str, str]:
        """Return the configuration of the task, in which placeholders are resolved."""

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to the task."""

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offsets to read.

        Takes effect immediately. Rows from these partitions that have already been polled are no
        longer delivered, including rows in later batches of the same poll. `pre_commit` receives
        the new positions.
        """

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop polling these partitions until `resume` is called.

        Partitions that remain assigned after a rebalance remain paused.
        """

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume polling these partitions."""

    def timeout(self, timeout_ms: int) -> None:
        """Limit the duration of the next poll."""

    def request_commit(self) -> None:
        """Request an offset commit in the next iteration of the task loop."""

    def request_stop(self, reason: str) -> None:
        """Request that the connector be stopped, like `PUT /connectors/NAME/stop`.

        The connector status shows the reason. May be called on any thread. Returns immediately. The
        request applies only to the configuration with which the task was started, and only while
        the target state of the connector is running. The request may be lost, so a task that is
        still running a few seconds later must repeat it.
        """


class SinkTask(Task):
    """Writes records to another system.

    The worker calls `initialize` and `start`, then `open`, polls, `pre_commit`, and `close` any
    number of times. Finally, it calls `pre_commit` and `close` for the assigned partitions, and
    `stop`. `open` receives newly assigned partitions, and `close` receives revoked partitions.
    Before `close`, `pre_commit` is called for these partitions unless they were lost. After a poll
    with records, the worker calls `put_dead_letter` for each failed record, `put` or `put_batch`
    with the remaining records, and finally `end_poll`.
    """

    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Set the context. Called once, before `start`."""
        self.context = context

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for the records from newly assigned partitions. An error fails the task."""
        return

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Release revoked partitions, which another task may own next. An error fails the task."""
        return

    def position_lost(self, partition: TopicPartition) -> bool:
        """Handle an invalid position: the next offset to read no longer exists.

        The record was deleted by retention, or the topic was truncated or recreated. Return True if
        the task handles the loss. The partition is then not read until the task calls
        `context.offset`.

        If the result is False, the default, reading resumes at the point of truncation or, if there
        is none, as configured by `auto.offset.reset`. The rows up to the new position are skipped.
        With `auto.offset.reset=none`, the task fails instead.

        Rows that were read earlier are still delivered. Called during a poll, between calls to
        `put`. May be called again until the task has set an offset.

        Raises:
            ConnectError: The task fails and must be restarted.
        """
        return False

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Accept records: write them now, or buffer them until `pre_commit`.

        Records from one partition arrive in offset order; partitions interleave. An empty list is
        passed on every idle poll to allow the task to perform periodic work.

        Raises:
            RetriableError: The partitions are paused and the same records are delivered again.
            ConnectError: The task fails and must be restarted.
        """
        if records:
            raise NotImplementedError(f"{type(self).__name__} implements neither put nor put_batch")

    def put_batch(self, batch: Batch) -> None:
        """Accept records as columns. The worker calls this method, which by default calls `put`.

        Order and errors are the same as for `put`. A batch is never empty; an idle poll calls
        `put([])`. It has one topic, one key schema, and one value schema, which may differ from
        those of the next batch. It shares columns with earlier stages and must not be modified.
        After a `RetriableError`, only the same batch is delivered again, not the earlier batches.
        """
        self.put(batch.records())

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Store a failed record as durably as other records. Implementing this method is optional.

        Called only if `errors.deadletterqueue.iceberg.table` is set. A connector that supports
        dead-letter records defines this key. For all other connectors, validation rejects it.

        Called before the first `put` of a poll for records that failed in converters and
        transformations, and from within `report` and `report_row` for records that the task
        reports. The offsets of dead-letter records therefore interleave with the offsets of `put`,
        and only `end_poll` confirms that the records below an offset are complete. If a record is
        read again, it is also passed again.

        Raises:
            ConnectError: The task fails.
        """
        raise NotImplementedError(f"{type(self).__name__} does not store dead-letter records")

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Handle the end of a poll.

        Each record from the poll has been put, dropped, or passed as a dead-letter record.

        `consumed` contains the next offset to read for each partition with records in this poll,
        and for each partition whose position advanced past transaction markers at the end of the
        log. Partitions that were revoked or rewound during the poll are omitted. Records from one
        partition that were routed to different topics arrive in several calls to `put` with
        interleaving offsets. Therefore, the records below these offsets are complete only when this
        method is called. Called after the last `put` of the poll, even if there were no records to
        put. The next `pre_commit` receives at least these offsets.

        Raises:
            RetriableError: The partitions are paused and the call is repeated.
            ConnectError: The task fails.
        """
        return

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, SafeOffset]:
        """Return the next offsets that are safe to commit, none higher than in `current`.

        A value may be an `OffsetAndMetadata`; its metadata is also committed, even if the offset is
        unchanged. The committed offset of a partition that is missing from the result does not
        change. By default, all records are flushed and `current` is returned.

        Raises:
            ConnectError: The commit fails. The task resumes at the last committed offsets.
        """
        self.flush(current)
        return current

    def flush(self, current: Mapping[TopicPartition, int]) -> None:
        """Block until all records that were put are durable."""
        return


class ExactlyOnceSupport(Enum):
    """Support of a source connector for exactly-once delivery with a configuration."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionBoundarySupport(Enum):
    """Ability of a source connector's tasks to define transaction boundaries."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionContext(Protocol):
    """Ends transactions on behalf of a source task, on its thread.

    Used with `transaction.boundary=connector`.

    If a record is passed, the transaction ends right after this record, even if a later `poll`
    returns the record. Otherwise, it ends after the records of the current or next `poll`. Records
    of an aborted transaction are discarded permanently, because their source offsets are stored
    anyway. A task that needs to read the records again must raise an error instead.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit the transaction.

        Raises:
            ConnectError: An abort was requested at the same position.
        """

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort the transaction.

        Raises:
            ConnectError: A commit was requested at the same position.
        """


class OffsetStorageReader(Protocol):
    """Reads the connector's stored offsets, on the task's thread."""

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        """Return the offset of a source partition, or None if no offset is stored."""

    def offsets(
        self, partitions: Iterable[Mapping[str, Value]]
    ) -> Sequence[Mapping[str, Value] | None]:
        """Return the offsets of several source partitions, in the same order."""


class SourceTaskContext(SharedServices, BoundedWaitReporter, Protocol):
    """Worker services for a source task.

    Shared services and wait reports may be used on any thread. All other members may be used only
    on the task's thread.
    """

    @property
    def connector(self) -> str:
        """Name of the connector."""

    @property
    def task(self) -> int:
        """Task number, starting at 0."""

    @property
    def offset_storage_reader(self) -> OffsetStorageReader:
        """Reads the stored offsets."""

    @property
    def metrics(self) -> PluginMetrics:
        """Creates metrics for the task."""

    @property
    def transaction_context(self) -> TransactionContext | None:
        """Ends transactions. None unless `transaction.boundary=connector`."""

    def configs(self) -> Mapping[str, str]:
        """Return the configuration of the task, in which placeholders are resolved."""


class SourceTask(Task):
    """Reads records from another system.

    The worker calls `initialize` and `start`, then `poll` repeatedly, with calls to `commit_record`
    and `commit` in between, and finally `stop`.
    """

    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Set the context. Called once, before `start`."""
        self.context = context

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord]:
        """Return new records, or an empty sequence after a short wait.

        A wait of 0.2 s is short enough to stop the task quickly.

        Raises:
            RetriableError: `poll` is called again after a delay.
            ConnectError: The task fails and must be restarted.
        """

    def commit(self) -> None:
        """Handle a commit of the offsets from an earlier poll."""
        return

    def commit_record(self, record: SourceRecord, metadata: OffsetAndMetadata | None) -> None:
        """Handle the acknowledgment of a record.

        `metadata` contains the record's offset in the topic, or is None if the record was filtered
        or skipped.
        """
        return
