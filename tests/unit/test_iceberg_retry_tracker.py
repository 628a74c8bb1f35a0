"""Failures that make rows wait are logged once, set a metric, and finally end the task."""

from __future__ import annotations

from typing import Any

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConnectError
from connect_py.testing import FakePluginMetrics, FakeSinkTaskContext
from connectors.iceberg.catalog.java_errors import translated
from connectors.iceberg.coordinator import coordinator
from connectors.iceberg.coordinator.channel_topic import FencedError
from connectors.iceberg.coordinator.coordinator import Coordinator, _reason
from connectors.iceberg.coordinator.retry_tracker import (
    FORGET_SECONDS,
    LOG_SECONDS,
    QUIET_SECONDS,
    RetryTracker,
)
from connectors.iceberg.errors import CatalogUnavailableError, TableUnsuitableError
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

AWAY = "the catalog: RESTException: Connection refused to port {}"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def troubles(
    limit: int | None = None, context: FakeSinkTaskContext | None = None
) -> tuple[RetryTracker, FakePluginMetrics, Clock]:
    metrics, clock = FakePluginMetrics(), Clock()
    return (
        RetryTracker(
            IcebergMetrics(metrics), context or FakeSinkTaskContext(), limit, 10_000, clock
        ),
        metrics,
        clock,
    )


def waits(metrics: FakePluginMetrics, reason: str, table: str = "") -> float:
    value: float = metrics.gauge("iceberg_waiting", "", {"reason": reason, "table": table}).value  # type: ignore[attr-defined] # the fake's
    return value


def test_repeated_error_is_logged_once_and_then_every_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told, _, clock = troubles()
    for port in range(4):  # the reason is the same in other numbers
        told.cannot_open("db.t", AWAY.format(port))
    clock.now += LOG_SECONDS
    told.cannot_open("db.t", AWAY.format(4))
    told.cannot_open("db.t", "another reason")
    assert [record.getMessage() for record in caplog.records] == [
        "table db.t is unavailable, its partitions wait: " + AWAY.format(0),
        "table db.t is unavailable, its partitions wait: "
        + AWAY.format(4)
        + " (3 more times since the last log line)",
        "table db.t is unavailable, its partitions wait: another reason",
    ]


def test_a_metric_shows_what_waits_until_it_does_no_longer() -> None:
    told, metrics, _ = troubles()
    told.cannot_begin("the catalog: away")
    told.cannot_open("db.t", "away")
    told.not_committed("db.t", 1, "away")
    shown = [("begin", ""), ("open", "db.t"), ("commit", "db.t")]
    assert [waits(metrics, *each) for each in shown] == [1, 1, 1]
    told.cycle_ended({"db.t"})
    assert waits(metrics, "commit", "db.t") == 1
    told.begun()
    told.opened("db.t")
    told.cycle_ended(())
    assert [waits(metrics, *each) for each in shown] == [0, 0, 0]


def test_task_names_what_it_waits_for_until_the_wait_ends() -> None:
    context = FakeSinkTaskContext()
    told, _, clock = troubles(context=context)
    told.begins()
    assert context.waiting_for.keys() == {"coordinator"}
    told.cannot_begin("the catalog: away")
    told.begins()
    assert context.waiting_for == {"coordinator": "the catalog: away"}
    told.begun()
    told.cannot_open("db.t", "read-only")
    told.not_committed("db.t", 1, "conflict")
    assert context.waiting_for == {"table db.t": "read-only", "commit to table db.t": "conflict"}
    told.awaits_approval("db.t", "rows wait for it to add a column")
    told.cycle_ended(())
    assert context.waiting_for == {"table db.t": "rows wait for it to add a column"}
    told.opened("db.t")
    assert context.waiting_for == {}
    told.awaits_approval("db.t", "again")
    clock.now += FORGET_SECONDS
    told.cycle_ended(())
    assert context.waiting_for == {}


def test_table_no_longer_requested_does_not_count_as_waiting() -> None:
    told, metrics, clock = troubles()
    told.cannot_open("db.t", "away")
    clock.now += FORGET_SECONDS - 1
    told.cycle_ended(())
    assert waits(metrics, "open", "db.t") == 1
    clock.now += 1
    told.cycle_ended(())
    assert waits(metrics, "open", "db.t") == 0


