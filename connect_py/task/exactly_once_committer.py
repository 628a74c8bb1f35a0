"""`ExactlyOnceCommitter`: records and their offsets get into Kafka in one transaction, or not at
all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.storage import compact_json
from connect_py.storage.offset_table import check_primitives
from connect_py.task.messages import CopySourceOffsets, FenceZombies, MakeOffsetKeys, VerifyTask
from connect_py.task.source_committer import NotDeliveredError, SourceCommitter
from connect_py.task.source_producer import OutgoingRecord, SourceProducer
from connect_py.task.submitted_records import Entry, PartitionKey, Submitted, partition_key
from connect_py.task.task_control import RefusedError, TaskControl, TaskStoppedError
from connect_py.task.transaction_boundary import TransactionBoundary, WorkerTransactionContext
from connect_py.task.transaction_outcome import RecordPlace

SLICE_SECONDS: Final = 1.0  # the client is asked again until it knows the outcome
FENCE_SECONDS: Final = 60.0
ABORT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 60.0
# of keys and values: a transaction of the boundary `interval` ends before its time
FULL_BYTES: Final = 64 << 20

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
# Why a transaction may end without anybody's fault: the broker was away for longer than it may
# take. These say nothing about the records, which can be sent again.
_LOST: Final = _FENCED | frozenset(
    {
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.TRANSACTION_ABORTABLE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
    }
)
_UNEXPLAINED: Final = frozenset({KafkaError._STATE, KafkaError._FATAL, KafkaError._INCONSISTENT})

log = logging.getLogger(__name__)


class TaskFencedError(ConnectError):
    """A newer producer of this task exists; nothing of the open transaction is in Kafka, or
    everything."""

    def __init__(self, transactional_id: str, why: str) -> None:
        super().__init__(f"producer {transactional_id} was fenced: {why}")


class TransactionLostError(ConnectError):
    """The producer can write no more under its id; the transaction that was open may even have been
    committed."""


class ExactlyOnceCommitter(SourceCommitter):
    """Owns the transactions of a task's producer.

    The steps of a commit. Whatever dies in between, the transaction is aborted by the next `open`
    of this id or by the broker's time-out, readers of committed records see nothing of it, and the
    offsets are those before it.

    1. the records are with the client                               (`dispatched`)
    2. the records of the offset topic, in the same transaction      (`_store_offsets`)
    3. commit: the client waits for all acknowledgements first       (`_commit_client`)
    4. the task learns of it                                         (`commit_record`, `commit`)

    A transaction that took too long, as when the broker is away, is aborted by the broker, and its
    producer may write no more. Then a new one takes the id, and what did not get into Kafka is sent
    again (`_repair`). The broker says the same of a producer whose id another producer has taken;
    how long the transaction was open tells the two apart.
    """

    def __init__(
        self,
        task: SourceTask,
        producer: SourceProducer,
        transactional_id: str,
        control: TaskControl,
        metrics: SourceMetrics,
        clock: Clock,
        *,
        boundary: TransactionBoundary,
        interval_ms: int,
        timeout_ms: int,
        transactions: WorkerTransactionContext | None,
        copies_offsets: bool,
        is_committed: Callable[[RecordPlace], bool],
    ) -> None:
        """Prepare.

        Args: interval_ms: Between commits, for the boundary `interval`; at most half of
            `timeout_ms` is used. timeout_ms: For how long the broker lets a transaction be open.
            transactions: What the task asks for, with the boundary `connector`. copies_offsets:
            Whether the connector keeps its offsets in a topic of its own. is_committed: Whether the
            transaction of a record, which has ended, was committed; waits, and raises
                TaskStoppedError.
        """
        super().__init__(task, metrics, clock)
        self._producer = producer
        self._id = transactional_id
        self._control = control
        self._boundary = boundary
        self._interval = min(interval_ms, timeout_ms / 2) / 1000
        self._timeout = timeout_ms / 1000
        self._transactions = transactions
        self._copies_offsets = copies_offsets
        self._is_committed = is_committed
        self._next_commit = 0.0
        self._open = False  # a transaction
        self._begun = 0.0  # when the last one was
        self._size = 0  # records in it
        self._bytes = 0  # of their keys and values, which are kept until it ends
        self._offsets: dict[PartitionKey, tuple[Entry, Entry]] = {}  # not stored yet
        self._taken: list[
            tuple[Submitted, OffsetAndMetadata | None]
        ] = []  # to tell the task of after the commit
        self._raw_keys: dict[PartitionKey, bytes] = {}
        self._offset_topic = ""
        self._active = 0  # records in hand
        self._sent: list[tuple[Submitted, OutgoingRecord]] = []  # in the open transaction
        # one of the offsets of the transaction that is being committed
        self._stored_at: RecordPlace | None = None
        # why the first record of the transaction was not delivered
        self._broken: KafkaError | None = None
        self._repairing = False

    def open(self) -> None:
        """Fence producers that may still write for this connector's tasks, then take this task's
        id.

        Raises:
            ConnectError: The task set has changed, or the cluster refuses.
            TaskStoppedError: A stop was asked for meanwhile.
        """
        self._fence_zombies()
        self._take_id()
        self._offset_topic = self._control.ask_patiently(VerifyTask(self._control.next_number()))
        self._next_commit = self._clock.monotonic() + self._interval

    def _take_id(self) -> None:
        while True:
            self._control.check()
            try:
                self._producer.client.init_transactions(SLICE_SECONDS)
                return
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if problem.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                    raise ConnectError(
                        f"transactional id '{self._id}' is not granted (ACL: Write and Describe "
                        f"on TransactionalId '{self._id}')"
                    ) from error
                if not problem.retriable():
                    raise ConnectError(
                        f"transactional id {self._id} was not obtained: {problem.str()}"
                    ) from error
                log.debug("transactional id %s is not obtained yet: %s", self._id, problem.str())

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
                f"a source task may not write to '{topic}', which holds its offsets, with "
                f"exactly-once support"
            )
        try:
            self._begin()
        except TransactionLostError as lost:
            self._repair(lost)
            self._begin()

    def refused(self, error: KafkaException) -> None:
        try:
            self._fail("write", error)
        except TransactionLostError as lost:
            self._repair(lost)
            self._begin()

    def dispatched(self, submitted: Submitted, record: OutgoingRecord) -> None:
        self._size += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")
        self._sent.append((submitted, record))
        self._note(submitted)

    def _note(self, submitted: Submitted) -> None:
        record = submitted.record
        self._offsets[partition_key(record.source_partition)] = (
            record.source_partition,
            record.source_offset,
        )
        if self._transactions is not None:
            commit, abort = self._transactions.take_record(record)
            self._end_if_asked(commit=commit, abort=abort)

    def acknowledged(self, submitted: Submitted, message: Message) -> None:
        self._taken.append((submitted, OffsetAndMetadata(message.offset() or 0)))

    def lost(self, submitted: Submitted, error: KafkaError | None) -> None:
        self._broken = self._broken or error
        # of an aborted transaction; after other failures no commit succeeds
        self._taken.append((submitted, None))

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
        if self._boundary is not TransactionBoundary.INTERVAL:
            return
        if self._bytes >= FULL_BYTES or self._clock.monotonic() >= self._next_commit:
            self._next_commit = self._clock.monotonic() + self._interval
            self._commit()

    def _end_if_asked(self, *, commit: bool, abort: bool) -> None:
        """After an abort the offsets are stored all the same: those records are not to come
        again."""
        if abort:
            self._abort_as_asked()
        if commit or abort:
            self._commit()

    def _abort_as_asked(self) -> None:
        if not self._open:
            log.warning("the task aborts a transaction that holds no record")
            return
        log.info(
            "the transaction is aborted, as the task asks for: %d records are dropped", self._size
        )
        try:
            self._producer.client.abort_transaction()
        except KafkaException as error:
            self._abort_by_force(error)
        self._ended()
        self._taken = [(submitted, None) for submitted, _ in self._taken]  # they are nowhere

    def _abort_by_force(self, error: KafkaException) -> None:
        """A new producer's first act is the end of a transaction that its predecessor has left
        open."""
        try:
            self._fail("abort", error)
        except TransactionLostError as lost:
            self._taken = self._taken_before() + [(submitted, None) for submitted, _ in self._sent]
            self._sent.clear()
            self._repair(lost)

    # Transactions.

    def _begin(self) -> None:
        if self._open:
            return
        try:
            self._producer.client.begin_transaction()
        except KafkaException as error:
            self._fail("begin", error)
        self._open = True
        self._begun = self._clock.monotonic()

    def _ended(self) -> None:
        self._open = False
        self._size = self._bytes = 0
        self._sent.clear()
        self._broken = self._stored_at = None

    def _commit(self) -> None:
        started = self._clock.monotonic()
        if not self._open and not self._offsets:
            return
        offsets = list(self._offsets.values())
        while not self._committed(started):
            pass  # repaired: once more
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

    def _committed(self, started: float) -> bool:
        """Try to commit; False when the transaction was lost, and stands again as it was."""
        try:
            self._begin()  # offsets alone, after records that were filtered
            self._store_offsets()
            self._commit_client()
        except TransactionLostError as lost:
            self._metrics.commits.failed(self._clock.monotonic() - started)
            return self._repair(lost)
        except Exception:
            self._metrics.commits.failed(self._clock.monotonic() - started)
            raise
        return True

    def _store_offsets(self) -> None:
        """Write the records of the offset topic, under the keys that the worker knows; they never
        change."""
        unknown = {key: pair for key, pair in self._offsets.items() if key not in self._raw_keys}
        if unknown:
            question = MakeOffsetKeys(
                self._control.next_number(), [partition for partition, _ in unknown.values()]
            )
            keys: Sequence[bytes] = self._control.ask(question, ANSWER_SECONDS)
            self._raw_keys |= zip(unknown, keys, strict=True)
        for key, (_, offset) in self._offsets.items():
            check_primitives(offset)
            value = compact_json.encode(dict(offset))
            stored = OutgoingRecord(
                self._offset_topic, value, self._raw_keys[key], (), 0, None, self._offset_stored
            )
            self._produce(stored, "store the offsets of")

    def _offset_stored(self, error: KafkaError | None, message: Message) -> None:
        """Inside the client's `poll`."""
        if error is not None:
            self._broken = self._broken or error
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is not None and partition is not None and offset is not None:
            self._stored_at = RecordPlace(topic, partition, offset)

    def _commit_client(self) -> None:
        """Wait for the outcome, however long: the client gives up by itself when the transaction's
        time is over."""
        while True:
            try:
                self._producer.client.commit_transaction(SLICE_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    self._fail("commit", error)

    def _fail(self, what: str, error: KafkaException) -> NoReturn:
        problem = _explained(self._producer, self._broken, error.args[0])
        timed_out = self._open and self._clock.monotonic() - self._begun >= self._timeout
        if problem.code() in _FENCED and not timed_out:
            self._open = False
            raise TaskFencedError(self._id, "a newer instance of this task exists") from error
        text = f"cannot {what} a transaction of {self._id}: {problem.str()}"
        raise (
            TransactionLostError(text) if problem.code() in _LOST else NotDeliveredError(text)
        ) from error

    # A new producer.

    def _repair(self, lost: TransactionLostError) -> bool:
        """Have a new producer in the state that the lost one should be in; whether its transaction
        was committed.

        Between the steps the process may die: what follows finds the offsets of the last committed
        transaction.

        1. the worker says that the task is still its own    (a newer instance must not be fenced by an older one)
        2. a new producer takes the id                       (the old transaction ends, whichever way)
        3. the worker says so once more                      (a newer instance that was fenced does the same as this)
        4. if all records had arrived, one of them is looked for: they may have been committed
        5. otherwise they are sent again, in a new transaction
        """  # noqa: E501 - a table or a literal is wider
        self._repairing = True
        stored_at = self._stored_at
        while True:
            log.warning(
                "%s; a new producer takes over", lost, extra={"action": "producer_replaced"}
            )
            self._ask_whether_ours()
            self._producer.renew()
            self._open = False
            self._broken = self._stored_at = None
            self._take_id()
            self._ask_whether_ours()
            committed = stored_at is not None and self._is_committed(stored_at)
            stored_at = None
            try:
                if not committed:
                    self._send_again()
            except TransactionLostError as again:
                lost = again
                self._control.wait(SLICE_SECONDS)
                continue
            self._repairing = False
            return committed

    def _ask_whether_ours(self) -> None:
        while True:
            try:
                self._control.ask_patiently(VerifyTask(self._control.next_number()))
                return
            except RefusedError as refusal:
                raise TaskFencedError(self._id, str(refusal)) from refusal
            except ConnectError as error:
                log.warning("the worker does not know yet whether the task is its own: %s", error)
            self._control.wait(SLICE_SECONDS)

    def _send_again(self) -> None:
        if not self._sent:
            return
        log.info("%d records of the lost transaction are sent again", len(self._sent))
        self._taken = self._taken_before()
        self._begin()
        for _, record in self._sent:
            self._produce(record, "repeat")

    def _taken_before(self) -> list[tuple[Submitted, OffsetAndMetadata | None]]:
        """What was taken of no transaction, or of one that the task has aborted."""
        sent = {id(submitted) for submitted, _ in self._sent}
        return [taken for taken in self._taken if id(taken[0]) not in sent]

    def _produce(self, record: OutgoingRecord, what: str) -> None:
        while True:
            try:
                self._producer.send(record)
                return
            except BufferError:  # deliveries make room
                self._producer.poll(SLICE_SECONDS)
            except KafkaException as error:
                self._fail(what, error)

    def close(self, *, failed: bool) -> None:
        """Commit what was sent, unless the task failed or says itself where transactions end; else
        abort."""
        try:
            if failed or self._repairing:
                pass  # what is in the transaction is not known
            elif self._boundary is not TransactionBoundary.CONNECTOR:
                self._commit()
            elif self._transactions is not None:
                commit, abort = self._transactions.take_batch()
                self._end_if_asked(commit=commit, abort=abort)
        except (ConnectError, TaskStoppedError) as error:
            log.warning(
                "the last transaction was not committed: %s", error or "the task was to stop"
            )
        if self._open:
            try:
                # readers need not wait for the time-out
                self._producer.client.abort_transaction(ABORT_SECONDS)
            except KafkaException as error:
                log.warning("the open transaction was not aborted: %s", error.args[0].str())


def _explained(
    producer: SourceProducer, broken: KafkaError | None, problem: KafkaError
) -> KafkaError:
    """Why a producer refuses: it may know, and say only that it does.

    `broken`: what a record failed of, which counts first.
    """
    unexplained = problem.code() in _UNEXPLAINED
    if broken is not None and (unexplained or broken.code() not in _LOST):
        return broken
    if unexplained:
        try:
            producer.client.commit_transaction(0)  # refused as well, for the reason that counts
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return] # the client's class has no types
    return problem
