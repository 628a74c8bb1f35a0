"""A commit waits for a maintenance action, or interrupts it; longer waits let it end."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConnectError
from connect_py.testing import FakePluginMetrics, FakeSharedServices
from connectors.iceberg.config.maintenance_policy import MaintenanceMode, MaintenancePolicy
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.maintenance.full_maintenance import INSPECTION
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg_tools.maintenance import maintenance_thread
from connectors.iceberg_tools.maintenance.maintenance_plan import MaintenanceAction, MaintenanceKind
from connectors.iceberg_tools.maintenance.maintenance_result import MaintenanceResult
from connectors.iceberg_tools.maintenance.maintenance_thread import (
    MaintenanceThread,
    _Watched,
)
from connectors.iceberg_tools.maintenance.table_state import TableState


def result_of(counts: dict[str, int]) -> MaintenanceResult:
    """Result of a compaction with these counts of its procedure."""
    action, state = (
        MaintenanceAction(MaintenanceKind.COMPACT, "small files"),
        TableState(2, 1, most_small_files=6),
    )
    return MaintenanceResult(action, state, state, 1.0, counts)


def ended(metrics: FakePluginMetrics) -> dict[tuple[str, str], float]:
    """How often maintenance ended in which way, by action and outcome."""
    found = [
        (dict(key[1]), each)
        for key, each in metrics.measurements.items()
        if key[0] == "iceberg_maintenance_total"
    ]
    return {(labels["action"], labels["outcome"]): each.value for labels, each in found}


class SlowDriver:
    """Driver whose actions last, and fail when the connection is closed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._hung_up = threading.Event()
        self.begun = threading.Event()

    def run(self, *_: Any) -> Any:
        self._hung_up.clear()
        self.begun.set()
        if self._hung_up.wait(self._seconds):
            raise ConnectError("the Spark driver is gone")
        return result_of({"rewritten_data_files_count": 6})

    def hang_up(self) -> None:
        self._hung_up.set()


@pytest.fixture
def maintenance(monkeypatch: pytest.MonkeyPatch) -> MaintenanceThread:
    monkeypatch.setattr(maintenance_thread, "YIELD_SECONDS", 0.2)
    monkeypatch.setattr(maintenance_thread, "LONGEST_YIELD_SECONDS", 0.9)
    metrics = IcebergMetrics(FakePluginMetrics())
    return MaintenanceThread(
        config(), SparkConfig("c", {"type": "rest"}), FakeSharedServices(), metrics
    )


def meet(
    maintenance: MaintenanceThread,
    driver: SlowDriver,
    watched: _Watched,
    commit: tuple[str, ...] = ("db.t",),
) -> float:
    """Let a commit come while an action on `db.t` is under way; returns how long it waited."""
    action = MaintenanceAction(MaintenanceKind.COMPACT, "small files")
    maintenance._worker = driver  # type: ignore[assignment] # it only runs and hangs up
    driver.begun.clear()
    acting = threading.Thread(target=lambda: maintenance._perform(driver, "db.t", watched, action))  # type: ignore[arg-type] # the same
    acting.start()
    assert driver.begun.wait(10)
    started = time.monotonic()
    with maintenance.commit(*commit):
        waited = time.monotonic() - started
    acting.join(10)
    return waited


def test_commits_wait_twice_as_long_after_each_interruption(maintenance: MaintenanceThread) -> None:
    watched = maintenance._tables["db.t"] = _Watched(
        MaintenancePolicy(MaintenanceMode.TRUE), "main", yield_seconds=0.2
    )
    slow = SlowDriver(30)
    for expected in (0.2, 0.4, 0.8, 0.9, 0.9):
        assert meet(maintenance, slow, watched) >= expected * 0.9
    assert watched.yield_seconds == 0.9
    quick = SlowDriver(0.5)
    # it ends, because the commit waits longer now
    assert meet(maintenance, quick, watched) < 0.85
    assert watched.yield_seconds == 0.2
    other = time.monotonic()
    with maintenance.commit("db.other"):
        assert time.monotonic() - other < 0.2


def test_commits_wait_for_actions_on_tables_that_follow_them(
    maintenance: MaintenanceThread,
) -> None:
    watched = maintenance._tables["db.t"] = _Watched(
        MaintenancePolicy(MaintenanceMode.TRUE), "main", yield_seconds=0.2
    )
    maintenance._tables["db.orders"] = _Watched(
        MaintenancePolicy(MaintenanceMode.TRUE), "main", yield_seconds=30
    )
    assert 0.18 <= meet(maintenance, SlowDriver(30), watched, ("db.orders", "db.t")) < 5
    assert watched.yield_seconds == 0.4
    action, quick = MaintenanceAction(MaintenanceKind.COMPACT, "small files"), SlowDriver(0)
    acting = threading.Thread(target=lambda: maintenance._perform(quick, "db.t", watched, action))  # type: ignore[arg-type] # it only runs and hangs up
    with maintenance.commit("db.orders", "db.t"):
        acting.start()
        assert not quick.begun.wait(0.2)
    assert quick.begun.wait(10)
    acting.join(10)


