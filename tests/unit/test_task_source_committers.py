"""When a source's offsets are stored, and what is done when that fails."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.kafka.client_config import ClientConfigs, exactly_once_sources
from connect_py.metrics.sampled import Window
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.model import TargetState
from connect_py.task.messages import (
    FenceZombies,
    MakeOffsetKeys,
    TaskNotWantedError,
    VerifyTask,
    WriteSourceOffsets,
)
from connect_py.task.source import exactly_once_committer, transaction_outcome
from connect_py.task.source.at_least_once_committer import AtLeastOnceCommitter
from connect_py.task.source.exactly_once_committer import ExactlyOnceCommitter, TaskFencedError
from connect_py.task.source.source_committer import NotDeliveredError
from connect_py.task.source.source_producer import OutgoingRecord, SourceProducer
from connect_py.task.source.transaction_boundary import (
    TransactionBoundary,
    WorkerTransactionContext,
)
from connect_py.task.source.transaction_outcome import RecordPlace
from connect_py.task.task_control import TaskControl
from connect_py.task.worker_client import TaskStoppedError
from connect_py.testing import FakeClock


class Task(SourceTask):
    def __init__(self) -> None:
        self.told: list[object] = []

    def start(self, props: Any) -> None: ...

    def poll(self) -> list[SourceRecord]:
        return []

    def stop(self) -> None: ...

    def commit(self) -> None:
        self.told.append("commit")

    def commit_record(self, record: SourceRecord, metadata: OffsetAndMetadata | None) -> None:
        self.told.append((record.source_offset["at"], metadata and metadata.offset))
        raise RuntimeError("what a task makes of it changes nothing")


@dataclass
class Message:
    at: int

    def topic(self) -> str:
        return "offsets"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at


@dataclass
class Producer:
    """Writes down calls, and delivers at once what goes to the offset topic. `errors` are raised,
    by name of the call.

    Records of the task are delivered by the tests.
    """

    calls: list[object] = field(default_factory=list)
    errors: dict[str, list[int]] = field(default_factory=dict)  # codes, the next one first
    delivers: bool = True

    def flush(self, timeout: float) -> int:
        return 0

    def produce(
        self, topic: str, value: bytes, key: bytes, *, on_delivery: Any, **_: object
    ) -> None:
        self._call("produce", ("produce", topic, value, key))
        if topic == "offsets" and self.delivers:
            on_delivery(None, Message(50))

    def _call(self, name: str, call: object) -> None:
        self.calls.append(call)
        if self.errors.get(name):
            raise KafkaException(KafkaError(self.errors[name].pop(0)))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_: self._call(name, name)


class Bench:
    """A control whose worker answers by `answers`: a value, or an error, by kind of question; else
    it is silent."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.replies: list[Future[Any]] = []
        self.answers: dict[type, Any] = {}
        self.clock = FakeClock()
        self.control = TaskControl(TargetState.STARTED, self._call, self.asked.append)
        self.task, self.producer = Task(), Producer()
        self.clients = 0
        self.replaceable: Any = SourceProducer(self._client)
        self.committed = False  # what is found of a transaction of unknown outcome
        self.looked_for: list[RecordPlace] = []
        self.metrics = SourceMetrics(self.clock, Window())

    def _client(self) -> Any:
        """Every client writes down its calls in the same list."""
        self.clients += 1
        return replace(self.producer, errors={})

    def _is_committed(self, place: RecordPlace) -> bool:
        self.looked_for.append(place)
        return self.committed

    def _call(self, request: Any) -> Future[Any]:
        self.asked.append(request)
        reply: Future[Any] = Future()
        self.replies.append(reply)
        answer = self.answers.get(type(request))
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        elif type(request) in self.answers:
            reply.set_result(answer)
        return reply

    def at_least_once(self) -> AtLeastOnceCommitter:
        committer = AtLeastOnceCommitter(
            self.task,
            self.replaceable,
            self.control,
            self.metrics,
            self.clock,
            commit_interval_ms=10_000,
            commit_timeout_ms=5_000,
        )
        committer.open()
        return committer

    def exactly_once(
        self,
        boundary: TransactionBoundary,
        transactions: WorkerTransactionContext | None = None,
        interval_ms: int = 1_000,
    ) -> ExactlyOnceCommitter:
        self.answers |= {FenceZombies: None, VerifyTask: "offsets", MakeOffsetKeys: [b"key"]}
        committer = ExactlyOnceCommitter(
            self.task,
            self.replaceable,
            "g-c-0",
            self.control,
            self.metrics,
            self.clock,
            boundary=boundary,
            interval_ms=interval_ms,
            timeout_ms=60_000,
            transactions=transactions,
            copies_offsets=False,
            is_committed=self._is_committed,
        )
        committer.open()
        return committer


