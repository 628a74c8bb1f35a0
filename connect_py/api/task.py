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
    """Base class of sink and source tasks. All methods are called on the task's thread."""

    version: str | None = None  # None: the distribution's version

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Start with this configuration, in which placeholders are resolved.

        Raises:
            ConnectError: The task fails until it is restarted.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop, and release all resources. This is the last call, also after a failed `start`.

        The process is killed after `task.shutdown.graceful.timeout.ms`, which applies to all tasks
        that are stopped together.
        """


class ErrantRecordReporter(Protocol):
    """Receives records that the task cannot write, and logs or dead-letters them under `errors.*`.

    The worker waits for all reports before it commits the offsets of these records.
    """

    def report(self, record: SinkRecord, error: Exception) -> None:
        """Report a record.

        Raises:
            ConnectError: Errors are not tolerated (`errors.tolerance=none`). The task fails after
                `put`, even if this error is swallowed.
        """

    def report_row(self, batch: Batch, row: int, error: Exception) -> None:
        """Report a row of a batch, by its index in the batch. Errors: see `report`."""


class SinkTaskContext(SinkCluster, SharedServices, BoundedWaitReporter, Protocol):
    """Services of the worker for a sink task, and access to its cluster.

    Methods that query the cluster or return settings may be called on any thread. Methods that
    change the consumer (`offset`, `pause`, `resume`, `timeout`, `request_commit`) may be called
    only on the task's thread.
    """

    @property
    def task(self) -> int:
        """Number of the task, starting at 0."""

    @property
    def metrics(self) -> PluginMetrics:
        """Registers metrics of the task."""

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """The reporter. None unless errors are dead-lettered or logged."""

    def configs(self) -> Mapping[str, str]:
        """Return the configuration of the task, in which placeholders are resolved."""

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to the task."""

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offsets to read.

        Takes effect immediately: rows of these partitions that have already been polled are not
        delivered any more, including rows in later batches of the same poll, and `pre_commit`
        receives the new positions.
        """

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop polling these partitions until `resume` is called.

        Partitions that stay assigned after a rebalance stay paused.
        """

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume polling these partitions."""

    def timeout(self, timeout_ms: int) -> None:
        """Limit the duration of the next poll."""

    def request_commit(self) -> None:
        """Request an offset commit in the next iteration of the loop."""

    def request_stop(self, reason: str) -> None:
        """Request the stop of the connector, like `PUT /connectors/NAME/stop`.

        Its status shows the reason.

        May be called on any thread; returns immediately. The request applies only to the
        configuration with which the task was started, and only while the target state of the
        connector is running. It may be lost: a task that is still running a few seconds later
        repeats it.
        """


class SinkTask(Task):
    """Writes records to another system.

    The worker calls `initialize` and `start`, then `open`, polls, `pre_commit`, and `close` any
    number of times. At the end, it calls `pre_commit` and `close` for the assigned partitions, then
    `stop`. `open` receives newly assigned partitions and `close` receives revoked ones; before
    `close`, `pre_commit` is called for these partitions unless they were lost. After a poll with
    records, the worker calls `put_dead_letter` for each failed record, `put` or `put_batch` with
    the remaining records, then `end_poll`.
    """

    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Receive the context. Called once, before `start`."""
        self.context = context

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for the records of newly assigned partitions. An error fails the task."""
        return

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Release partitions, which may be assigned to another task next.

        An error fails the task.
        """
        return

    def position_lost(self, partition: TopicPartition) -> bool:
        """Handle the loss of the next offset to read.

        It was deleted by retention, or the topic was truncated or recreated.

        Return True if the task handles the loss: the partition is not read until the task calls
        `context.offset`. By default, reading resumes at the point of truncation, or else as
        configured by `auto.offset.reset`, and the rows in between are skipped; with
        `auto.offset.reset=none`, the task fails. Rows that were read earlier are still delivered.
        Called during a poll, between calls of `put`, and possibly again until the task has set an
        offset.

        Raises:
            ConnectError: The task fails until it is restarted.
        """
        return False

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Accept records: write them now, or buffer them until `pre_commit`.

        Records of one partition arrive in offset order; partitions interleave. An empty list is
        passed on every idle poll, so that the task can perform periodic work.

        Raises:
            RetriableError: The partitions are paused and the same records are delivered again.
            ConnectError: The task fails until it is restarted.
        """
        if records:
            raise NotImplementedError(f"{type(self).__name__} implements neither put nor put_batch")

    def put_batch(self, batch: Batch) -> None:
        """Accept records as columns. The worker calls this form, which calls `put` by default.

        Order and errors are the same as for `put`. A batch is never empty (an idle poll calls
        `put([])`), and has one topic and one schema each for keys and values; the next batch may
        have others. It shares columns with earlier stages and must not be modified. After a
        `RetriableError`, only the same batch is delivered again; earlier batches are not repeated.
        """
        self.put(batch.records())

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Store a failed record as durably as other records. Optional.

        Called if `errors.deadletterqueue.iceberg.table` is set. A connector that supports
        dead-letter records defines this key; for all other connectors, validation rejects it.
        Called before the first `put` of a poll for records that failed in converters and
        transformations, and from within `report` and `report_row` for records that the task
        reports. The offsets of dead-letter records therefore interleave with the offsets of `put`,
        and only `end_poll` confirms that the records below an offset are complete. A record that is
        read again is passed again.

        Raises:
            ConnectError: The task fails.
        """
        raise NotImplementedError(f"{type(self).__name__} does not store dead-letter records")

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Handle the end of a poll.

        Each of its records was put, dropped, or passed as a dead-letter record.

        `consumed` contains the next offset to read of each partition with records in this poll, and
        of each partition that was read to its end past transaction markers, except partitions that
        were revoked or rewound meanwhile. Records of one partition that were routed to different
        topics arrive in several calls of `put` with interleaving offsets: only now are the records
        below these offsets complete. Called after the last `put` of the poll, even if no records
        were left to put. The next `pre_commit` receives at least these offsets.

        Raises:
            RetriableError: The partitions are paused and the call is repeated.
            ConnectError: The task fails.
        """
        return

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, SafeOffset]:
        """Return the next offsets that are safe to commit, at most the offsets in `current`.

        A value may be an `OffsetAndMetadata`; its metadata is committed as well, even if the offset
        is unchanged. Partitions that are missing from the result keep their last committed offset.
        By default, all records are flushed and all offsets are safe.

        Raises:
            ConnectError: The commit fails; the task resumes at the last committed offsets.
        """
        self.flush(current)
        return current

    def flush(self, current: Mapping[TopicPartition, int]) -> None:
        """Block until all records that were put are durable."""
        return


class ExactlyOnceSupport(Enum):
    """Support of a source for exactly-once delivery with a configuration."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionBoundarySupport(Enum):
    """Support of a source for transaction boundaries that its tasks define."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionContext(Protocol):
    """Ends transactions on behalf of a source task, on its thread.

    Used with `transaction.boundary=connector`.

    If a record is passed, the transaction ends right after this record, which a later `poll` may
    return. Otherwise, it ends after the records of the running or next `poll`. Records of an
    aborted transaction are discarded permanently: their source offsets are stored anyway. To read
    the records again, a task raises an error instead.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit the transaction. ConnectError if an abort was requested at the same position."""

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort the transaction. ConnectError if a commit was requested at the same position."""


