"""A commit waits for maintenance, and maintenance gives way; longer waits let it end at last."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConnectError
from connect_py.testing import FakePluginMetrics, FakeSharedServices
from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.maintenance import maintenance_thread
from connectors.iceberg.maintenance.maintenance_plan import MaintenanceAction, MaintenanceKind
from connectors.iceberg.maintenance.maintenance_thread import MaintenanceThread, _Watched


class SlowDriver:
    """An action takes a while, and fails when the connection to it ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._hung_up = threading.Event()
        self.begun = threading.Event()

    def run(self, *_: Any) -> Any:
        self._hung_up.clear()
        self.begun.set()
        if self._hung_up.wait(self._seconds):
            raise ConnectError("the Spark driver is gone")
        return type("Result", (), {"skipped": False, "helped": True, "line": lambda self: "done"})()

    def hang_up(self) -> None:
        self._hung_up.set()


@pytest.fixture
def maintenance(monkeypatch: pytest.MonkeyPatch) -> MaintenanceThread:
    monkeypatch.setattr(maintenance_thread, "YIELD_SECONDS", 0.2)
    monkeypatch.setattr(maintenance_thread, "LONGEST_YIELD_SECONDS", 0.9)
    metrics = IcebergMetrics(FakePluginMetrics())
    return MaintenanceThread(config(), SparkConfig("c", {"type": "rest"}), FakeSharedServices(), metrics)


def meet(maintenance: MaintenanceThread, driver: SlowDriver, watched: _Watched) -> float:
    """Let a commit come while an action is under way; returns how long it waited."""
    action = MaintenanceAction(MaintenanceKind.COMPACT, "small files")
    maintenance._worker = driver  # type: ignore[assignment] # it only runs and hangs up
    driver.begun.clear()
    acting = threading.Thread(target=lambda: maintenance._act(driver, "db.t", watched, action))  # type: ignore[arg-type] # the same
    acting.start()
    assert driver.begun.wait(10)
    started = time.monotonic()
    with maintenance.commit("db.t"):
        waited = time.monotonic() - started
    acting.join(10)
    return waited


def test_commits_wait_twice_as_long_after_each_interruption(maintenance: MaintenanceThread) -> None:
    watched = maintenance._tables["db.t"] = _Watched(MaintenancePolicy(True), "main", yield_seconds=0.2)
    slow = SlowDriver(30)
    for expected in (0.2, 0.4, 0.8, 0.9, 0.9):
        assert meet(maintenance, slow, watched) >= expected * 0.9
    assert watched.yield_seconds == 0.9
    quick = SlowDriver(0.5)
    assert meet(maintenance, quick, watched) < 0.85  # it ends by itself, because the commit waits that long now
    assert watched.yield_seconds == 0.2
    other = time.monotonic()
    with maintenance.commit("db.other"):
        assert time.monotonic() - other < 0.2


def test_opened_tables_are_looked_after_before_any_commit() -> None:
    """What was due when an earlier coordinator died is due after a restart, though nothing comes."""
    metrics = IcebergMetrics(FakePluginMetrics())
    settings = config(ext__maintenance__enabled="true", table__other__maintenance__enabled="false")
    made = MaintenanceThread(settings, SparkConfig("c", {"type": "rest"}), FakeSharedServices(), metrics)
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