def record(at: int) -> SourceRecord:
    return SourceRecord(
        "t", None, None, None, None, None, source_partition={"p": 1}, source_offset={"at": at}
    )


def outgoing(at: int, deliver: Callable[..., None] = lambda *_: None) -> OutgoingRecord:
    return OutgoingRecord("t", b"%d" % at, None, (), 0, None, deliver)


def send(committer: ExactlyOnceCommitter, at: int, *, acknowledged: bool = True) -> None:
    submitted = committer.submit(record(at))
    committer.sending("t")
    committer.dispatched(submitted, outgoing(at))
    if acknowledged:
        committer.acknowledged(submitted, Message(100 + at))  # type: ignore[arg-type]


def test_offsets_that_were_not_stored_go_with_the_next_commit() -> None:
    bench = Bench()
    committer = bench.at_least_once()
    committer.acknowledged(committer.submit(record(1)), Message(7))  # type: ignore[arg-type]
    committer.tick()
    assert bench.asked == []
    bench.clock.now += 10
    committer.tick()
    assert bench.asked[0].offsets == [({"p": 1}, {"at": 1})]
    bench.clock.now += 5.1
    committer.tick()  # nobody has answered
    assert bench.metrics.commits.failures == 1
    assert "commit" not in bench.task.told
    bench.answers[WriteSourceOffsets] = ConnectError("not now")
    bench.clock.now += 10
    committer.tick()
    committer.tick()
    assert bench.metrics.commits.failures == 2
    bench.answers[WriteSourceOffsets] = None
    committer.close(failed=True)
    assert [question.offsets for question in bench.asked] == [[({"p": 1}, {"at": 1})]] * 3
    assert bench.task.told == [(1, 7), "commit"]


def test_late_answer_to_a_timed_out_commit_does_not_count() -> None:
    bench = Bench()
    committer = bench.at_least_once()
    committer.drop(committer.submit(record(1)))
    bench.clock.now += 10
    committer.tick()
    bench.clock.now += 6
    committer.tick()
    bench.replies[0].set_result(None)
    committer.tick()
    assert bench.metrics.commits.completed == 0


def test_each_poll_is_a_transaction_with_its_offsets() -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.POLL)
    send(committer, 1)
    send(committer, 2)
    committer.batch_done()
    committer.batch_done()  # nothing happened since
    assert bench.producer.calls == [
        "init_transactions",
        "begin_transaction",
        ("produce", "offsets", b'{"at":2}', b"key"),
        "commit_transaction",
    ]
    assert bench.task.told == [(1, 101), (2, 102), "commit"]
    send(committer, 3)
    committer.batch_done()
    assert [type(question) for question in bench.asked].count(
        MakeOffsetKeys
    ) == 1  # keys never change


def test_filtered_records_move_the_offset_in_a_separate_transaction() -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.POLL)
    committer.drop(committer.submit(record(5)))
    committer.batch_done()
    assert ("produce", "offsets", b'{"at":5}', b"key") in bench.producer.calls
    assert bench.task.told == [(5, None), "commit"]


def test_an_interval_ends_also_while_nothing_new_comes() -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.INTERVAL)
    send(committer, 1)
    committer.batch_done()
    assert "commit_transaction" not in bench.producer.calls
    bench.clock.now += 1
    committer.tick()
    assert bench.producer.calls[-1] == "commit_transaction"


