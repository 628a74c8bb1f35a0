"""A worker maintains its tables while changes come: they stay exact, and their files few, whenever
it is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
from loaded_topics import MODES
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

SINK = "org.apache.iceberg.connect.IcebergSinkConnector"
POLICY = {
    "enabled": "true",
    "interval": "3s",
    "small-files": "6",
    "delete-ratio": "0.2",
    "snapshots": "12",
    "keep": "5s",
    "keep-snapshots": "4",
    "manifests": "20",
}


@contextmanager
def foreign_job(folder: Path, lake: Lakehouse) -> Iterator[Callable[[], list[str]]]:
    """Run a Spark job of another user that compacts and expires both tables; yield its output so
    far.
    """
    log = folder / "foreign.log"
    program = Path(__file__).parents[1] / "fixtures" / "foreign_job.py"
    java_home = str(Path(os.environ["CONNECT_PY_JAVA"]).resolve().parents[1])
    command = [sys.executable, str(program), str(lake.directory / "catalog.db"), lake.warehouse]
    with log.open("w") as written, (folder / "foreign.err").open("w") as complaints:
        job = subprocess.Popen(
            [*command, *(f"db.{mode}s" for mode in MODES)],
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=complaints,
            env={**os.environ, "JAVA_HOME": java_home},
        )
    try:
        yield lambda: [
            line for line in log.read_text().splitlines() if line.startswith(("done ", "refused "))
        ]
        assert job.poll() is None, (folder / "foreign.err").read_text()[-4000:]
    finally:
        assert job.stdin is not None
        job.stdin.close()
        try:
            job.wait(60)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


@dataclass(frozen=True)
class Story:
    """Duration and events of a run."""

    events: int
    rate: float
    kills: int = 0
    foreign: bool = False
    seed: int = 1


def run(folder: Path, broker: KafkaBroker, prefix: str, story: Story) -> None:
    """Upserts and appends with commits each second or two, maintained by a policy that finds much
    to do."""
    kills, events, rate, seed = story.kills, story.events, story.rate, story.seed
    chance = random.Random(seed)
    topic, keys = f"{prefix}orders", events // 5
    servers = broker.bootstrap_servers
    lake = Lakehouse(folder / "lake")
    worker = WorkerProcess(folder, servers, f"{prefix}worker", SHORT_TIMEOUTS)
    # On a slow machine, the limit is longer than the events.
    limit = events if story.foreign else 10 * events
    feed = ChangeFeed(servers, [topic], "json", keys, rate, limit=limit, begin=False)
    started = time.monotonic()
    try:
        worker.start()
        for mode in MODES:
            config = connector_config(topic, "json", mode, f"db.{mode}s", "", lake.sink_config())
            config |= {f"iceberg.ext.maintenance.{name}": text for name, text in POLICY.items()}
            worker.put(f"{prefix}{mode}", config)
        for mode in MODES:  # changes come while tables are committed to, and not before
            worker.wait_for_states(f"{prefix}{mode}", "RUNNING", "RUNNING", "RUNNING", seconds=60)
        feed.begin()
        with ExitStack() as beside:
            if story.foreign:
                worker.wait_until(
                    lambda: all(lake.table(f"db.{mode}s") for mode in MODES), 120, "the tables"
                )
                acts = beside.enter_context(foreign_job(folder, lake))
                beside.callback(lambda: print(_counted(acts())))
            _live(worker, lake, kills, chance)
            if not kills and not story.foreign:
                worker.wait_until(
                    lambda: _commits(lake) > 8, 240, "cycles between which maintenance has its turn"
                )
            produced = feed.wait(900) if story.foreign else feed.finish(900)
            if story.foreign:
                worker.wait_until(
                    lambda: sum(act.startswith("done") for act in acts()) > 20, 300, "foreign acts"
                )
        for mode in MODES:
            name = f"{prefix}{mode}"
            worker.wait_until(
                lambda name=name: caught_up(servers, name, topic), 120, f"{name} to catch up"
            )
        worker.wait_until(lambda: _calm(lake) and _done(lake) > 1, 120, "the last round")
        yields = worker.log_path.read_text(errors="replace").count(
            "interrupting maintenance for a commit"
        )
        print(
            f"seed {seed}, {produced} events, {kills} kills, {_done(lake)} actions, {yields} "
            f"interrupted, {time.monotonic() - started:.0f} s"
        )
        check_appends(lake.rows("db.appends"), expected_appends(produced, keys))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, keys))
        worker.stop()
        for mode in MODES:
            _audit(folder, f"{prefix}{mode}", f"db.{mode}s", lake)
    finally:
        feed.close()
        worker.close()


def _commits(lake: Lakehouse) -> int:
    """Changes of the table that had fewer."""
    tables = [lake.table(f"db.{mode}s") for mode in MODES]
    return min(table.metadata.last_sequence_number if table is not None else 0 for table in tables)


def _counted(acts: list[str]) -> str:
    done = sum(act.startswith("done") for act in acts)
    return f"foreign job: {done} procedures done, {len(acts) - done} refused"


def _live(worker: WorkerProcess, lake: Lakehouse, kills: int, chance: random.Random) -> None:
    """Kill the worker this often, at random times; every third run has maintained a table
    before.
    """
    for life in range(kills):
        before = _done(lake)
        if life % 3 == 0:
            worker.wait_until(
                lambda before=before: _done(lake) > before, 240, "a maintenance action of this life"
            )
        time.sleep(chance.uniform(0.0, 8.0 if life % 3 == 0 else 20.0))
        worker.kill_group()
        worker.start()


def _audit(folder: Path, connector: str, table: str, lake: Lakehouse) -> None:
    """The connector's commits must be proven, although others (of maintenance) are between them."""
    posted = folder / f"{connector}.json"
    config = {"topics": "x", "iceberg.tables": table, "connector.class": SINK, **lake.sink_config()}
    posted.write_text(json.dumps({"name": connector, "config": config}))
    command = [
        str(Path(sys.executable).parent / "connect-py"),
        "audit",
        table,
        "--config",
        str(posted),
    ]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert judged.returncode == 0, judged.stdout + judged.stderr


def _done(lake: Lakehouse) -> int:
    """Rows of the operations tables."""
    return sum(
        lake.rows(f"db.{mode}s_operations").num_rows
        for mode in MODES
        if lake.table(f"db.{mode}s_operations")
    )


def _calm(lake: Lakehouse) -> bool:
    """Return True if files and snapshots are within the policy's limits."""
    for mode in MODES:
        table = lake.table(f"db.{mode}s")
        if (
            table is None
            or len(table.snapshots()) > 20
            or len(list(table.scan().plan_files())) > 12
        ):
            return False
    return True


@pytest.mark.long
# a worker, two drivers for commits, and one for each round of maintenance
@pytest.mark.timeout(300)
def test_maintained_tables_stay_exact_while_changes_come(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    run(tmp_path, kafka_broker, topic_prefix, Story(events=12_000, rate=600))


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(2400)  # fifty runs of a worker
def test_kills_during_maintenance_lose_and_double_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    run(tmp_path, kafka_broker, topic_prefix, Story(events=400_000, rate=300, kills=50, seed=2))


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(1500)  # a worker, its drivers, a Spark of others, and ten minutes of changes
def test_foreign_job_beside_maintenance_loses_and_doubles_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    run(
        tmp_path,
        kafka_broker,
        topic_prefix,
        Story(events=120_000, rate=250, foreign=True, kills=3, seed=3),
    )
