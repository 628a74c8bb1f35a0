from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from fixtures.worker_plugins import TextColumnConverter, TextHeaderConverter

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.message_run import MessageRun
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.task import SafeOffset, SinkTask
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.model import TargetState
from connect_py.task.record_pipeline import Converters, RecordPipeline
from connect_py.task.sink.consumed_messages import message_runs
from connect_py.task.sink.sink_loop import LoopSettings, SinkTaskRunner
from connect_py.task.sink.sink_pipeline import SinkPipeline
from connect_py.task.task_control import TaskControl
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.transformation_chain import TransformationChain
from connect_py.testing import FakeClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeConsumer:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.cut_off: str | None = None
        self.batches: list[list[Any]] = []
        self.reached: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.seeks: list[dict[TopicPartition, int]] = []
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.waited: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.closed = False
        self.subscribed: list[str] = []
        self.listings: list[ConnectError] = []  # answers before the usual one
        self.list_seconds: list[float] = []

    def subscribe(self, topics: Sequence[str]) -> None:
        self.subscribed = list(topics)

    def topics(self, timeout: float) -> Mapping[str, int]:
        self.list_seconds.append(timeout)
        if self.listings:
            raise self.listings.pop(0)
        return {"t": 2}

    def poll(self, limit: int, timeout: float) -> list[MessageRun]:
        self.clock.now += timeout
        if self.paused >= self.assigned or not self.batches:
            return []
        return message_runs(self.batches.pop(0))

    def ends(self) -> Mapping[TopicPartition, int]:
        found, self.reached = self.reached, {}
        return found

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            self.seeks.append(dict(offsets))

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(dict(offsets))

    def commit_and_wait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.waited.append(dict(offsets))

    def close(self) -> None:
        self.closed = True


class Recorder(SinkTask):
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fail_puts = 0
        self.safe: Any = None
        self.during_put: Any = None

    def start(self, props: Mapping[str, str]) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("open", list(partitions)))

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("close", list(partitions)))

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            self.calls.append(("put", [(r.origin.partition, r.origin.offset) for r in records]))
        if self.during_put is not None:
            self.during_put()
        if self.fail_puts:
            self.fail_puts -= 1
            raise RetriableError("later")

    def put_batch(self, batch: Batch) -> None:
        self.last = batch
        self.put(batch.records())

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, SafeOffset]:
        self.calls.append(("pre_commit", dict(current)))
        if isinstance(self.safe, Exception):
            raise self.safe
        return current if self.safe is None else self.safe

    def puts(self) -> list[Any]:
        return [call[1] for call in self.calls if call[0] == "put"]


class Loop:
    """A runner over a fake consumer, moved by hand."""

    def __init__(self, topics: Mapping[str, str] = MappingProxyType({"topics": "t"})) -> None:
        self.clock = FakeClock()
        self.consumer = FakeConsumer(self.clock)
        self.task = Recorder()
        self.sent: list[Any] = []
        self.control = TaskControl(TargetState.STARTED, lambda _: Future(), self.sent.append)
        self.runner = SinkTaskRunner(
            self.task,
            {},
            TopicSelection(topics),
            LoopSettings(commit_interval_ms=60_000),
            self.control,
            self.clock,
            self._pipeline,
            lambda _: self.consumer,  # type: ignore[arg-type, return-value]  # a fake
        )
        self.runner._next_commit = 1e9  # commits come when a test asks for them

    def _pipeline(self, wait: Callable[[float], None]) -> SinkPipeline:
        errors = ErrorHandler(ErrorConfig(), [], self.clock, wait)
        key, value, header = TextColumnConverter(), TextColumnConverter(), TextHeaderConverter()
        for converter in (key, value):
            converter.configure({}, is_key=False)
        converters = Converters(key, value, header, "K", "V", "H")
        chain = TransformationChain([], errors)
        return SinkPipeline(RecordPipeline(converters, chain, errors), errors, None)

    def assign(self, **offsets: int) -> None:
        positions = {
            TopicPartition("t", int(p[1:])): OffsetAndMetadata(at) for p, at in offsets.items()
        }
        self.consumer.assigned |= positions.keys()
        self.runner.on_assigned(positions)

    def revoke(self, *partitions: TopicPartition) -> None:
        self.runner.on_revoked(partitions)
        self.consumer.assigned -= set(partitions)

    def poll(self, *places: tuple[int, int]) -> None:
        self.consumer.batches.append(
            [
                Message(
                    topic="t",
                    partition=p,
                    offset=o,
                    key=None,
                    value=b"v",
                    timestamp=(TIMESTAMP_CREATE_TIME, 1),
                )
                for p, o in places
            ]
        )
        self.runner.iterate()

    def commit(self) -> None:
        self.runner.request_commit()
        self.runner.iterate()

    def answer(self, error: Any = None) -> None:
        self.runner.on_commit(error, self.consumer.commits[-1])


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_answered_commit_of_put_offsets_is_not_repeated(loop: Loop) -> None:
    loop.assign(p0=5)
    loop.poll((0, 5), (0, 6))
    loop.commit()
    assert loop.consumer.commits == [{T0: OffsetAndMetadata(7)}]
    loop.answer()
    loop.commit()
    assert len(loop.consumer.commits) == 1
    assert loop.runner.metrics.skipped_commits == 1