def test_an_interval_ends_before_the_broker_gives_its_transaction_up() -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.INTERVAL, interval_ms=60_000)
    send(committer, 1)
    bench.clock.now += 29.9
    committer.tick()
    assert "commit_transaction" not in bench.producer.calls
    bench.clock.now += 0.1
    committer.tick()
    assert bench.producer.calls[-1] == "commit_transaction"


def test_an_interval_ends_when_its_records_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # of which each record here has one
    monkeypatch.setattr(exactly_once_committer, "FULL_BYTES", 3)
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.INTERVAL)
    for commits in range(3):
        for at in range(3):
            assert bench.producer.calls.count("commit_transaction") == commits
            send(committer, at)
            committer.batch_done()
    assert bench.producer.calls[-1] == "commit_transaction"


def test_the_task_ends_transactions_at_records_and_batches() -> None:
    bench = Bench()
    transactions = WorkerTransactionContext()
    committer = bench.exactly_once(TransactionBoundary.CONNECTOR, transactions)
    first, second = record(1), record(2)
    transactions.commit_transaction(first)
    with pytest.raises(ConnectError, match="already requested to commit"):
        transactions.abort_transaction(first)
    for each in (first, second):
        submitted = committer.submit(each)
        committer.sending("t")
        committer.dispatched(submitted, outgoing(0))
    assert bench.producer.calls.count("commit_transaction") == 1
    committer.batch_done()
    assert bench.producer.calls.count("commit_transaction") == 1  # nobody asked
    transactions.abort_transaction()
    committer.batch_done()
    assert bench.producer.calls[-4:] == [
        "abort_transaction",
        "begin_transaction",
        ("produce", "offsets", b'{"at":2}', b"key"),
        "commit_transaction",
    ]
    send(committer, 3)
    committer.close(failed=False)
    assert bench.producer.calls[-1] == "abort_transaction"  # the task never said that it ends


def test_a_failed_task_leaves_nothing_of_its_open_transaction() -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.INTERVAL)
    send(committer, 1)
    committer.close(failed=True)
    assert bench.producer.calls[-1] == "abort_transaction"
    assert bench.task.told == []


def test_records_may_not_go_where_the_offsets_are() -> None:
    committer = Bench().exactly_once(TransactionBoundary.POLL)
    with pytest.raises(ConnectError, match="must not write to its offset topic 'offsets'"):
        committer.sending("offsets")


NEW_PRODUCER = ["purge", "poll", "init_transactions", "begin_transaction"]
OFFSET = ("produce", "offsets", b'{"at":2}', b"key")
LOST = [
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.INVALID_TXN_STATE,
]


def two_records(bench: Bench) -> ExactlyOnceCommitter:
    """In a transaction that the broker may have given up."""
    committer = bench.exactly_once(TransactionBoundary.POLL)
    send(committer, 1)
    send(committer, 2)
    bench.producer.calls.clear()
    bench.clock.now += 60
    return committer


@pytest.mark.parametrize("age", [0, 59])
def test_fenced_producer_does_not_take_its_id_back(age: float) -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.POLL)
    send(committer, 1)
    bench.clock.now += age  # the broker has no reason of its own yet
    bench.replaceable.client.errors["commit_transaction"] = [KafkaError._FENCED]
    with pytest.raises(TaskFencedError, match="a newer instance of this task exists"):
        committer.batch_done()
    assert bench.clients == 1


@pytest.mark.parametrize("code", LOST)
def test_aborted_transaction_is_repeated_by_a_new_producer(code: int) -> None:
    bench = Bench()
    committer = two_records(bench)
    bench.replaceable.client.errors["commit_transaction"] = [code]
    committer.batch_done()
    assert bench.clients == 2
    # every record had arrived: it might be in
    assert bench.looked_for == [RecordPlace("offsets", 0, 50)]
    assert bench.producer.calls == [
        OFFSET,
        "commit_transaction",
        *NEW_PRODUCER,
        ("produce", "t", b"1", None),
        ("produce", "t", b"2", None),
        OFFSET,
        "commit_transaction",
    ]
    assert [type(question) for question in bench.asked].count(VerifyTask) == 3  # once at the start
    assert bench.metrics.commits.failures == 1
    # the records are told when the new producer has delivered them
    assert bench.task.told == ["commit"]


