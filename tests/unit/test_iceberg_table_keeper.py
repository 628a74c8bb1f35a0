"""A driver that dies is replaced, but not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from iceberg_staging_rows import config

from connect_py.testing import FakePluginMetrics
from connectors.iceberg import table_keeper
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.spark.commit_request import CommitCounts, CommitOutcome, CommitStatus, EngineName
from connectors.iceberg.spark.errors import SparkLostError
from connectors.iceberg.table_keeper import REPLACEMENTS, TableKeeper


class MortalDriver:
    """Counts its lives."""

    def __init__(self) -> None:
        self.lives = 0
        self.living = False
        self.sessions = 0

    def alive(self) -> bool:
        return self.living

    def restart(self) -> None:
        self.lives += 1
        self.living = True

    def start_session(self) -> None:
        self.sessions += 1

    def stop(self) -> None:
        self.living = False


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> TableKeeper:
    monkeypatch.setattr(table_keeper, "BACKOFF_SECONDS", (0.0,) * REPLACEMENTS)
    listener: Any = None
    made = TableKeeper(config(), listener, IcebergMetrics(FakePluginMetrics()))
    made._driver = MortalDriver()  # type: ignore[assignment]
    return made


def test_a_driver_that_lives_is_left_alone(keeper: TableKeeper) -> None:
    keeper.start()
    keeper.start()
    assert keeper._driver.lives == 1  # type: ignore[attr-defined]


def test_a_driver_is_replaced_three_times_without_a_commit_and_no_more(keeper: TableKeeper) -> None:
    keeper.start()
    for _ in range(REPLACEMENTS):
        keeper._driver.stop()
        keeper.start()
    keeper._driver.stop()
    with pytest.raises(SparkLostError, match="died 4 times"):
        keeper.start()
    assert keeper._driver.lives == 1 + REPLACEMENTS  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("props", "early"),
    [
        ({}, False),
        ({"tables__upsert_mode_enabled": "true"}, False),
        ({"tables__upsert_mode_enabled": "true", "ext__commit_engine": "merge"}, True),
        ({"tables__upsert_mode_enabled": "true", "spark__master": "spark://far:7077"}, True),
        ({"tables__upsert_mode_enabled": "true", "spark__master": "local[1]"}, False),
    ],
)
def test_a_spark_session_is_made_early_only_where_every_cycle_needs_it(props: dict[str, str], early: bool) -> None:
    listener: Any = None
    keeper = TableKeeper(config(**props), listener, IcebergMetrics(FakePluginMetrics()))
    keeper._driver = driver = MortalDriver()  # type: ignore[assignment]
    keeper.start()
    assert driver.sessions == early


def test_commits_are_measured_by_table_engine_and_outcome() -> None:
    made = FakePluginMetrics()
    metrics = IcebergMetrics(made)
    metrics.staged(2)
    counts = CommitCounts(added_files=2, added_rows=50, replaced_rows=7, milliseconds=500)
    landed = CommitOutcome(CommitStatus.COMMITTED, EngineName.DELTA, 9, "", counts, "rows may replace others")
    metrics.committed("db.t", landed, 1_700_000_000_000)
    metrics.committed("db.t", CommitOutcome(CommitStatus.CONFLICT, EngineName.DELTA, None, "moved", counts), None)
    table = {"table": "db.t"}
    found = {(name, *labels): measurement.value for (name, labels), measurement in made.made.items()}
    engine = (("engine", "delta"), *table.items())
    assert found == {
        ("iceberg_staged_cycles",): 2,
        ("iceberg_commits_total", engine[0], ("outcome", "committed"), engine[1]): 1,
        ("iceberg_commits_total", engine[0], ("outcome", "conflict"), engine[1]): 1,
        ("iceberg_commit_seconds_total", *engine): 1.0,
        ("iceberg_added_rows_total", *table.items()): 50,
        ("iceberg_replaced_rows_total", *table.items()): 7,
        ("iceberg_added_files_total", *table.items()): 2,
        ("iceberg_unknown_values_total", *table.items()): 0,
        ("iceberg_older_changes_total", *table.items()): 0,
        ("iceberg_engine_choices_total", engine[0], ("reason", "rows may replace others"), engine[1]): 1,
        ("iceberg_valid_through_seconds", *table.items()): 1_700_000_000,
    }