class OffsetStorageReader(Protocol):
    """Reads the stored offsets of the connector, on the task's thread."""

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        """Return the offset of a source partition, or None if there is none."""

    def offsets(
        self, partitions: Iterable[Mapping[str, Value]]
    ) -> Sequence[Mapping[str, Value] | None]:
        """Return the offsets of several source partitions, in the same order."""


class SourceTaskContext(SharedServices, BoundedWaitReporter, Protocol):
    """Services of the worker for a source task.

    Shared services and wait reports may be used on any thread, everything else on the task's
    thread.
    """

    @property
    def connector(self) -> str:
        """Name of the connector."""

    @property
    def task(self) -> int:
        """Number of the task, starting at 0."""

    @property
    def offset_storage_reader(self) -> OffsetStorageReader:
        """Reads the stored offsets."""

    @property
    def metrics(self) -> PluginMetrics:
        """Registers metrics of the task."""

    @property
    def transaction_context(self) -> TransactionContext | None:
        """Ends transactions. None unless the connector's configuration leaves this to its tasks."""

    def configs(self) -> Mapping[str, str]:
        """Return the configuration of the task, in which placeholders are resolved."""


class SourceTask(Task):
    """Reads records from another system.

    The worker calls `initialize` and `start`, then `poll` repeatedly, with calls of `commit_record`
    and `commit` in between, and finally `stop`.
    """

    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Receive the context. Called once, before `start`."""
        self.context = context

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord]:
        """Return new records, or an empty sequence after a short wait; 0.2 s keeps stops quick.

        Raises:
            RetriableError: `poll` is called again after a delay.
            ConnectError: The task fails until it is restarted.
        """

    def commit(self) -> None:
        """Handle the commit of the offsets of an earlier poll."""
        return

    def commit_record(self, record: SourceRecord, metadata: OffsetAndMetadata | None) -> None:
        """Handle the acknowledgment of a record.

        `metadata` contains its offset in the topic, or is None if the record was filtered or
        skipped.
        """
        return
