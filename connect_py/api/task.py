"""Tasks: they move the records. Each runs in a process of its own, on one thread."""

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
    """What sink and source tasks share. All calls come on the task's own thread, never two at
    once."""

    version: str | None = None  # None: the distribution's version

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin with this configuration, placeholders resolved.

        Raises:
            ConnectError: The task is FAILED until a user restarts it.
        """

    @abstractmethod
    def stop(self) -> None:
        """End and let go of everything; the last call, also after a failed `start`.

        It has `task.shutdown.graceful.timeout.ms`, together with all that is stopped at the same
        time; after that the process is killed.
        """


class ErrantRecordReporter(Protocol):
    """Takes records that the task cannot write; logged and dead-lettered under `errors.*`.

    The worker waits for every report before it commits the offsets of those records.
    """

    def report(self, record: SinkRecord, error: Exception) -> None:
        """Report one record.

        Raises: ConnectError: Nothing is tolerated (`errors.tolerance=none`). The task fails after
            `put` even if this
                error is swallowed.
        """

    def report_row(self, batch: Batch, row: int, error: Exception) -> None:
        """Report one row of a batch, by its index there; errors as for `report`."""


class SinkTaskContext(SinkCluster, SharedServices, BoundedWaitReporter, Protocol):
    """What a sink task may ask of the worker, and of its cluster.

    Members that ask the cluster or return settings may be called on any thread; those that change
    the consumer (`offset`, `pause`, `resume`, `timeout`, `request_commit`) on the task thread only.
    """

    @property
    def task(self) -> int:
        """The task's number, from 0."""

    @property
    def metrics(self) -> PluginMetrics:
        """For measurements of the task's own."""

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """The reporter; None unless errors are dead-lettered or logged."""

    def configs(self) -> Mapping[str, str]:
        """The task's configuration, placeholders resolved."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the task owns now."""

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make these the next offsets to read.

        Takes effect at once: rows of these partitions that were polled already are not delivered
        any more, also when they wait in batches of the same poll, and `pre_commit` sees the new
        positions.
        """

    def pause(self, *partitions: TopicPartition) -> None:
        """Poll nothing from these partitions until `resume`; survives rebalances for those still
        owned."""

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""

    def timeout(self, timeout_ms: int) -> None:
        """Bound the next poll only."""

    def request_commit(self) -> None:
        """Have offsets committed in the next iteration of the loop."""

    def request_stop(self, reason: str) -> None:
        """Have the connector stopped, as a user does by `PUT /connectors/NAME/stop`; its status
        shows the reason.

        Any thread; returns at once. The request counts for the configuration that the task was
        started with, while the connector is to run. It may get lost: a task that still runs some
        seconds later asks again.
        """


class SinkTask(Task):
    """Writes records elsewhere.

    Life: `initialize`, `start`, then any number of `open`, polls, `pre_commit`, `close`; at the end
    `pre_commit` and `close` for what is still owned, then `stop`. `open` comes with partitions
    gained and `close` with partitions given up; `close` follows a `pre_commit` of these partitions
    unless they were lost. Of a poll that brought records the task sees: `put_dead_letter` for each
    that failed, `put` or `put_batch` with what is left, then `end_poll`.
    """

    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Take the context; called once, before `start`."""
        self.context = context

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Get ready for partitions; the first records of each follow. Errors fail the task."""
        return

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Give up partitions: another task may have them next. Errors fail the task."""
        return

    def position_lost(self, partition: TopicPartition) -> bool:
        """The log does not hold the next offset to read: retention was faster, it was truncated, or
        the topic is new.

        Return whether the task sees to it: nothing more is read of the partition until it calls
        `context.offset`. Unless overridden, reading goes on where the log was truncated, else where
        `auto.offset.reset` says, and rows in between are passed over; with `auto.offset.reset=none`
        the task fails. Rows read before are put as ever. Comes inside a poll, between `put`s, and
        perhaps again while the task has not said where to read on.

        Raises:
            ConnectError: The task fails until a user restarts it.
        """
        return False

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take rows: write them now, or keep them until `pre_commit`.

        Called on the task's own thread, never twice at once. Records of one partition arrive in
        offset order; partitions interleave. An empty list comes with every idle poll and is a good
        moment for housekeeping.

        Raises:
            RetriableError: Partitions pause and the same records come again.
            ConnectError: The task fails until a user restarts it.
        """
        if records:
            raise NotImplementedError(f"{type(self).__name__} has neither put nor put_batch")

    def put_batch(self, batch: Batch) -> None:
        """Take columns: the form the worker calls; `put` with the rows unless overridden.

        Thread, order and errors as for `put`; never empty (an idle poll calls `put([])`). One
        topic, one schema on each side; the next call may bring others. The batch shares columns
        with earlier stages: derive, never write. After a `RetriableError` the same batch comes
        again, alone: batches before it are not repeated.
        """
        self.put(batch.records())

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Keep a record that failed, as safely as records that did not. Not offered unless
        overridden.

        Called if `errors.deadletterqueue.iceberg.table` is set: a connector that offers this
        defines the key, and validation refuses it for all others. On the task thread; for records
        that fail in converters and transformations before the first `put` of their poll, for those
        that the task reports itself from within `report` and `report_row`. So offsets of letters
        lie between those of the puts, and only `end_poll` says that all below an offset is known. A
        record that is read again comes again.

        Raises:
            ConnectError: The task fails.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no dead letters")

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Everything that a poll brought was put, dropped by transformations, or handed over as
        dead letters.

        `consumed` has the next offset to read of each partition that the poll had records of, or
        read to its end behind markers of transactions, without those that were given up or rewound
        meanwhile. Records of one partition that went to different topics come in several puts whose
        offsets interleave: only now is nothing missing below these offsets. Follows the last put of
        the poll, also when nothing was left to put; the next `pre_commit` sees at least these
        offsets.

        Raises:
            RetriableError: Partitions pause, and the same call comes again.
            ConnectError: The task fails.
        """
        return

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, SafeOffset]:
        """Return the next-to-read offsets that are safe, at most those in `current`.

        A value may be an `OffsetAndMetadata`; its metadata is committed along, also when the offset
        is unchanged. Empty means "commit nothing for me"; a partition left out keeps its last
        commit. Unless overridden, everything put so far is flushed and safe.

        Raises:
            ConnectError: The commit counts as failed; the task reads again from its last commit.
        """
        self.flush(current)
        return current

    def flush(self, current: Mapping[TopicPartition, int]) -> None:
        """Return once everything put so far is durable."""
        return