def test_error_within_one_commit_interval_does_not_reach_the_limit() -> None:
    told, _, clock = troubles(limit=1)
    for _ in range(50):
        told.cannot_begin("away")
    clock.now += 9.9
    told.cannot_begin("away")
    told.begun()
    clock.now += 10
    told.cannot_begin("away")
    clock.now += 10
    with pytest.raises(
        ConnectError, match="the coordinator did not start in 1 consecutive commit interval: away"
    ):
        told.cannot_begin("away")


def test_failure_count_restarts_after_long_silence_but_not_slow_tries() -> None:
    told, _, clock = troubles(limit=2)
    told.cannot_open("db.t", "away")
    clock.now += QUIET_SECONDS
    told.cannot_open("db.t", "away")  # each took as long as a call may
    clock.now += QUIET_SECONDS + 1
    told.cannot_open("db.t", "away")
    clock.now += 10
    told.cannot_open("db.t", "away")
    clock.now += 10
    with pytest.raises(ConnectError, match="in 2 consecutive commit intervals"):
        told.cannot_open("db.t", "away")


def test_table_preparation_is_retried_forever_unless_a_limit_is_set() -> None:
    told, _, clock = troubles(limit=3)
    patient, _, _ = troubles()
    for _ in range(3):
        told.cannot_open("db.t", "read-only")
        clock.now += 10
    with pytest.raises(
        ConnectError,
        match=r"table db\.t was unavailable in 3 consecutive commit intervals: read-only",
    ):
        told.cannot_open("db.t", "read-only")
    for _ in range(100):
        patient.cannot_open("db.t", "read-only")
        patient.not_committed("db.t", 100, "read-only")


class FailingRuns:
    """Runs that fail before they have started, the second one because of a newer coordinator."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, _parts: object, _status: object) -> None:
        self.runs += 1
        raise (
            FencedError("newer") if self.runs == 2 else CatalogUnavailableError("the catalog: away")
        )


def test_coordinator_that_cannot_begin_fails_task_after_configured_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing_runs = FailingRuns()
    monkeypatch.setattr(coordinator, "run_epoch", failing_runs)
    monkeypatch.setattr(coordinator, "FIRST_BACKOFF_SECONDS", 0.001)
    keys = {"control__commit__max_consecutive_failures": "3", "control__commit__interval_ms": "1"}
    metrics = FakePluginMetrics()
    nobody: Any = None
    made = Coordinator(
        config(**keys),
        FakeSinkTaskContext(connector="c", topics={"orders": 1}),
        nobody,
        nobody,
        IcebergMetrics(metrics),
    )
    made.start()
    made._thread.join(30)
    with pytest.raises(
        ConnectError, match="did not start in 3 consecutive commit intervals: the catalog: away"
    ):
        made.check()
    counter: Any = metrics.counter("iceberg_coordinator_beginnings_total", "")
    # who is overtaken did not fail, and the first failure is not an interval
    assert counter.value == failing_runs.runs == 5
    assert waits(metrics, "begin") == 1


def test_a_reason_does_not_name_the_table_again() -> None:
    assert _reason("db.t", CatalogUnavailableError("db.t: UncheckedIOException: read-only")) == (
        "UncheckedIOException: read-only"
    )
    assert _reason("db.t", TableUnsuitableError("db.t", "no key")) == "no key"


class JavaException:
    """What py4j shows of a Java exception."""

    def __init__(self, name: str, message: str, cause: JavaException | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> JavaException:  # noqa: N802 - Java's name
        return self

    def getName(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> JavaException | None:  # noqa: N802 - Java's name
        return self._cause


@pytest.mark.parametrize(
    ("message", "cause", "hint"),
    [
        (
            "Failed to connect: sqlite:////a.db",
            "No suitable driver found for sqlite:////a.db",
            "iceberg.catalog.uri",
        ),
        (
            "Failed to get file system",
            'No FileSystem for scheme "abc"',
            "iceberg.catalog.warehouse",
        ),
    ],
)
def test_what_no_waiting_can_mend_is_not_tried_again(message: str, cause: str, hint: str) -> None:
    thrown = JavaException(
        "org.apache.iceberg.jdbc.Unchecked", message, JavaException("java.sql.SQLException", cause)
    )
    error = translated("the catalog", thrown)
    assert isinstance(error, TableUnsuitableError)
    assert cause in str(error)
    assert hint in str(error)