def test_committed_transaction_is_not_repeated_after_its_producer_failed() -> None:
    bench = Bench()
    committer = two_records(bench)
    bench.committed = True
    bench.replaceable.client.errors["commit_transaction"] = [KafkaError._FENCED]
    committer.batch_done()
    assert bench.producer.calls == [
        OFFSET,
        "commit_transaction",
        "purge",
        "poll",
        "init_transactions",
    ]
    assert bench.task.told == [(1, 101), (2, 102), "commit"]
    send(committer, 3)
    committer.batch_done()
    assert bench.producer.calls[-3:] == [
        "begin_transaction",
        ("produce", "offsets", b'{"at":3}', b"key"),
        "commit_transaction",
    ]


def test_a_commit_whose_offsets_never_arrived_cannot_have_got_in() -> None:
    bench = Bench()
    committer = two_records(bench)
    client = bench.replaceable.client
    client.delivers, client.errors["commit_transaction"] = False, [KafkaError._MSG_TIMED_OUT]
    committer.batch_done()
    assert bench.looked_for == []
    assert bench.producer.calls.count(("produce", "t", b"1", None)) == 1


def test_producer_lost_between_records_is_replaced_and_its_records_resent() -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.INTERVAL)
    send(committer, 1, acknowledged=False)
    bench.clock.now += 60
    committer.refused(KafkaException(KafkaError(KafkaError._FENCED)))
    assert bench.producer.calls[-5:] == [*NEW_PRODUCER, ("produce", "t", b"1", None)]
    committer.sending("t")
    # the transaction is open already
    assert bench.producer.calls[-1] == ("produce", "t", b"1", None)


def test_delivery_reports_of_an_old_producer_do_not_count() -> None:
    bench = Bench()
    told: list[object] = []
    kept: list[Any] = []
    client = bench.replaceable.client
    client.produce = lambda *_, on_delivery, **__: kept.append(on_delivery)
    bench.replaceable.send(outgoing(1, lambda *news: told.append(news)))
    kept[0](None, Message(1))
    assert len(told) == 1
    bench.replaceable.renew()
    kept[0](KafkaError(KafkaError._PURGE_QUEUE), Message(1))
    assert len(told) == 1


def test_reassigned_task_fails_before_it_fences_the_new_owner() -> None:
    bench = Bench()
    committer = two_records(bench)
    bench.answers[VerifyTask] = TaskNotWantedError("it was reassigned to another worker")
    bench.replaceable.client.errors["commit_transaction"] = [KafkaError._FENCED]
    with pytest.raises(TaskFencedError, match="reassigned to another worker"):
        committer.batch_done()
    assert bench.clients == 1
    committer.close(failed=True)
    assert bench.task.told == []


