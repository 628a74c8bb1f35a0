"""The same scenario in several catalogs and storages: changes by key, appended events, a kill, lost
responses, and dead-letter records.

A REST catalog vends storage credentials, an S3 server checks them, and every connector is
configured as for the Java sink.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from exactly_once_events import (
    SHORT_TIMEOUTS,
    ChangeFeed,
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
)
from iceberg_rest_catalog import Fault, RestCatalogServer
from kafka_offsets import caught_up
from lakehouse_places import PLACES, PlacedLakehouse, lakehouse_at
from loaded_topics import MODES
from s3_server import S3Server, s3_server
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.spark_environment import spark_environment as resolved_environment
from connectors.iceberg.staging.staged_file_name import StagedFileName

KEYS, RATE = 2_000, 1_000
BROKEN = 7  # records that are no JSON
SECONDS = 120.0  # to do anything, on a crowded machine
FAULTS = "CONNECT_PY_FAULTS"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def environment() -> Iterator[Mapping[str, str]]:
    """Environment of Spark, with S3's library."""
    with pytest.MonkeyPatch.context() as patch:
        JarLock.shipped("s3").resolve()
        patch.delenv("CONNECT_PY_SPARK_JARS", raising=False)
        found = resolved_environment()
        for name, value in found.items():
            patch.setenv(name, value)
        yield found


@pytest.mark.long
# two runs of a worker with two JVMs each, and another JVM for the catalog
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", PLACES)
def test_tables_are_exact_after_a_kill_and_lost_answers_in(
    place: str,
    tmp_path: Path,
    s3: S3Server,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    environment: Mapping[str, str],
) -> None:
    with lakehouse_at(place, tmp_path / f"lake-{topic_prefix}", s3) as lake:
        _story(tmp_path, lake, kafka_broker.bootstrap_servers, topic_prefix, environment)


def _story(
    folder: Path, lake: PlacedLakehouse, servers: str, prefix: str, environment: Mapping[str, str]
) -> None:
    topic, names = f"{prefix}orders", {mode: f"{prefix}{mode}" for mode in MODES}
    configs = {mode: _config(topic, mode, lake) for mode in MODES}
    # The first run ends when files are staged and reported, but not committed: they are orphans
    # from then on.
    environment = {**environment, FAULTS: "before_prepare=killgroup@3"}
    worker = WorkerProcess(folder, servers, f"{prefix}worker", SHORT_TIMEOUTS, environment)
    feed = ChangeFeed(servers, [topic], "json", KEYS, RATE)
    try:
        worker.start()
        if (rest := lake.rest) is not None:
            rest.go_away()
        for mode, name in names.items():
            worker.put(name, configs[mode])
        if rest is not None:
            _return_when(
                worker,
                rest,
                "coordinator restarts: the catalog: RESTException",
                "Connection refused",
            )
        worker.wait_for_death(SECONDS)
        left = {mode: _orphans(lake, f"db.{mode}s", name) for mode, name in names.items()}
        assert any(left.values())
        _produce_broken(servers, topic)
        if rest is not None:
            rest.fail_commits(*Fault)
        worker.environment.pop(FAULTS)
        worker.start()
        commits = _commits(lake)
        worker.wait_until(
            lambda: _commits(lake) > commits + 2, SECONDS, "commits of the second life"
        )
        if rest is not None:
            worker.wait_until(lambda: rest.met == list(Fault), SECONDS, "all faults")
            rest.go_away()
            _return_when(worker, rest, "commit failed, its partitions wait", "Connection refused")
        produced = feed.finish(SECONDS)
        for name in names.values():
            worker.wait_until(
                lambda name=name: caught_up(servers, name, topic), SECONDS, f"{name} to catch up"
            )
        check_appends(lake.rows("db.appends"), expected_appends(produced, KEYS))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, KEYS))
        for mode in MODES:
            assert lake.rows(f"db.letters_{mode}").num_rows == BROKEN
            lake.assert_ledgers_chain(f"db.{mode}s")
            assert not left[mode] & lake.stored(f"db.{mode}s")
        _check_commands(folder, names["upsert"], configs["upsert"], "db.upserts", servers)
        assert worker.healthy()
    finally:
        feed.close()
        worker.close()


def _return_when(worker: WorkerProcess, rest: RestCatalogServer, *said: str) -> None:
    """Restart the catalog when the worker has logged, in one line, that it is not available."""

    def told() -> bool:
        lines = worker.log_path.read_text(errors="replace").splitlines()
        return any(all(text in line for text in said) for line in lines)

    worker.wait_until(told, SECONDS, " ... ".join(said))
    rest.come_back()


def _config(topic: str, mode: str, lake: PlacedLakehouse) -> dict[str, str]:
    return {
        **connector_config(topic, "json", mode, f"db.{mode}s", "", lake.sink_config()),
        "tasks.max": "1",
        "errors.tolerance": "all",
        "errors.deadletterqueue.iceberg.table": f"db.letters_{mode}",
    }


def _produce_broken(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(BROKEN):
        producer.produce(topic, key=str(number), value=b"{ no json")
    assert producer.flush(SECONDS) == 0


def _commits(lake: PlacedLakehouse) -> int:
    return sum(len(lake.ledgers(f"db.{mode}s")) for mode in MODES)


def _orphans(lake: PlacedLakehouse, table: str, connector: str) -> set[str]:
    """The names of staged files of a connector that no snapshot of the table refers to."""
    loaded = lake.table(table)
    if loaded is None:
        return set()
    used = {
        entry.data_file.file_path.rpartition("/")[2]
        for snapshot in loaded.snapshots()
        for manifest in snapshot.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
    }
    return {
        name for name in lake.stored(table) if name.startswith(StagedFileName.prefix(connector))
    } - used


def _check_commands(
    folder: Path, connector: str, config: Mapping[str, str], table: str, servers: str
) -> None:
    """All commands find the catalog and the storage by the connector's own file."""
    posted = folder / f"{connector}.json"
    posted.write_text(json.dumps({"name": connector, "config": config}))
    proven = _command("audit", table, "--config", str(posted))
    assert proven.returncode == 0, proven.stdout + proven.stderr
    migrated = _command("migrate", str(posted), "--bootstrap-server", servers, "--json")
    assert table in migrated.stdout, migrated.stderr
    assert migrated.returncode == 2, migrated.stdout  # the sink has begun already
    letters = _command("dlq", "list", "--config", str(posted), "--json")
    assert sum(count["letters"] for count in json.loads(letters.stdout or "[]")) == BROKEN, (
        letters.stderr
    )


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "connect-py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