def test_log_end_behind_the_last_record_is_committed(loop: Loop) -> None:
    loop.assign(p0=5, p1=0)
    loop.consumer.reached = {T0: 8, TopicPartition("t", 1): 0, TopicPartition("t", 2): 9}
    loop.poll((0, 5), (0, 6))
    loop.commit()
    assert loop.consumer.commits == [{T0: OffsetAndMetadata(8)}], (
        "a marker of a transaction is at 7"
    )
    loop.consumer.reached = {T0: 9}
    loop.runner.iterate()
    loop.answer()
    loop.commit()
    assert loop.consumer.commits[1:] == [{T0: OffsetAndMetadata(9)}], "also where no record comes"


def test_task_learns_the_log_end_after_the_records_before_it(loop: Loop) -> None:
    told: list[Any] = []
    loop.task.end_poll = told.append  # type: ignore[assignment,method-assign]
    loop.assign(p0=5)
    loop.task.fail_puts = 1
    loop.consumer.reached = {T0: 8}
    loop.poll((0, 5), (0, 6))
    assert told == []
    loop.clock.now += 10
    loop.runner.iterate()
    assert told == [{T0: 8}]
    loop.consumer.reached = {T0: 11}
    loop.task.during_put = lambda: loop.runner.rewind({T0: 6})
    loop.runner.iterate()
    assert told == [{T0: 8}], "reading went back meanwhile"


def test_only_one_commit_is_pending_and_slow_ones_time_out(loop: Loop) -> None:
    loop.assign(p0=0)
    loop.poll((0, 0))
    loop.commit()
    loop.poll((0, 1))
    loop.commit()
    assert len(loop.consumer.commits) == 1
    loop.clock.now += 6
    loop.commit()
    loop.runner.iterate()
    assert loop.consumer.commits[-1] == {T0: OffsetAndMetadata(2)}
    assert loop.runner.metrics.commits.failures == 1
    loop.runner.on_commit(None, loop.consumer.commits[0])  # the answer to the one that was given up
    assert loop.runner.metrics.commits.completed == 0
    loop.answer()
    assert loop.runner.metrics.commits.completed == 1


def test_offsets_beyond_put_or_of_foreign_partitions_are_ignored(loop: Loop) -> None:
    loop.assign(p0=0, p1=0)
    loop.poll((0, 0), (1, 0))
    loop.task.safe = {T0: 2, T1: 1, TopicPartition("other", 0): 5}
    loop.commit()
    assert loop.consumer.commits == [{T1: OffsetAndMetadata(1)}]


