"""A worker of an earlier version is killed in the middle of a cycle; this version goes on with its
tables exactly.

The earlier version runs from this repository's history, in this environment. It is the last one
whose sink committed without Spark's driver: its tables, channel and offsets are what an upgrade
finds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from earlier_versions import WITHOUT_SPARK_DRIVER, EarlierWorker, checked_out
from exactly_once_events import (
    SHORT_TIMEOUTS,
    ChangeFeed,
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
)
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from loaded_topics import MODES
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Path]:
    with checked_out(WITHOUT_SPARK_DRIVER, tmp_path / "earlier") as place:
        yield place


@pytest.mark.long
@pytest.mark.timeout(600)
# from a commit until the kill: where in the next cycle it comes
@pytest.mark.parametrize("seconds", [0.0, 0.7, 1.6])
def test_worker_continues_exactly_after_an_earlier_version_was_killed(
    seconds: float,
    earlier: Path,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
) -> None:
    servers, topic, group = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}orders",
        f"{topic_prefix}worker",
    )
    keys, lake = 3_000, Lakehouse(tmp_path / "lake")
    old = EarlierWorker(earlier, tmp_path / "old", servers, group, SHORT_TIMEOUTS)
    new = WorkerProcess(tmp_path / "new", servers, group, SHORT_TIMEOUTS)
    feed = ChangeFeed(servers, [topic], "json", keys, 1_000, limit=60_000)
    commits = lambda: sum(len(lake.ledgers(f"db.{mode}s")) for mode in MODES)  # noqa: E731 - a name for what is waited for
    try:
        old.start()
        for mode in MODES:
            config = connector_config(topic, "json", mode, f"db.{mode}s", "", lake.sink_config())
            old.put(f"{topic_prefix}{mode}", config)
        old.wait_until(lambda: commits() >= 3, 120, "commits of the earlier version")
        before = commits()
        old.wait_until(lambda: commits() > before, 60, "one more")
        time.sleep(seconds)
        old.kill_group()
        made_by_old = commits()
        new.start()
        produced = feed.wait(120)
        for mode in MODES:
            name = f"{topic_prefix}{mode}"
            new.wait_until(
                lambda name=name: caught_up(servers, name, topic), 180, f"{name} to catch up"
            )
        assert commits() > made_by_old
        check_appends(lake.rows("db.appends"), expected_appends(produced, keys))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, keys))
        print([lake.assert_ledgers_chain(f"db.{mode}s") for mode in MODES])
    finally:
        feed.close()
        old.close()
        new.close()
