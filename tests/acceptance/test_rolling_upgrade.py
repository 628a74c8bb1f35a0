"""A group of two goes from the last release to this version and back, one worker after the other,
under load.

Changes come all the time. At the end the tables equal their source, `connect-py audit` proves that
each offset is in them once, and the lines of an exactly-once source are in their topic once and in
order.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from earlier_versions import LAST_RELEASE, EarlierWorker, checked_out
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
from topic_reader import read_topic
from worker_process import WorkerProcess, free_port

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.long
KEYS, RATE = 1_000, 200.0
STEP_SECONDS = 90.0
PROPERTIES = {**SHORT_TIMEOUTS, "exactly.once.source.support": "enabled"}


@dataclass
class Lines:
    """A file that grows by a line twenty times a second."""

    path: Path
    count: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.path.touch()
        self._thread = threading.Thread(target=self._write, name="lines", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with self.path.open("a", buffering=1) as file:
            while not self._ended.wait(0.05):
                file.write(f"line {self.count}\n")
                self.count += 1

    def end(self) -> None:
        self._ended.set()
        self._thread.join(10)


class Roll:
    """Two places of a group: at each runs a worker of the earlier version or of this one."""

    def __init__(self, folder: Path, earlier: Path, broker: KafkaBroker, prefix: str) -> None:
        self.folder, self.servers, self.prefix = folder, broker.bootstrap_servers, prefix
        self.topic = f"{prefix}orders"
        self.lake = Lakehouse(folder / "lake")
        group, ports = f"{prefix}worker", (free_port(), free_port())
        places = [(folder / f"w{number}", port) for number, port in enumerate(ports)]
        self._earlier = [
            EarlierWorker(earlier, at, self.servers, group, PROPERTIES, port) for at, port in places
        ]
        self._present = [
            WorkerProcess(at, self.servers, group, PROPERTIES, port=port) for at, port in places
        ]
        self.workers: list[WorkerProcess] = list(self._earlier)
        self.lines = Lines(folder / "lines.txt")
        self.feed = ChangeFeed(self.servers, [self.topic], "json", KEYS, RATE)

    def close(self) -> None:
        self.lines.end()
        self.feed.close()
        for worker in (*self._earlier, *self._present):
            worker.close()

    def begin(self, *, earlier: bool) -> None:
        """Both workers, of the earlier version or of this one, run a sink for each mode, and a
        source."""
        self.workers = list(self._earlier if earlier else self._present)
        for worker in self.workers:
            worker.start(wait=False)
        for worker in self.workers:
            worker.wait_until(worker.healthy, STEP_SECONDS, "the worker to be healthy")
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(f"{self.prefix}lines", 1, 1)])[f"{self.prefix}lines"].result(
            30
        )
        for mode in MODES:
            config = connector_config(
                self.topic, "json", mode, f"db.{mode}s", "", self.lake.sink_config()
            )
            self.workers[0].put(f"{self.prefix}{mode}", config)
        self.workers[0].put(
            f"{self.prefix}lines",
            {
                "connector.class": "FileStreamSource",
                "file": str(self.lines.path),
                "topic": f"{self.prefix}lines",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            },
        )
        self.settle("the first version")

    def upgrade(self, number: int) -> None:
        self._replace(number, self._present[number], f"worker {number} upgraded")

    def downgrade(self, number: int) -> None:
        self._replace(number, self._earlier[number], f"worker {number} downgraded")

    def _replace(self, number: int, by: WorkerProcess, what: str) -> None:
        begun = time.monotonic()
        assert self.workers[number].stop() == 0
        self.workers[number] = by.start()
        self.settle(what)
        print(f"{what}: {time.monotonic() - begun:.1f} s, {self.feed.produced} changes so far")

    def settle(self, what: str) -> None:
        """Wait until both workers run some of the tasks, and each table got a commit since then."""
        self._wait(self._spread, f"{what}: all run, on both workers")
        before = self._commits()
        self._wait(
            lambda: all(now > old for now, old in zip(self._commits(), before, strict=True)),
            f"{what}: commits",
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            self.workers[0].wait_until(condition, STEP_SECONDS, what)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n--- the other worker\n{self.workers[1].log_end()}"
            ) from error

    def _spread(self) -> bool:
        statuses = self.workers[0].get("/connectors?expand=status").values()
        items = [
            item
            for each in statuses
            for item in (each["status"]["connector"], *each["status"]["tasks"])
        ]
        places = {item["worker_id"] for item in items}
        return (
            len(items) == 8
            and len(places) == 2
            and all(item["state"] == "RUNNING" for item in items)
        )

    def _commits(self) -> list[int]:
        return [len(self.lake.ledgers(f"db.{mode}s")) for mode in MODES]

    def check(self) -> None:
        """Check that nothing is lost or duplicated."""
        self.lines.end()
        produced = self.feed.finish(60)
        for mode in MODES:
            name = f"{self.prefix}{mode}"
            self._wait(
                lambda name=name: caught_up(self.servers, name, self.topic), f"{name} to catch up"
            )
        self._wait(lambda: len(self._lines()) >= self.lines.count, "all lines")
        assert self._lines() == self.lines.path.read_text().splitlines()
        check_appends(self.lake.rows("db.appends"), expected_appends(produced, KEYS))
        check_upserts(self.lake.rows("db.upserts"), expected_upserts(produced, KEYS))
        commits = [self.lake.assert_ledgers_chain(f"db.{mode}s") for mode in MODES]
        for worker in self.workers:
            assert worker.stop() == 0
        for mode in MODES:
            self._audit(f"{self.prefix}{mode}", f"db.{mode}s")
        print(f"{produced} changes, {self.lines.count} lines, commits {commits}")

    def _lines(self) -> list[str]:
        return [record.text for record in read_topic(self.servers, f"{self.prefix}lines")]

    def _audit(self, connector: str, table: str) -> None:
        posted = self.folder / f"{connector}.json"
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.topic,
            "iceberg.tables": table,
            **self.lake.sink_config(),
        }
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


@pytest.fixture
def roll(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> Iterator[Roll]:
    with checked_out(LAST_RELEASE, tmp_path / "earlier") as earlier:
        under_test = Roll(tmp_path, earlier, kafka_broker, topic_prefix)
        try:
            yield under_test
        finally:
            under_test.close()


@pytest.mark.timeout(600)  # four workers with a Spark driver each, and two audits
def test_group_rolls_to_this_version_without_losing_a_row(roll: Roll) -> None:
    roll.begin(earlier=True)
    roll.upgrade(0)
    roll.upgrade(1)
    roll.check()


@pytest.mark.timeout(600)
def test_group_rolls_back_to_the_last_release_exactly(roll: Roll) -> None:
    roll.begin(earlier=False)
    roll.downgrade(0)
    roll.downgrade(1)
    roll.check()