def test_unrequested_offset_is_logged_only_for_an_unassigned_partition(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.assign(p0=0, p1=0)
    loop.poll((0, 0), (1, 0))
    loop.task.safe = {T0: 1, T1: 1}
    loop.revoke(T0)  # asks for this one, and the other one is still read
    assert "ignoring offset" not in caplog.text
    loop.commit()
    assert (
        f"ignoring offset that pre_commit returned for {T0}, which is not being committed"
        in caplog.text
    )


@pytest.mark.parametrize(("later", "traces"), [("the catalog is away", 0), ("the disk is full", 1)])
def test_fatal_task_error_is_not_logged_again_by_closing_commit(
    loop: Loop, caplog: pytest.LogCaptureFixture, later: str, traces: int
) -> None:
    def fail() -> None:
        loop.task.safe = ConnectError(later)
        raise ConnectError("the catalog is away")

    loop.assign(p0=0)
    loop.poll((0, 0))
    loop.task.during_put = fail
    with pytest.raises(ConnectError, match="Exiting WorkerSinkTask"):
        loop.runner.run()
    assert len([record for record in caplog.records if record.exc_info]) == traces
    assert loop.task.calls[-1] == ("close", [T0])


def test_a_mark_without_progress_is_committed(loop: Loop) -> None:
    loop.assign(p0=4)
    loop.task.safe = {T0: OffsetAndMetadata(4, "mark")}
    loop.commit()
    assert loop.consumer.commits == [{T0: OffsetAndMetadata(4, "mark")}]
    loop.answer()
    loop.commit()
    assert len(loop.consumer.commits) == 1


def test_a_failed_pre_commit_reads_again_from_the_last_commit(loop: Loop) -> None:
    loop.assign(p0=3)
    loop.poll((0, 3), (0, 4))
    loop.task.safe = ConnectError("not now")
    loop.commit()
    assert loop.consumer.seeks == [{T0: 3}]
    assert loop.consumer.commits == []
    loop.task.safe = None
    loop.commit()
    assert loop.task.calls[-1] == ("pre_commit", {T0: 3})


def test_retried_batch_is_the_same_object_while_reading_pauses(loop: Loop) -> None:
    loop.assign(p0=0)
    loop.task.fail_puts = 2
    loop.poll((0, 0), (0, 1))
    first = loop.task.last
    assert loop.consumer.paused == {T0}
    loop.commit()
    assert ("pre_commit", {T0: 0}) in loop.task.calls
    while loop.task.fail_puts or loop.consumer.paused:
        loop.runner.iterate()
    assert loop.task.last is first
    assert loop.task.puts() == [[(0, 0), (0, 1)]] * 3
    loop.poll((0, 2))
    assert loop.task.puts()[-1] == [(0, 2)]


def test_rows_of_a_revoked_partition_are_neither_retried_nor_committed(loop: Loop) -> None:
    loop.assign(p0=0, p1=0)
    loop.task.fail_puts = 1
    loop.poll((0, 0), (1, 0))
    loop.revoke(T0)
    assert ("close", [T0]) in loop.task.calls
    while loop.consumer.paused & loop.consumer.assigned:
        loop.runner.iterate()
    assert loop.task.puts()[-1] == [(1, 0)]
    loop.commit()
    assert loop.consumer.commits == [{T1: OffsetAndMetadata(1)}]


def test_revoked_partition_is_committed_before_close_in_one_wait(loop: Loop) -> None:
    loop.assign(p0=0, p1=0)
    loop.poll((0, 0), (1, 0))
    loop.revoke(T0)
    assert loop.task.calls[-2:] == [("pre_commit", {T0: 1}), ("close", [T0])]
    assert loop.consumer.waited == [{T0: OffsetAndMetadata(1)}]


def test_lost_partitions_are_closed_without_a_commit(loop: Loop) -> None:
    loop.assign(p0=0)
    loop.poll((0, 0))
    loop.runner.on_lost([T0])
    assert loop.task.calls[-1] == ("close", [T0])
    assert loop.consumer.waited == []


def test_a_partition_that_comes_back_starts_where_the_group_says(loop: Loop) -> None:
    loop.assign(p0=0)
    loop.poll((0, 0), (0, 1))
    loop.runner.on_lost([T0])
    loop.assign(p0=0)
    loop.commit()
    assert loop.task.calls[-1] == ("pre_commit", {T0: 0})


def test_seek_takes_effect_at_once_for_waiting_rows_too(loop: Loop) -> None:
    loop.assign(p0=0, p1=0)
    loop.task.during_put = lambda: loop.runner.rewind({T0: 0})
    loop.task.fail_puts = 1
    loop.poll((0, 0), (1, 0))
    assert loop.consumer.seeks == [{T0: 0}]
    loop.task.during_put = None
    while loop.consumer.paused:
        loop.runner.iterate()
    assert loop.task.puts() == [[(0, 0), (1, 0)], [(1, 0)]]
    loop.commit()
    assert loop.task.calls[-1] == ("pre_commit", {T0: 0, T1: 1})


def test_task_pauses_survive_a_user_pause_and_a_rebalance(loop: Loop) -> None:
    loop.assign(p0=0, p1=0)
    loop.runner.pause_partitions([T0])
    loop.control.set_target(TargetState.PAUSED)
    loop.runner.iterate()
    assert loop.consumer.paused == {T0, T1}
    loop.control.set_target(TargetState.STARTED)
    loop.runner.iterate()
    assert loop.consumer.paused == {T0}
    loop.revoke(T0, T1)
    loop.consumer.paused.clear()
    loop.assign(p0=0, p1=0)
    assert loop.consumer.paused == {T0}
    with pytest.raises(ConnectError, match="does not own other-0"):
        loop.runner.resume_partitions([TopicPartition("other", 0)])


def test_an_idle_poll_puts_an_empty_list(loop: Loop) -> None:
    loop.assign(p0=0)
    seen: list[int] = []
    loop.task.during_put = lambda: seen.append(1)
    loop.runner.iterate()
    assert seen == [1]
    assert loop.task.puts() == []


def test_stopping_task_commits_closes_and_waits_for_both(loop: Loop) -> None:
    loop.assign(p0=0)
    loop.poll((0, 0))
    loop.task.during_put = loop.control.stop
    loop.runner.run()
    assert loop.task.calls[-2:] == [("pre_commit", {T0: 1}), ("close", [T0])]
    assert loop.consumer.waited == [{T0: OffsetAndMetadata(1)}]
    assert loop.consumer.subscribed == ["t"]


def test_topics_are_matched_whole_by_javas_expressions() -> None:
    selection = TopicSelection({"topics.regex": r"\Qa.b\E-\p{Digit}+(?<x>z)?"})
    assert selection.among(["a.b-1", "a.b-1x", "a.b-22z", "axb-1", "__consumer_offsets"]) == [
        "a.b-1",
        "a.b-22z",
    ]
    for props in ({}, {"topics": "a", "topics.regex": "b"}):
        with pytest.raises(ConnectError, match=r"topics\.regex"):
            TopicSelection(props)


def test_failed_topic_listing_keeps_the_subscription_and_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop({"topics.regex": "t.*"})
    loop.consumer.listings = [RetriableError("away") for _ in range(3)]
    for _ in range(3):
        assert loop.consumer.subscribed == []
        loop.runner.iterate()
        asked = len(loop.consumer.listings)
        loop.runner.iterate()
        assert len(loop.consumer.listings) == asked, "not at once"
        loop.clock.now += 10
    assert caplog.text.count("keeping the current subscription: away") == 1
    assert loop.consumer.list_seconds == [3, 6, 10], "a cluster that takes its time is given more"
    loop.clock.now += 60
    loop.consumer.listings = [RetriableError("away")]
    loop.runner.iterate()
    assert caplog.text.count("keeping the current subscription: away") == 2, "once a minute"
    loop.clock.now += 10
    loop.runner.iterate()
    assert loop.consumer.subscribed == ["t"]
    loop.consumer.listings = [RetriableError("away again")]
    loop.clock.now += 1000
    loop.runner.iterate()
    assert loop.consumer.subscribed == ["t"]
    assert "away again" in caplog.text


def test_a_refusal_to_list_the_topics_ends_the_task() -> None:
    loop = Loop({"topics.regex": "t.*"})
    loop.consumer.listings = [ConnectError("refused")]
    with pytest.raises(ConnectError, match="refused"):
        loop.runner.iterate()
