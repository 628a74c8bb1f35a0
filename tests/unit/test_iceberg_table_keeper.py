"""A driver that dies is replaced, but not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from iceberg_staging_rows import config

from connectors.iceberg import table_keeper
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
    made = TableKeeper(config(), listener)
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
    keeper = TableKeeper(config(**props), listener)
    keeper._driver = driver = MortalDriver()  # type: ignore[assignment]
    keeper.start()
    assert driver.sessions == early