def test_opened_tables_are_looked_after_before_any_commit() -> None:
    """What was due when an earlier coordinator died is due after a restart, though nothing
    comes."""
    metrics = IcebergMetrics(FakePluginMetrics())
    settings = config(ext__maintenance__enabled="true", table__other__maintenance__enabled="false")
    made = MaintenanceThread(
        settings, SparkConfig("c", {"type": "rest"}), FakeSharedServices(), metrics
    )
    try:
        made.watch("db.orders")
        made.watch("db.other")
        assert {name: each.changed for name, each in made._tables.items()} == {"db.orders": True}
        made._tables["db.orders"].changed = False  # it was looked at, and opened again
        made.watch("db.orders")
        assert not made._tables["db.orders"].changed
        with made.commit("db.orders"):
            pass
        assert made._tables["db.orders"].changed
    finally:
        made.stop()


class Answering:
    """A driver that answers this, or fails with it."""

    def __init__(self, answer: MaintenanceResult | Exception) -> None:
        self._answer = answer

    def alive(self) -> bool:
        return True

    def run(self, *_: Any) -> MaintenanceResult:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_compaction_that_could_not_rewrite_files_counts_as_failed(
    maintenance: MaintenanceThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Iceberg's procedure ends well although each of its groups failed."""
    maintenance._metrics = IcebergMetrics(metrics := FakePluginMetrics())
    watched, group = _Watched(MaintenancePolicy(MaintenanceMode.TRUE), "main"), _Watched.group_bytes
    action = MaintenanceAction(MaintenanceKind.COMPACT, "small files")
    for counts in (
        {"failed_data_files_count": 6},
        {"failed_data_files_count": 0, "rewritten_data_files_count": 6},
    ):
        driver: Any = Answering(result_of(counts))
        assert not maintenance._perform(driver, "db.t", watched, action)
        group //= 2 if counts["failed_data_files_count"] else 1
    assert watched.group_bytes == 2 * group
    assert ended(metrics) == {
        ("compact data files", "failed"): 1,
        ("compact data files", "done"): 1,
    }
    [warned] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "6 data files could not be rewritten" in warned


def test_maintenance_that_cannot_even_begin_counts_as_failed(
    maintenance: MaintenanceThread,
) -> None:
    maintenance._metrics = IcebergMetrics(metrics := FakePluginMetrics())
    driver: Any = Answering(ConnectError("the Spark driver does not start"))
    watched = _Watched(MaintenancePolicy(MaintenanceMode.TRUE), "main")
    maintenance._inspect(driver, "db.t", watched)
    assert watched.changed
    assert ended(metrics) == {(INSPECTION, "failed"): 1}
    maintenance._stopping.set()
    maintenance._inspect(driver, "db.t", watched)
    assert ended(metrics) == {(INSPECTION, "failed"): 1}


class Idle:
    """A driver that finds nothing to do."""

    made: ClassVar[list[Idle]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.running = False
        self.deadline_seconds = 0.0
        Idle.made.append(self)

    def alive(self) -> bool:
        return self.running

    def start(self) -> None:
        self.running = True

    def run(self, *_: Any) -> None:
        return

    def stop(self) -> None:
        self.running = False


def test_driver_waits_for_another_round_and_then_ends(
    maintenance: MaintenanceThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_thread, "LakeClient", Idle)
    monkeypatch.setattr(maintenance_thread, "due_actions", lambda *_: [])
    Idle.made.clear()
    for _ in range(2):
        maintenance._round("db.t", _Watched(MaintenancePolicy(MaintenanceMode.TRUE), "main"))
    assert [each.running for each in Idle.made] == [True]  # the same one
    maintenance._end_driver()
    maintenance._round("db.t", _Watched(MaintenancePolicy(MaintenanceMode.TRUE), "main"))
    assert [each.running for each in Idle.made] == [False, True]
    broken: Any = Answering(ConnectError("the table cannot be read"))
    maintenance._inspect(broken, "db.t", _Watched(MaintenancePolicy(MaintenanceMode.TRUE), "main"))
    assert [each.running for each in Idle.made] == [False, False]
