"""Kills at each numbered step of the protocol: the next run repairs the state that they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from exactly_once_events import (
    SHORT_TIMEOUTS,
    ChangeFeed,
    check_appends,
    connector_config,
    expected_appends,
)
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

FAULTS = "CONNECT_PY_FAULTS"
FAULTS_LOG = "CONNECT_PY_FAULTS_LOG"
POINTS = (
    "before_start_commit",
    "after_start_commit",
    "before_close_files",
    "after_close_files",
    "after_report",
    "after_accept",
    "before_prepare",
    "before_compare_and_swap",
    "after_compare_and_swap",
    "before_commit_complete",
    "after_commit_complete",
    "before_group_commit",
    "after_group_commit",
)
COMPACTION_POINTS = (
    "before_compaction_write",
    "after_compaction_write",
    "before_rewrite_swap",
    "after_rewrite_swap",
)
COMPACT_OFTEN = {"iceberg.ext.maintenance.small-files": "3"}
KEYS = 1000
# from the start of a worker to its death at the point, on two cores that others share
LIFE_SECONDS = 120.0
CATCH_UP_SECONDS = 90.0
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
TABLES = ("db.first", "db.second")


class TwoTables:
    """One connector that keeps two tables from two topics of the same events."""

    def __init__(
        self,
        folder: Path,
        broker: KafkaBroker,
        prefix: str,
        mode: str,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        self.name = f"{prefix}sink"
        self.topics = [f"{prefix}first", f"{prefix}second"]
        self.servers = broker.bootstrap_servers
        self.lake = Lakehouse(folder / "lake")
        self.points = folder / "points.log"
        self.worker = WorkerProcess(
            folder, self.servers, f"{prefix}worker", SHORT_TIMEOUTS, {FAULTS_LOG: str(self.points)}
        )
        self.feed = ChangeFeed(self.servers, self.topics, "json", KEYS, rate=200)
        self.config = {
            **connector_config("", "json", mode, "", "", self.lake.sink_config()),
            **settings,
            "topics": ",".join(self.topics),
            "iceberg.ext.topic-to-table": ",".join(
                f"{topic}:{table}" for topic, table in zip(self.topics, TABLES, strict=True)
            ),
        }
        del self.config["iceberg.tables"]
        self._known = False  # to the worker

    def live_until_death_at(self, point: str, hit: int = 1) -> None:
        """Start a worker that kills its whole process group at a point, and wait until it did."""
        self.points.unlink(missing_ok=True)
        self.worker.environment[FAULTS] = f"{point}=killgroup@{hit}"
        self.worker.start(wait=not self._known)
        if not self._known:
            self.worker.put(self.name, self.config)
            self._known = True
        self.worker.wait_for_death(LIFE_SECONDS)
        passed = f"\n{self.points.read_text()}"
        assert f"\n{point} {hit} " in passed, passed  # other processes may write after it

    def live_and_catch_up(self) -> int:
        """Start an undisturbed worker, end the feed, wait for everything; returns the number of
        events."""
        self.worker.environment.pop(FAULTS, None)
        self.worker.start()
        produced = self.feed.finish(CATCH_UP_SECONDS)
        self.worker.wait_until(
            lambda: caught_up(self.servers, self.name, *self.topics),
            CATCH_UP_SECONDS,
            "the sink to catch up",
        )
        return produced

    def check(self, produced: int) -> None:
        expected = expected_appends(produced, KEYS)
        for table in TABLES:
            check_appends(self.lake.rows(table), expected)
            self.lake.assert_ledgers_chain(table)

    def close(self) -> None:
        self.feed.close()
        self.worker.close()


def die_and_recover(
    points: Sequence[str],
    folder: Path,
    broker: KafkaBroker,
    prefix: str,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> None:
    """Kill one run per point, each of which recovers from the previous kill, on the same tables."""
    sink = TwoTables(folder, broker, prefix, "append", settings)
    try:
        for point in points:
            sink.live_until_death_at(point)
        sink.check(sink.live_and_catch_up())
    finally:
        sink.close()


def _snapshots(sink: TwoTables) -> list[int]:
    return [len(sink.lake.ledgers(table)) for table in TABLES]


@pytest.mark.long
@pytest.mark.timeout(300)  # four runs of a worker with Spark, on two shared cores
def test_death_between_the_commits_of_two_tables_leaves_both_right(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    """Then with files that nobody knows of, then with rows in the tables that the group does not
    know of."""
    one_after_another = {"iceberg.control.commit.threads": "1"}
    sink = TwoTables(tmp_path, kafka_broker, topic_prefix, "append", one_after_another)
    try:
        sink.live_until_death_at("after_compare_and_swap")
        assert sorted(_snapshots(sink)) == [0, 1], "one table is ahead of the other"
        sink.live_until_death_at("after_close_files")
        sink.live_until_death_at("before_commit_complete")
        sink.check(sink.live_and_catch_up())
    finally:
        sink.close()


@pytest.mark.long
@pytest.mark.timeout(1200)  # a run of a worker with Spark per point
def test_death_at_every_point_loses_and_doubles_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    die_and_recover(POINTS, tmp_path, kafka_broker, topic_prefix)


# in every run: test_crash_at_each_step_leaves_rows_and_files_that_the_next_epoch_removes
@pytest.mark.long
@pytest.mark.timeout(600)
def test_death_at_every_step_of_a_compaction_loses_and_doubles_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    die_and_recover(COMPACTION_POINTS, tmp_path, kafka_broker, topic_prefix, COMPACT_OFTEN)