@pytest.mark.parametrize("code", [KafkaError._INCONSISTENT, KafkaError._FENCED])
def test_a_record_that_the_broker_never_takes_fails_the_task(code: int) -> None:
    bench = Bench()
    committer = bench.exactly_once(TransactionBoundary.POLL)
    submitted = committer.submit(record(1))
    committer.sending("t")
    committer.dispatched(submitted, outgoing(1))
    committer.lost(submitted, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    bench.replaceable.client.errors["commit_transaction"] = [code]
    with pytest.raises(NotDeliveredError, match="too large"):
        committer.batch_done()
    assert bench.clients == 1


def test_stop_during_a_repair_leaves_recovery_to_the_successor() -> None:
    bench = Bench()
    committer = two_records(bench)
    bench.replaceable.client.errors["commit_transaction"] = [KafkaError._FENCED]
    del bench.answers[VerifyTask]  # nobody answers
    bench.control.stop()
    with pytest.raises(TaskStoppedError):
        committer.batch_done()
    committer.close(failed=False)
    assert bench.producer.calls.count("commit_transaction") == 1
    assert bench.task.told == []


@pytest.mark.parametrize("code", [KafkaError._FENCED, KafkaError.INVALID_TXN_STATE])
def test_transaction_to_be_aborted_ends_with_its_failed_producer(code: int) -> None:
    """Its fatal error is raised by `poll` as well, once."""
    bench = Bench()
    transactions = WorkerTransactionContext()
    committer = bench.exactly_once(TransactionBoundary.CONNECTOR, transactions)
    send(committer, 1, acknowledged=False)
    transactions.abort_transaction()
    bench.clock.now += 60
    bench.replaceable.client.errors.update(abort_transaction=[code], poll=[code])
    committer.batch_done()
    assert ("produce", "t", b"1", None) not in bench.producer.calls
    assert bench.producer.calls[-1] == "commit_transaction"  # of the offset alone
    assert bench.task.told == [(1, None), "commit"]


def test_transactional_producer_has_javas_id_and_bounds_its_delivery_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = {"group.id": "g", "exactly.once.source.support": "Enabled", "producer.acks": "1"}
    config = {
        "producer.override.transaction.timeout.ms": "9000",
        "producer.override.linger.ms": "7",
    }
    settings = ClientConfigs(worker, config, "c", 2).transactional_producer()
    assert exactly_once_sources(worker)
    assert (settings["transactional.id"], settings["enable.idempotence"], settings["acks"]) == (
        "g-c-2",
        "true",
        "all",
    )
    assert (settings["transaction.timeout.ms"], settings["delivery.timeout.ms"]) == ("9000", 9000)
    assert settings["linger.ms"] == "7"
    assert "acks cannot be changed" in caplog.text
    assert not exactly_once_sources({"exactly.once.source.support": "preparing"})


def test_pending_deliveries_do_not_keep_an_old_client_alive() -> None:
    made, told = list[Any](), list[object]()

    class Client(Producer):
        def produce(
            self, topic: str, value: Any, key: Any, *, on_delivery: Any, **_: object
        ) -> None:
            waiting.append(on_delivery)

    def client() -> Any:
        found = Client()
        made.append(weakref.ref(found))
        return found

    waiting: list[Any] = []
    producer = SourceProducer(client)
    record = OutgoingRecord("t", None, None, (), 0, None, lambda error, message: told.append(error))
    producer.send(record)
    producer.renew()
    producer.send(record)
    assert (made[0](), made[1]()) == (None, producer.client)
    for delivered in waiting:
        delivered(None, Message(1))
    assert told == [None]


class Reader:
    """A consumer that finds errors, and then the record."""

    def __init__(self, *codes: int) -> None:
        self.found: list[Any] = [KafkaError(code) for code in codes]
        self.closed = False

    def __call__(self, *_: object, **__: object) -> Reader:
        return self

    def assign(self, partitions: object) -> None: ...

    def poll(self, timeout: float) -> Any:
        error = self.found.pop(0) if self.found else None
        return SimpleNamespace(error=lambda: error, offset=lambda: 7 if error is None else None)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_unreadable_offsets_topic_fails_without_waiting_for_the_transaction(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    reader = Reader(code)
    monkeypatch.setattr(transaction_outcome, "Consumer", reader)
    with pytest.raises(ConnectError, match="cannot read offsets"):
        transaction_outcome.is_committed({}, RecordPlace("offsets", 0, 7), lambda: None)
    assert reader.closed


def test_what_keeps_a_transaction_from_being_read_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        transaction_outcome, "Consumer", Reader(*[KafkaError._ALL_BROKERS_DOWN] * 3)
    )
    assert transaction_outcome.is_committed({}, RecordPlace("offsets", 0, 7), lambda: None)
    assert caplog.text.count("cannot read offsets") == 1
