"""`ExactlyOnceCommitter`: records and their offsets get into Kafka in one transaction, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.storage import compact_json
from connect_py.storage.offset_table import check_primitives
from connect_py.task.messages import CopySourceOffsets, FenceZombies, MakeOffsetKeys, VerifyTask
from connect_py.task.source_committer import NotDeliveredError, SourceCommitter
from connect_py.task.submitted_records import Entry, PartitionKey, Submitted, partition_key
from connect_py.task.task_control import TaskControl
from connect_py.task.transaction_boundary import TransactionBoundary, WorkerTransactionContext

SLICE_SECONDS: Final = 1.0  # the client is asked again until it knows the outcome
FENCE_SECONDS: Final = 60.0
ABORT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 60.0

_FENCED: Final = frozenset({
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
})  # fmt: skip

log = logging.getLogger(__name__)


class TaskFencedError(ConnectError):
    """A newer producer of this task exists; nothing of the open transaction is in Kafka."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"producer {transactional_id} was fenced: a newer instance of this task exists, or a transaction was open "
            "for longer than transaction.timeout.ms"
        )


class ExactlyOnceCommitter(SourceCommitter):
    """Owns the transactions of a task's producer.

    The steps of a commit. Whatever dies in between, the transaction is aborted by the next `open` of this id or by
    the broker's time-out, readers of committed records see nothing of it, and the offsets are those before it.

    1. the records are with the client                               (`dispatched`)
    2. the records of the offset topic, in the same transaction      (`_store_offsets`)
    3. commit: the client waits for all acknowledgements first       (`_commit_client`)
    4. the task is told                                              (`commit_record`, `commit`)
    """

    def __init__(
        self,
        task: SourceTask,
        producer: Producer,
        transactional_id: str,
        control: TaskControl,
        metrics: SourceMetrics,
        clock: Clock,
        *,
        boundary: TransactionBoundary,
        interval_ms: int,
        transactions: WorkerTransactionContext | None,
        copies_offsets: bool,
    ) -> None:
        """Prepare.

        Args:
            interval_ms: Between commits, for the boundary `interval`.
            transactions: What the task asks for, with the boundary `connector`.
            copies_offsets: Whether the connector keeps its offsets in a topic of its own.
        """
        super().__init__(task, metrics, clock)
        self._producer = producer
        self._id = transactional_id
        self._control = control
        self._boundary = boundary
        self._interval = interval_ms / 1000
        self._transactions = transactions
        self._copies_offsets = copies_offsets
        self._next_commit = 0.0
        self._open = False  # a transaction
        self._size = 0  # records in it
        self._offsets: dict[PartitionKey, tuple[Entry, Entry]] = {}  # not stored yet
        self._taken: list[tuple[Submitted, OffsetAndMetadata | None]] = []  # to tell the task of after the commit
        self._raw_keys: dict[PartitionKey, bytes] = {}
        self._offset_topic = ""
        self._active = 0  # records in hand

    def open(self) -> None:
        """Fence whoever may still write for this connector's tasks, then take this task's id.

        Raises:
            ConnectError: The task set has changed, or the cluster refuses.
            TaskStoppedError: A stop was asked for meanwhile.
        """
        self._fence_zombies()
        while True:
            self._control.check()
            try:
                self._producer.init_transactions(SLICE_SECONDS)
                break
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if not problem.retriable():
                    raise ConnectError(f"transactional id {self._id} was not obtained: {problem.str()}") from error
                log.debug("transactional id %s is not obtained yet: %s", self._id, problem.str())
        self._offset_topic = self._control.ask_patiently(VerifyTask(self._control.next_number()))
        self._next_commit = self._clock.monotonic() + self._interval

    def _fence_zombies(self) -> None:
        """Ask again for a while: the leader of the worker group may just be changing."""
        deadline = self._clock.monotonic() + FENCE_SECONDS
        while True:
            try:
                self._control.ask_patiently(FenceZombies(self._control.next_number()))
                return
            except ConnectError as error:
                if self._clock.monotonic() >= deadline:
                    raise
                log.warning("zombies are not fenced yet: %s", error)
            self._control.wait(SLICE_SECONDS)

    # Records.

    def submit(self, record: SourceRecord) -> Submitted:
        self._active += 1
        return Submitted(record)

    def drop(self, submitted: Submitted) -> None:
        self._taken.append((submitted, None))
        self._note(submitted)

    def sending(self, topic: str) -> None:
        if topic == self._offset_topic:
            raise ConnectError(
                f"a source task may not write to '{topic}', which holds its offsets, with exactly-once support"
            )
        self._begin()

    def dispatched(self, submitted: Submitted) -> None:
        self._size += 1
        self._note(submitted)

    def _note(self, submitted: Submitted) -> None:
        record = submitted.record
        self._offsets[partition_key(record.source_partition)] = (record.source_partition, record.source_offset)
        if self._transactions is not None:
            commit, abort = self._transactions.take_record(record)
            self._end_if_asked(commit=commit, abort=abort)

    def acknowledged(self, submitted: Submitted, message: Message) -> None:
        self._taken.append((submitted, OffsetAndMetadata(message.offset() or 0)))

    def lost(self, submitted: Submitted) -> None:
        self._taken.append((submitted, None))  # of an aborted transaction; after other failures no commit succeeds

    @property
    def tolerates_lost_records(self) -> bool:
        return False

    @property
    def active(self) -> int:
        return self._active

    # Boundaries.

    def batch_done(self) -> None:
        if self._boundary is TransactionBoundary.POLL:
            self._commit()
        elif self._transactions is not None:
            commit, abort = self._transactions.take_batch()
            self._end_if_asked(commit=commit, abort=abort)
        self.tick()

    def tick(self) -> None:
        if self._boundary is TransactionBoundary.INTERVAL and self._clock.monotonic() >= self._next_commit:
            self._next_commit = self._clock.monotonic() + self._interval
            self._commit()

    def _end_if_asked(self, *, commit: bool, abort: bool) -> None:
        """After an abort the offsets are stored all the same: those records are not to come again."""
        if abort:
            self._abort_as_asked()
        if commit or abort:
            self._commit()

    def _abort_as_asked(self) -> None:
        if not self._open:
            log.warning("the task aborts a transaction that holds no record")
            return
        log.info("the transaction is aborted, as the task asks for: %d records are dropped", self._size)
        try:
            self._producer.abort_transaction()
        except KafkaException as error:
            self._fail("abort", error)
        self._ended()
        self._taken = [(submitted, None) for submitted, _ in self._taken]  # they are nowhere

    # Transactions.

    def _begin(self) -> None:
        if self._open:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            self._fail("begin", error)
        self._open = True

    def _ended(self) -> None:
        self._open = False
        self._size = 0

    def _commit(self) -> None:
        started = self._clock.monotonic()
        if not self._open and not self._offsets:
            return
        try:
            self._begin()  # offsets alone, after records that were filtered
            offsets = list(self._offsets.values())
            self._store_offsets()
            self._commit_client()
        except Exception:
            self._metrics.commits.failed(self._clock.monotonic() - started)
            raise
        self._metrics.transaction(self._size)
        self._ended()
        self._metrics.commits.succeeded(self._clock.monotonic() - started)
        self._offsets.clear()
        taken, self._taken = self._taken, []
        for submitted, metadata in taken:
            self._metrics.written += metadata is not None
            self._record_committed(submitted.record, metadata)
        self._active = 0
        self._tell_task()
        if self._copies_offsets:
            self._control.send(CopySourceOffsets(offsets))

    def _store_offsets(self) -> None:
        """Write the records of the offset topic, under the keys that the worker knows; they never change."""
        unknown = {key: pair for key, pair in self._offsets.items() if key not in self._raw_keys}
        if unknown:
            question = MakeOffsetKeys(self._control.next_number(), [partition for partition, _ in unknown.values()])
            keys: Sequence[bytes] = self._control.ask(question, ANSWER_SECONDS)
            self._raw_keys |= zip(unknown, keys, strict=True)
        for key, (_, offset) in self._offsets.items():
            check_primitives(offset)
            self._produce_offset(self._raw_keys[key], compact_json.encode(dict(offset)))

    def _produce_offset(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._offset_topic, value, key)
                return
            except BufferError:  # deliveries make room
                self._producer.poll(SLICE_SECONDS)
            except KafkaException as error:
                self._fail("store the offsets of", error)

    def _commit_client(self) -> None:
        """Wait for the outcome, however long: the client gives up by itself when the transaction's time is over."""
        while True:
            try:
                self._producer.commit_transaction(SLICE_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    self._fail("commit", error)

    def _fail(self, what: str, error: KafkaException) -> NoReturn:
        problem: KafkaError = error.args[0]
        if problem.code() in _FENCED:
            self._open = False
            raise TaskFencedError(self._id) from error
        raise NotDeliveredError(f"cannot {what} a transaction of {self._id}: {problem.str()}") from error

    def close(self, *, failed: bool) -> None:
        """Commit what was sent, unless the task failed or says itself where transactions end; else abort."""
        try:
            if not failed and self._boundary is not TransactionBoundary.CONNECTOR:
                self._commit()
            elif not failed and self._transactions is not None:
                commit, abort = self._transactions.take_batch()
                self._end_if_asked(commit=commit, abort=abort)
        except ConnectError:
            log.exception("the last transaction was not committed")
        if self._open:
            try:
                self._producer.abort_transaction(ABORT_SECONDS)  # readers need not wait for the time-out
            except KafkaException as error:
                log.warning("the open transaction was not aborted: %s", error.args[0].str())
