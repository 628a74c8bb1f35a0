"""However a worker ends, nothing that it started outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_lines import command_line
from exactly_once_events import SHORT_TIMEOUTS, ChangeFeed, connector_config
from lakehouse import Lakehouse
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

COMMIT_SECONDS = 90.0  # time until a worker with Spark commits, on two shared cores
GRACEFUL_SECONDS = 15.0  # tasks have 5 s, then they are killed; connectors have 5 s more
# from the exit of the front process to the exit of the last process; 0.9 on a crowded machine
LEFT_SECONDS = 3.0
ORPHAN_SECONDS = 3.0  # well before the lease of a killed worker, 4 s here, ends
POINT = "before_compare_and_swap"


class RunningSink:
    """A worker with one sink of two tasks that has committed, fed on."""

    def __init__(self, folder: Path, broker: KafkaBroker, prefix: str, faults: str = "") -> None:
        self.name, self.topic = f"{prefix}sink", f"{prefix}orders"
        self.points = folder / "points.log"
        environment = {"CONNECT_PY_FAULTS": faults, "CONNECT_PY_FAULTS_LOG": str(self.points)}
        self.worker = WorkerProcess(
            folder, broker.bootstrap_servers, f"{prefix}worker", SHORT_TIMEOUTS, environment
        )
        self.lake = Lakehouse(folder / "lake")
        self.feed = ChangeFeed(broker.bootstrap_servers, [self.topic], "json", 1000, rate=100)

    def start(self) -> None:
        self.worker.start()
        config = connector_config(
            self.topic, "json", "upsert", "db.orders", "", self.lake.sink_config()
        )
        self.worker.put(self.name, config)
        self.wait_for("after_compare_and_swap 1 ")

    def wait_for(self, line: str) -> None:
        """Wait until a fault point was come by."""
        self.worker.wait_until(
            lambda: self.points.exists() and f"\n{line}" in f"\n{self.points.read_text()}",
            COMMIT_SECONDS,
            line,
        )
        kinds = " ".join(map(command_line, self.worker.processes()))
        assert "java" in kinds
        assert "forkserver" in kinds

    def assert_nothing_is_left(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while left := self.worker.survivors():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)

    def close(self) -> None:
        self.feed.close()
        self.worker.close()


@pytest.fixture
def folder(tmp_path: Path, spark_environment: dict[str, str]) -> Iterator[Path]:
    return tmp_path


@pytest.mark.long  # in every run: the end of test_worker_that_is_killed_loses_and_doubles_nothing
# a worker with Spark makes its first commit on two shared cores
@pytest.mark.timeout(150)
def test_sigterm_ends_every_process_of_the_worker_in_time(
    folder: Path, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    sink = RunningSink(folder, kafka_broker, topic_prefix)
    try:
        sink.start()
        started = time.monotonic()
        assert sink.worker.stop() == 0
        assert time.monotonic() - started < GRACEFUL_SECONDS
        sink.assert_nothing_is_left(LEFT_SECONDS)
    finally:
        sink.close()


@pytest.mark.long
@pytest.mark.timeout(150)  # as above
def test_sigterm_during_a_commit_waits_for_no_commit(
    folder: Path, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    sink = RunningSink(folder, kafka_broker, topic_prefix, f"{POINT}=delay:120000@2")
    try:
        sink.start()
        sink.wait_for(f"{POINT} 2 ")
        started = time.monotonic()
        sink.worker.stop()
        assert time.monotonic() - started < GRACEFUL_SECONDS
        sink.assert_nothing_is_left(LEFT_SECONDS)
    finally:
        sink.close()


@pytest.mark.long
# as above, with a dedicated broker, and the timeouts of clients while it is not available
@pytest.mark.timeout(400)
def test_sigterm_ends_every_process_while_the_broker_is_away(
    folder: Path, topic_prefix: str
) -> None:
    with KafkaBroker() as broker:
        sink = RunningSink(folder, broker, topic_prefix)
        try:
            sink.start()
            broker.kill()
            started = time.monotonic()
            sink.worker.stop()
            assert time.monotonic() - started < 2 * GRACEFUL_SECONDS
            sink.assert_nothing_is_left(LEFT_SECONDS)
            broker.start()  # the feed has something to acknowledge
        finally:
            sink.close()


@pytest.mark.long
@pytest.mark.timeout(150)  # as above
def test_everything_ends_by_itself_when_the_front_process_is_killed(
    folder: Path, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    sink = RunningSink(folder, kafka_broker, topic_prefix, f"{POINT}=delay:120000@2")
    try:
        sink.start()
        sink.wait_for(f"{POINT} 2 ")  # also in the midst of a commit
        os.kill(sink.worker.pid, signal.SIGKILL)
        sink.assert_nothing_is_left(ORPHAN_SECONDS)
    finally:
        sink.close()
