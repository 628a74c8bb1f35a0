"""`connect-py load` as users run it: on this machine and on a cluster, killed again and again; then
the connector."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from command_lines import command_line
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
from spark_elsewhere import StandaloneCluster
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

# The processing of records in a load is tested in one process: `test_iceberg_load`.
pytestmark = pytest.mark.long
RATE, FIRST_SECONDS, KEYS, KILLS, SECONDS = 300.0, 60.0, 8_000, 10, 900.0
COMMAND = Path(sys.executable).with_name("connect-py")


class RunningLoad:
    """One command, and all that it starts."""

    def __init__(self, folder: Path, connector: Path, words: Sequence[str]) -> None:
        self._log = (folder / f"load-{time.monotonic_ns()}.log").open("w+b")
        command = [
            str(COMMAND),
            "load",
            str(connector),
            "--step-rows",
            "4000",
            "--split",
            "3",
            *words,
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    @property
    def text(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def processes(self, part: str) -> list[psutil.Process]:
        """Return descendants of the command with this word in their command line."""
        if self._process.poll() is not None:
            return []
        found = psutil.Process(self._process.pid).children(recursive=True)
        return [each for each in found if part in command_line(each)]

    def kill(self, what: str) -> None:
        """Kill the command, its driver's JVM, or what runs Python for an executor on this
        machine."""
        parts = {"driver": "pyspark/jars", "executor": "pyspark.daemon"}
        if what != "command":
            for each in self.processes(parts[what])[:1]:
                each.kill()
        elif self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._log.close()


@pytest.fixture(params=["local", "cluster"])
def master(
    request: pytest.FixtureRequest, tmp_path: Path, spark_environment: dict[str, str]
) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "local":
            yield "local[2]"
        else:
            yield stack.enter_context(StandaloneCluster(tmp_path / "spark", spark_environment)).url


@pytest.mark.soak
@pytest.mark.timeout(3 * SECONDS)
def test_load_killed_ten_times_is_exact_and_the_connector_follows(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, master: str
) -> None:
    servers, topic, lake = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}orders",
        Lakehouse(tmp_path / "lake"),
    )
    feed = ChangeFeed(servers, [topic], "json", KEYS, RATE)  # also behind the ends of the loads
    worker = WorkerProcess(tmp_path / "worker", servers, f"{topic_prefix}worker", SHORT_TIMEOUTS)
    chance = random.Random(master)
    configs = {
        mode: connector_config(topic, "json", mode, f"db.{mode}s", "", lake.sink_config())
        for mode in MODES
    }
    try:
        time.sleep(FIRST_SECONDS)
        deaths: list[str] = []
        for mode, config in configs.items():
            connector = tmp_path / f"{mode}.json"
            connector.write_text(json.dumps({"name": f"{topic_prefix}{mode}", "config": config}))
            words = ["--bootstrap-server", servers, "--master", master]
            deaths += load_through_kills(tmp_path, connector, words, KILLS // len(MODES), chance)
        loaded = {mode: lake.assert_ledgers_chain(f"db.{mode}s") for mode in MODES}
        worker.start()
        for mode, config in configs.items():
            worker.put(f"{topic_prefix}{mode}", config)
        produced = feed.finish(SECONDS)
        for mode in MODES:
            name = f"{topic_prefix}{mode}"
            worker.wait_until(
                lambda name=name: caught_up(servers, name, topic), SECONDS, f"{name} to catch up"
            )
        print(f"{master}: {produced} events, killed {deaths}, commits of the loads {loaded}")
        check_appends(lake.rows("db.appends"), expected_appends(produced, KEYS))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, KEYS))
        for mode in MODES:
            assert lake.assert_ledgers_chain(f"db.{mode}s") > loaded[mode] > 1
    finally:
        feed.close()
        worker.close()


@pytest.mark.timeout(SECONDS)
def test_archive_serves_executors_of_a_cluster_without_connect_py(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    servers, topic, lake = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}orders",
        Lakehouse(tmp_path / "lake"),
    )
    archive, connector = tmp_path / "connect-py.tar.gz", tmp_path / "sink.json"
    packed = subprocess.run(
        [str(COMMAND), "spark-archive", str(archive)], capture_output=True, check=True, timeout=300
    )
    assert b"files" in packed.stdout
    config = connector_config(topic, "json", "upsert", "db.orders", "", lake.sink_config())
    connector.write_text(json.dumps({"name": f"{topic_prefix}sink", "config": config}))
    feed = ChangeFeed(servers, [topic], "json", KEYS, 1e6, limit=5_000)
    try:
        produced = feed.wait(SECONDS)
    finally:
        feed.close()
    with StandaloneCluster(tmp_path / "spark", spark_environment) as cluster:
        words = ["--bootstrap-server", servers, "--master", cluster.url, "--archive", str(archive)]
        assert load_through_kills(tmp_path, connector, words, 0, random.Random(1)) == []
    check_upserts(lake.rows("db.orders"), expected_upserts(produced, KEYS))
    assert list((tmp_path / "spark").glob("worker*/work/**/connect-py/bin/interpreter"))


def load_through_kills(
    folder: Path, connector: Path, words: Sequence[str], kills: int, chance: random.Random
) -> list[str]:
    """Run the command repeatedly and kill it this many times, then let it finish. Return the killed
    processes.
    """
    killed: list[str] = []
    while True:
        running, left = RunningLoad(folder, connector, words), len(killed) < kills
        try:
            if left:
                killed.append(chance.choice(["command", "driver", "executor"]))
                time.sleep(chance.uniform(2.0, 25.0))
                running.kill(killed[-1])
            status = running.wait(SECONDS)
            assert status in ((0, 1, -signal.SIGKILL) if left else (0,)), running.text
            if not left:
                return killed
        finally:
            running.close()
