"""`kill -9` of the whole worker at random moments while events are fed: nothing is lost, nothing is
doubled."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
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
from loaded_topics import FORMATS, MODES, registry
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

LEFT_SECONDS = 10.0  # from the exit of the front process to the exit of the last process


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    with registry() as url:
        yield url


def run(
    folder: Path,
    broker: KafkaBroker,
    form: str,
    prefix: str,
    registry_url: str,
    *,
    kills: int,
    rate: float,
    events: int,
    keys: int,
    seed: int,
    seconds: float,
) -> None:
    """Two connectors, one per mode, are killed again and again; `seconds` is the time to catch up
    at the end."""
    chance = random.Random(seed)
    topic = f"{prefix}orders"
    servers = broker.bootstrap_servers
    lake = Lakehouse(folder / "lake")
    worker = WorkerProcess(folder, servers, f"{prefix}worker", SHORT_TIMEOUTS)
    feed = ChangeFeed(servers, [topic], form, keys, rate, limit=events)
    started = time.monotonic()
    moments = []
    try:
        worker.start()
        for mode in MODES:
            worker.put(
                f"{prefix}{mode}",
                connector_config(
                    topic, form, mode, f"db.{mode}s", registry_url, lake.sink_config()
                ),
            )
        for _ in range(kills):
            commits = _commits(lake)
            if chance.random() < 0.75:  # otherwise, it may be killed before its first commit
                worker.wait_until(
                    lambda before=commits: _commits(lake) > before, seconds, "a commit of this life"
                )
            time.sleep(chance.uniform(0.0, 5.0))
            moments.append((round(time.monotonic() - started, 1), _commits(lake)))
            worker.kill_group()
            worker.start()
        produced = feed.wait(seconds)
        for mode in MODES:
            name = f"{prefix}{mode}"
            worker.wait_until(
                lambda name=name: caught_up(servers, name, topic), seconds, f"{name} to catch up"
            )
        print(
            f"{form}: seed {seed}, {produced} events, kills at {moments}, "
            f"{time.monotonic() - started:.0f} s in all"
        )
        check_appends(lake.rows("db.appends"), expected_appends(produced, keys))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, keys))
        assert worker.stop() == 0
        worker.wait_until(
            lambda: not worker.survivors(), LEFT_SECONDS, "every process of the worker to end"
        )
        print(f"{form}: snapshots {[lake.assert_ledgers_chain(f'db.{m}s') for m in MODES]}")
    finally:
        feed.close()
        worker.close()


def _commits(lake: Lakehouse) -> int:
    return sum(len(lake.ledgers(f"db.{mode}s")) for mode in MODES)


# two runs of a worker with a Spark driver, on two shared cores
@pytest.mark.timeout(300)
def test_worker_that_is_killed_loses_and_doubles_nothing(
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    registry_url: str,
    spark_environment: dict[str, str],
) -> None:
    run(
        tmp_path,
        kafka_broker,
        "json",
        topic_prefix,
        registry_url,
        kills=1,
        rate=2000,
        events=20_000,
        keys=4_000,
        seed=20,
        seconds=120,
    )


@pytest.mark.long
# a million events at a rate that spans ten kills, twice compared row by row
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("form", FORMATS)
def test_worker_killed_ten_times_loses_or_doubles_no_event(
    form: str,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    registry_url: str,
    spark_environment: dict[str, str],
) -> None:
    run(
        tmp_path,
        kafka_broker,
        form,
        topic_prefix,
        registry_url,
        kills=10,
        rate=5000,
        events=1_000_000,
        keys=200_000,
        seed=FORMATS.index(form),
        seconds=600,
    )
