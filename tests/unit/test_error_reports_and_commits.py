"""What becomes of records that failed: reports are awaited, offsets move past them, nobody swallows
a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from fixtures.worker_plugins import TextColumnConverter, TextConverter, TextHeaderConverter

from connect_py.api.batch import Batch
from connect_py.api.converter import Converter
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import ConnectError, DataError, FailureReason, RetriableError
from connect_py.api.message_run import MessageRun
from connect_py.api.record import (
    OffsetAndMetadata,
    RecordOrigin,
    SinkRecord,
    TimestampType,
    TopicPartition,
)
from connect_py.api.task import SafeOffset, SinkTask
from connect_py.error_handling.dead_letter_counter import DeadLetterCounter
from connect_py.error_handling.dead_letter_queue import DeadLetterQueue
from connect_py.error_handling.errant_record_reporter import TaskErrantRecordReporter
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import (
    SKIPPED,
    ErrorHandler,
    ErrorReporter,
    ToleranceExceededError,
)
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.error_handling.task_dead_letters import TaskDeadLetters
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.task.record_pipeline import Converters, RecordPipeline
from connect_py.task.sink.consumed_messages import message_runs
from connect_py.task.sink.sink_loop import LoopSettings, SinkTaskRunner
from connect_py.task.sink.sink_pipeline import SinkPipeline
from connect_py.task.task_control import TaskControl
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.transformation_chain import TransformationChain
from connect_py.testing import FakeClock, FakePluginMetrics

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Reports:
    """A reporter that is safe when a test says so."""

    def __init__(self) -> None:
        self.reports: list[FailedRecord] = []
        self.safe = True
        self.failure: ConnectError | None = None

    def report(self, failed: FailedRecord) -> None:
        self.reports.append(failed)

    def pending(self) -> int:
        return 0 if self.safe else len(self.reports)

    def flush(self, timeout: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.safe

    def values(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


class Consumer:
    cut_off: str | None = None

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.polls: list[list[Any]] = []
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.waited: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.during_poll: Any = None

    def subscribe(self, topics: Sequence[str]) -> None:
        """Nothing to do."""

    def topics(self, timeout: float = 1.0) -> Mapping[str, int]:
        return {"t": 2}

    def poll(self, limit: int, timeout: float) -> list[MessageRun]:
        self.clock.now += timeout
        if self.during_poll is not None:
            act, self.during_poll = self.during_poll, None
            act()
        return message_runs(self.polls.pop(0)) if self.polls else []

    def ends(self) -> Mapping[TopicPartition, int]:
        return {}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing to do."""

    resume = pause

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nothing to do."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(dict(offsets))

    def commit_and_wait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.waited.append(dict(offsets))

    def close(self) -> None:
        """Nothing is held."""


