"""A full topic in every format ends as the right tables: one row per event, and the last state of
each key."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from exactly_once_events import (
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
    load,
)
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from loaded_topics import FORMATS, MODES, registry
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

# in every run; the recordings of the corpus use all formats, and kills use JSON
ONE_FORMAT = "avro"


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
    events: int,
    keys: int,
    seconds: float,
) -> None:
    """Both modes at once, by two connectors on one topic."""
    topic = f"{prefix}orders"
    lake = Lakehouse(folder / "lake")
    worker = WorkerProcess(folder, broker.bootstrap_servers, f"{prefix}worker")
    with ThreadPoolExecutor(2) as background:
        loading = background.submit(
            load, broker.bootstrap_servers, topic, form, events, keys, seconds
        )
        appends = background.submit(expected_appends, events, keys)
        try:
            worker.start()
            loading.result()
            started = time.monotonic()
            for mode in MODES:
                config = connector_config(
                    topic, form, mode, f"db.{mode}s", registry_url, lake.sink_config()
                )
                worker.put(f"{prefix}{mode}", config)
            for mode in MODES:
                name = f"{prefix}{mode}"
                worker.wait_until(
                    lambda name=name: caught_up(broker.bootstrap_servers, name, topic),
                    seconds,
                    f"{name} to catch up",
                )
            print(f"{form}: {events} events, both modes: {time.monotonic() - started:.1f} s")
            check_appends(lake.rows("db.appends"), appends.result())
            check_upserts(lake.rows("db.upserts"), expected_upserts(events, keys))
            cycles = {mode: lake.assert_ledgers_chain(f"db.{mode}s") for mode in MODES}
            print(f"{form}: cycles {cycles}")
        finally:
            worker.close()


# in every run: test_worker_that_is_killed_loses_and_doubles_nothing, and test_corpus_replay.py
@pytest.mark.long
# a worker, two Spark drivers and 120,000 rows on two cores that others share
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "form", [f if f == ONE_FORMAT else pytest.param(f, marks=pytest.mark.long) for f in FORMATS]
)
def test_every_event_of_a_topic_arrives_exactly_once(
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
        events=60_000,
        keys=12_000,
        seconds=120,
    )


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(900)  # a million events twice: loaded, written, and compared row by row
@pytest.mark.parametrize("form", FORMATS)
def test_every_event_of_a_million_arrives_exactly_once(
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
        events=1_000_000,
        keys=200_000,
        seconds=600,
    )
