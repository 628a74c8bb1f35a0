from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

import pytest
from kept_reports import Kept

from connect_py.api.errors import ConnectError, DataError, RetriableError, UnavailableError
from connect_py.api.record import RecordOrigin, TimestampType
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import (
    SKIPPED,
    ErrorHandler,
    ToleranceExceededError,
    UnhandledError,
)
from connect_py.error_handling.failed_record import FailedRecord, message_with_causes, stack_trace
from connect_py.error_handling.log_reporter import LogReporter
from connect_py.error_handling.stage import Stage
from connect_py.model import ConnectorTaskId

ORIGIN = RecordOrigin("orders", 3, 17, b"k", b"v")


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def failed(error: Exception, stage: Stage = Stage.VALUE_CONVERTER) -> FailedRecord:
    return FailedRecord(stage, "C", error, ORIGIN, 1_718_000_000_000)


def handler(clock: FakeClock, kept: Kept, **config: object) -> ErrorHandler:
    return ErrorHandler(ErrorConfig(**config), [kept], clock, clock.sleep)  # type: ignore[arg-type] # by name


def raising(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_without_tolerance_a_record_is_reported_before_the_task_fails() -> None:
    clock, kept = FakeClock(), Kept()
    cause = DataError("x")
    with pytest.raises(
        ToleranceExceededError, match="Tolerance exceeded in error handler"
    ) as exceeded:
        handler(clock, kept).recover(Stage.VALUE_CONVERTER, "C", cause, failed)
    assert exceeded.value.__cause__ is cause
    assert [f.error for f in kept.reports] == [cause]


def test_with_tolerance_any_exception_of_a_converter_is_skipped() -> None:
    clock, kept = FakeClock(), Kept()
    handling = handler(clock, kept, tolerate_all=True)
    assert (
        handling.recover(Stage.TRANSFORMATION, "C", ZeroDivisionError(), failed, raising())
        is SKIPPED
    )
    assert handling.counters.skipped == 1
    assert clock.waits == []  # only a retriable error is repeated


def test_errors_while_polling_fail_despite_full_tolerance() -> None:
    clock, kept = FakeClock(), Kept()
    with pytest.raises(UnhandledError):
        handler(clock, kept, tolerate_all=True).report(failed(DataError("x"), Stage.TASK_POLL))


def test_retriable_error_is_retried_with_growing_backoff_until_success() -> None:
    clock, kept = FakeClock(), Kept()
    again = raising(*[RetriableError("away")] * 3)
    handling = handler(clock, kept, retry_timeout_ms=-1)
    assert (
        handling.recover(Stage.KEY_CONVERTER, "C", RetriableError("away"), failed, again) == "done"
    )
    assert clock.waits == [0.3, 0.6, 1.2, 2.4]
    assert kept.reports == []


def test_waits_beyond_the_cap_are_random_below_it() -> None:
    clock, kept = FakeClock(), Kept()
    again = raising(*[RetriableError("away")] * 20)
    handling = handler(clock, kept, retry_timeout_ms=-1, retry_delay_max_ms=1000)
    assert (
        handling.recover(Stage.KEY_CONVERTER, "C", RetriableError("away"), failed, again) == "done"
    )
    assert clock.waits[:2] == [0.3, 0.6]
    assert all(wait < 1.0 for wait in clock.waits[2:])


def test_repetitions_end_at_the_deadline_and_the_last_error_counts() -> None:
    clock, kept = FakeClock(), Kept()
    again = raising(*[RetriableError(f"away {n}") for n in range(20)])
    handling = handler(clock, kept, retry_timeout_ms=1000, tolerate_all=True)
    assert (
        handling.recover(Stage.KEY_CONVERTER, "C", RetriableError("first"), failed, again)
        is SKIPPED
    )
    assert sum(clock.waits) == pytest.approx(1.0)
    assert str(kept.reports[0].error) == "away 2"


def test_by_default_a_retriable_error_is_not_repeated() -> None:
    clock, kept = FakeClock(), Kept()
    with pytest.raises(ToleranceExceededError):
        handler(clock, kept).recover(
            Stage.KEY_CONVERTER, "C", RetriableError("away"), failed, raising()
        )
    assert clock.waits == []


def test_unavailable_server_is_retried_without_limit_at_short_intervals() -> None:
    clock, kept = FakeClock(), Kept()
    again = raising(*[UnavailableError("away")] * 100)
    # the default, no repetition at all, is for other errors
    handling = handler(clock, kept, tolerate_all=True)
    assert (
        handling.recover(Stage.VALUE_CONVERTER, "C", UnavailableError("away"), failed, again)
        == "done"
    )
    assert max(clock.waits) == 5.0
    assert kept.reports == []


def test_waiting_reason_is_reported_until_the_operation_succeeds_or_ends() -> None:
    clock, told = FakeClock(), list[tuple[str, str | None]]()
    config = ErrorConfig.parse({"errors.tolerance": "all", "errors.retry.timeout": "2000"})
    made = ErrorHandler(config, [], clock, clock.sleep, lambda what, why: told.append((what, why)))
    away = UnavailableError("away", server="schema registry")
    again = raising(UnavailableError("still away", server="schema registry"))
    assert made.recover(Stage.VALUE_CONVERTER, "C", away, failed, again) == "done"
    assert told == [
        ("schema registry", "away"),
        ("schema registry", "still away"),
        ("schema registry", None),
    ]
    told.clear()
    busy = raising(*[RetriableError("busy")] * 100)
    assert made.recover(Stage.VALUE_CONVERTER, "C", RetriableError("busy"), failed, busy) is SKIPPED
    assert told[0] == ("VALUE_CONVERTER", "busy")
    assert told[-1] == ("VALUE_CONVERTER", None)
    told.clear()
    assert (
        made.recover(
            Stage.VALUE_CONVERTER, "C", RetriableError("busy"), failed, raising(DataError("bad"))
        )
        is SKIPPED
    )
    assert told == [("VALUE_CONVERTER", "busy"), ("VALUE_CONVERTER", None)]


def test_redelivered_bad_record_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LogReporter(ConnectorTaskId("c", 0), include_messages=False)
    made = ErrorHandler(
        ErrorConfig.parse({"errors.tolerance": "all"}), [log], FakeClock(), lambda _: None
    )
    for _ in range(3):
        made.report(failed(DataError("bad")))
    assert (
        made.counters.errors == made.counters.skipped == made.values()["total-errors-logged"] == 1
    )
    assert len(caplog.records) == 1
    made.report(FailedRecord(Stage.VALUE_CONVERTER, "C", DataError("of a source")))
    made.report(FailedRecord(Stage.VALUE_CONVERTER, "C", DataError("of a source")))
    assert made.counters.skipped == 3, "records of a source have no place to tell them apart by"


def test_the_record_that_fails_the_task_is_named() -> None:
    clock, kept = FakeClock(), Kept()
    with pytest.raises(
        ToleranceExceededError,
        match="VALUE_CONVERTER failed for topic 'orders' partition 3 at offset 17",
    ):
        handler(clock, kept).report(failed(DataError("x")))


def test_a_stop_during_a_wait_leaves_the_record_undecided() -> None:
    class Stopped(Exception):  # noqa: N818 - not an error
        pass

    def wait(seconds: float) -> None:
        raise Stopped

    kept = Kept()
    handling = ErrorHandler(
        ErrorConfig(retry_timeout_ms=-1, tolerate_all=True), [kept], FakeClock(), wait
    )
    with pytest.raises(Stopped):
        handling.recover(Stage.KEY_CONVERTER, "C", RetriableError("away"), failed, raising())
    assert kept.reports == []
    assert handling.counters.skipped == 0


def test_log_line_has_connect_format_and_coordinates_only_when_asked() -> None:
    task = ConnectorTaskId("orders-sink", 0)
    short = LogReporter(task, include_messages=False).message(failed(DataError("x")))
    assert (
        short
        == "Error encountered in task orders-sink-0. Executing stage 'VALUE_CONVERTER' with class "
        "'C'."
    )
    long = LogReporter(task, include_messages=True).message(failed(DataError("x")))
    assert long == short[:-1] + (
        ", where consumed record is {topic='orders', partition=3, offset=17, "
        "timestamp=1718000000000, timestampType=CreateTime}."
    )


def test_a_logged_failure_never_shows_key_or_value(caplog: pytest.LogCaptureFixture) -> None:
    reporter = LogReporter(ConnectorTaskId("c", 0), include_messages=True)
    secret = FailedRecord(
        Stage.KEY_CONVERTER,
        "C",
        DataError("x"),
        RecordOrigin("t", 0, 1, b"topkey", b"topvalue"),
        None,
        TimestampType.NO_TIMESTAMP_TYPE,
    )
    with caplog.at_level(logging.INFO):
        reporter.report(secret)
    assert "topkey" not in caplog.text
    assert "topvalue" not in caplog.text
    assert "offset=1}" in caplog.text


def test_a_configuration_is_parsed_and_checked() -> None:
    parsed = ErrorConfig.parse({"errors.tolerance": "all", "errors.retry.timeout": "-1"})
    assert parsed.tolerate_all
    assert parsed.retry_timeout_ms == -1
    with pytest.raises(ConnectError, match="String must be one of: none, all"):
        ErrorConfig.parse({"errors.tolerance": "some"})


def failed_twice() -> DataError:
    try:
        {}["missing"]
    except KeyError:
        try:
            try:
                raise ValueError("during")
            except ValueError as error:
                raise DataError("at last") from error
        except DataError as error:
            return error
    raise AssertionError


def test_error_message_includes_the_messages_of_its_causes() -> None:
    try:
        try:
            raise ValueError("unexpected byte 7")
        except ValueError as inner:
            raise DataError("Failed to deserialize data for topic t to Avro: ") from inner
    except DataError as error:
        told = message_with_causes(error)
    assert (
        told
        == "Failed to deserialize data for topic t to Avro: \nCaused by: ValueError: unexpected "
        "byte 7"
    )
    assert message_with_causes(DataError("alone")) == "alone"
    assert message_with_causes(DataError()) == ""


def test_stack_trace_begins_with_java_class_and_all_causes() -> None:
    assert stack_trace(failed_twice()).splitlines()[:4] == [
        "org.apache.kafka.connect.errors.DataException: at last",
        "Caused by: ValueError: during",
        "Caused by: KeyError: 'missing'",
        "",
    ]
    assert (
        stack_trace(ConnectError()).splitlines()[0]
        == "org.apache.kafka.connect.errors.ConnectException"
    )


def test_stack_trace_after_java_part_is_python_without_markers() -> None:
    error = failed_twice()
    without_marks = [
        line for line in traceback.format_exception(error) for line in line.splitlines()
    ]
    without_marks = [line for line in without_marks if line.strip(" ^~") or not line]
    assert stack_trace(error).splitlines()[4:] == without_marks