class Keeper(SinkTask):
    """Writes down what it is told; reports values that begin with `odd`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.reporter: TaskErrantRecordReporter | None = None
        self.swallow = False
        self.refuse_end = 0

    def start(self, props: Mapping[str, str]) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing is held."""

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing to do."""

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("close", list(partitions)))

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            if str(record.value).startswith("odd"):
                assert self.reporter is not None
                try:
                    self.reporter.report(
                        record.replace(topic="elsewhere", value="changed"), DataError("odd")
                    )
                except ConnectError:
                    if not self.swallow:
                        raise
        if records:
            self.calls.append(("put", [r.origin.offset for r in records]))

    def put_batch(self, batch: Batch) -> None:
        self.put(batch.records())

    def put_dead_letter(self, letter: DeadLetter) -> None:
        self.calls.append(("letter", letter.origin.offset, letter.reason))

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        if self.refuse_end:
            self.refuse_end -= 1
            raise RetriableError("not now")
        self.calls.append(("end", dict(consumed)))

    def pre_commit(
        self, current: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, SafeOffset]:
        self.calls.append(("pre_commit", dict(current)))
        return current


class Loop:
    """A runner over a consumer of plain messages; values that begin with `bad` cannot be
    converted."""

    def __init__(
        self, *, tolerate: bool = True, columnar: bool = True, retry: Converter | None = None
    ) -> None:
        self.clock = FakeClock()
        self.consumer = Consumer(self.clock)
        self.task = Keeper()
        self.reports = Reports()
        self.metrics = FakePluginMetrics()
        control = TaskControl(TargetState.STARTED, lambda _: Future(), lambda _: None)
        self.runner = SinkTaskRunner(
            self.task,
            {},
            TopicSelection({"topics": "t"}),
            LoopSettings(commit_interval_ms=60_000),
            control,
            self.clock,
            partial(self._pipeline, tolerate, columnar, retry),
            lambda _: self.consumer,  # type: ignore[arg-type, return-value]  # a fake
        )
        self.runner._next_commit = 1e9
        self.assign(T0, T1)

    def _pipeline(
        self, tolerate: bool, columnar: bool, retry: Converter | None, wait: Callable[[float], None]
    ) -> SinkPipeline:
        reporters: list[ErrorReporter] = [
            self.reports,
            TaskDeadLetters(self.task, self.clock),
            DeadLetterCounter(self.metrics),
        ]
        config = ErrorConfig(tolerate_all=tolerate, retry_timeout_ms=-1)
        errors = ErrorHandler(config, reporters, self.clock, wait)
        self.task.reporter = TaskErrantRecordReporter(errors, "Keeper")
        kind = TextColumnConverter if columnar else TextConverter
        key, value = kind(), retry or kind()
        for converter in (key, value):
            converter.configure({}, is_key=False)
        converters = Converters(key, value, TextHeaderConverter(), "K", "V", "H")
        chain = TransformationChain([], errors)
        return SinkPipeline(RecordPipeline(converters, chain, errors), errors, self.task.reporter)

    def assign(self, *partitions: TopicPartition) -> None:
        self.consumer.assigned |= set(partitions)
        self.runner.on_assigned({tp: OffsetAndMetadata(0) for tp in partitions})

    def revoke(self, *partitions: TopicPartition) -> None:
        self.runner.on_revoked(partitions)
        self.consumer.assigned -= set(partitions)

    def poll(self, *records: tuple[int, int, bytes], headers: Any = None) -> None:
        self.consumer.polls.append(
            [
                Message(
                    topic="t",
                    partition=p,
                    offset=o,
                    key=None,
                    value=v,
                    headers=headers,
                    timestamp=(TIMESTAMP_CREATE_TIME, 1),
                )
                for p, o, v in records
            ]
        )
        self.runner.iterate()

    def commit(self) -> None:
        self.runner.request_commit()
        self.runner.iterate()


@pytest.mark.parametrize("columnar", [True, False])
def test_dead_letters_precede_rows_and_poll_end_covers_both(columnar: bool) -> None:
    loop = Loop(columnar=columnar)
    loop.poll((0, 0, b"a"), (0, 1, b"bad"), (0, 2, b"odd"), (1, 0, b"a"), (1, 1, b"bad"))
    assert loop.task.calls == [
        ("letter", 1, FailureReason.VALUE_CONVERTER),
        ("letter", 1, FailureReason.VALUE_CONVERTER),
        ("letter", 2, FailureReason.SINK),
        ("put", [0, 2, 0]),
        ("end", {T0: 3, T1: 2}),
    ]


def test_poll_of_only_bad_records_ends_and_commits_its_offsets() -> None:
    loop = Loop()
    loop.poll((0, 0, b"bad"), (0, 1, b"bad"))
    assert loop.task.calls[-1] == ("end", {T0: 2})
    loop.commit()
    assert loop.consumer.commits == [{T0: OffsetAndMetadata(2)}]


def test_refused_poll_end_is_repeated_before_any_offset_moves() -> None:
    loop = Loop()
    loop.task.refuse_end = 1
    loop.poll((0, 0, b"a"))
    assert loop.runner._offsets.current[T0] == 0
    loop.clock.now += 10
    loop.runner.iterate()
    assert ("end", {T0: 1}) in loop.task.calls
    assert loop.runner._offsets.current[T0] == 1
    assert [call for call in loop.task.calls if call[0] == "put"] == [("put", [0])]


def test_offsets_are_committed_only_after_their_reports_are_safe() -> None:
    loop = Loop()
    loop.reports.safe = False
    loop.poll((0, 0, b"a"), (0, 1, b"bad"))
    loop.commit()
    assert loop.consumer.commits == []
    assert ("pre_commit", {T0: 2, T1: 0}) not in loop.task.calls
    loop.reports.safe = True
    loop.commit()
    assert loop.consumer.commits == [{T0: OffsetAndMetadata(2)}]


def test_permanently_failed_report_fails_the_task_at_next_commit() -> None:
    loop = Loop()
    loop.poll((0, 0, b"bad"))
    loop.reports.failure = ConnectError("the dead-letter topic is gone")
    with pytest.raises(ConnectError, match="topic is gone"):
        loop.commit()
    assert loop.consumer.commits == []


def test_partition_with_pending_reports_is_revoked_without_a_commit() -> None:
    loop = Loop()
    loop.reports.safe = False
    loop.poll((0, 0, b"bad"))
    loop.revoke(T0)
    assert ("close", [T0]) in loop.task.calls
    assert loop.consumer.waited == []


def test_records_of_partition_revoked_during_retry_are_not_put() -> None:
    class Away(TextConverter):
        left = 1

        def to_connect(self, topic: str, data: bytes | None, headers: Any = ()) -> Any:
            if data == b"wait" and self.left:
                self.left -= 1
                raise RetriableError("away")
            return super().to_connect(topic, data, headers)

    loop = Loop(retry=Away())
    loop.consumer.polls = [
        [
            Message(
                topic="t",
                partition=p,
                offset=0,
                key=None,
                value=v,
                timestamp=(TIMESTAMP_CREATE_TIME, 1),
            )
            for p, v in ((0, b"bad"), (1, b"wait"))
        ],
        [],
    ]

    def lose() -> None:
        loop.consumer.assigned -= {T0}
        loop.runner.on_lost([T0])

    original = loop.consumer.poll

    def poll(limit: int, timeout: float) -> list[MessageRun]:
        found = original(limit, timeout)
        if found:
            loop.consumer.during_poll = lose  # in the poll while the converter waits
        return found

    loop.consumer.poll = poll  # type: ignore[method-assign] # one test's own
    loop.runner.iterate()
    assert ("end", {T1: 1}) in loop.task.calls
    assert T0 not in loop.runner._offsets.current


def test_task_that_swallows_a_refused_report_still_fails() -> None:
    loop = Loop(tolerate=False)
    loop.task.swallow = True
    with pytest.raises(ToleranceExceededError):
        loop.poll((0, 0, b"odd"))
    assert loop.runner._offsets.current[T0] == 0


def test_bad_record_without_tolerance_gives_task_only_the_dead_letter() -> None:
    loop = Loop(tolerate=False)
    with pytest.raises(ToleranceExceededError, match="topic 't' partition 0 at offset 1"):
        loop.poll((0, 0, b"a"), (0, 1, b"bad"))
    assert [call[0] for call in loop.task.calls] == ["letter"]
    assert [report.stage for report in loop.reports.reports] == [Stage.VALUE_CONVERTER]


def test_transformed_bad_record_is_reported_with_its_consumed_bytes() -> None:
    loop = Loop()
    loop.poll((0, 7, b"odd one"))
    (failed,) = loop.reports.reports
    assert failed.origin == RecordOrigin("t", 0, 7, None, b"odd one", ())


@pytest.mark.parametrize("columnar", [True, False])
def test_unreadable_header_fails_in_the_header_converter_stage(columnar: bool) -> None:
    loop = Loop(columnar=columnar)
    loop.poll((0, 0, b"a"), headers=[("h", b"bad")])
    (failed,) = loop.reports.reports
    assert (failed.stage, failed.class_name) == (Stage.HEADER_CONVERTER, "H")


def test_redelivered_dead_letter_is_counted_once_by_topic_and_reason() -> None:
    loop = Loop()
    for _ in range(2):
        loop.poll((0, 0, b"bad"), (0, 1, b"bad"), (0, 2, b"odd"))
    counts = {
        dict(labels)["reason"]: made.value
        for (_, labels), made in loop.metrics.measurements.items()
    }
    assert counts == {"value_converter": 2, "sink": 1}
    assert {dict(labels)["topic"] for _, labels in loop.metrics.measurements} == {"t"}


@pytest.mark.parametrize("tolerate", [True, False])
def test_retriable_error_beyond_its_retries_is_treated_like_other_errors(tolerate: bool) -> None:
    clock, kept = FakeClock(), Reports()
    handler = ErrorHandler(ErrorConfig(tolerate_all=tolerate), [kept], clock, clock.sleep)

    def again() -> None:
        raise RetriableError("still away")

    def failed(error: Exception) -> FailedRecord:
        return FailedRecord(Stage.TRANSFORMATION, "C", error, RecordOrigin("t", 0, 1))

    if tolerate:
        assert (
            handler.recover(Stage.TRANSFORMATION, "C", RetriableError("away"), failed, again)
            is SKIPPED
        )
    else:
        with pytest.raises(ToleranceExceededError):
            handler.recover(Stage.TRANSFORMATION, "C", RetriableError("away"), failed, again)
    assert len(kept.reports) == 1


def test_headers_of_an_earlier_hop_stay_in_front() -> None:
    class Producer:
        sent: Any = None

        def produce(self, topic: str, **message: Any) -> None:
            self.sent = message

        def poll(self, timeout: float) -> None:
            """Nothing waits."""

    producer = Producer()
    config = ErrorConfig(dead_letter_topic="dlq", dead_letter_headers=True)
    queue = DeadLetterQueue(ConnectorTaskId("c", 0), config, producer)  # type: ignore[arg-type] # a fake
    earlier = ("__connect.errors.topic", b"first")
    origin = RecordOrigin("second", 0, 1, None, None, (earlier,))
    queue.report(
        FailedRecord(Stage.KEY_CONVERTER, "K", DataError("x"), origin, 1, TimestampType.CREATE_TIME)
    )
    assert producer.sent["headers"][:2] == [earlier, ("__connect.errors.topic", b"second")]