class ExactlyOnceSupport(Enum):
    """Whether a source can do exactly-once delivery with a configuration."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionBoundarySupport(Enum):
    """Whether the tasks of a source can say where transactions end."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class TransactionContext(Protocol):
    """How a source task ends transactions itself (`transaction.boundary=connector`), on the task
    thread.

    With a record the transaction ends right after that record, which a later `poll` may return;
    without one after the records of the next `poll`, or of the one that is running. Records of an
    aborted transaction are dropped for good: their source offsets are stored all the same. A task
    that wants them read again raises an error instead.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit. ConnectError: an abort was asked for at the same place."""

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort. ConnectError: a commit was asked for at the same place."""


class OffsetStorageReader(Protocol):
    """Reads what the connector last stored, on the task thread."""

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        """The offset of one source partition, or None."""

    def offsets(
        self, partitions: Iterable[Mapping[str, Value]]
    ) -> Sequence[Mapping[str, Value] | None]:
        """The same for several, in order."""


class SourceTaskContext(SharedServices, BoundedWaitReporter, Protocol):
    """What a source task may ask of the worker, on the task thread; for shared services and what
    waits on any."""

    @property
    def connector(self) -> str:
        """The connector's name."""

    @property
    def task(self) -> int:
        """The task's number, from 0."""

    @property
    def offset_storage_reader(self) -> OffsetStorageReader:
        """The offsets stored so far."""

    @property
    def metrics(self) -> PluginMetrics:
        """For measurements of the task's own."""

    @property
    def transaction_context(self) -> TransactionContext | None:
        """How to end transactions; None unless the connector's configuration leaves that to its
        tasks."""

    def configs(self) -> Mapping[str, str]:
        """The task's configuration, placeholders resolved."""


class SourceTask(Task):
    """Reads records from elsewhere.

    Life: `initialize`, `start`, then `poll` again and again with `commit_record` and `commit` in
    between, then `stop`.
    """

    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Take the context; called once, before `start`."""
        self.context = context

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord]:
        """Return new records, or none; wait a short while for them at most (0.2 s keeps stops
        quick).

        Raises:
            RetriableError: Called again after a pause.
            ConnectError: The task fails until a user restarts it.
        """

    def commit(self) -> None:
        """Offsets up to some earlier poll are stored now."""
        return

    def commit_record(self, record: SourceRecord, metadata: OffsetAndMetadata | None) -> None:
        """A record was acknowledged at this topic offset; `metadata` is None when it was filtered
        or skipped."""
        return
