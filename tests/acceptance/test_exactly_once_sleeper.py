"""A coordinator that is suspended while another one takes over: when it resumes, it changes
nothing.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
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
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

TABLE = "db.orders"
KEYS = 1000
POINT = "before_compare_and_swap"
SECOND_COMMIT = 2  # the table and its ledger exist by then
SECONDS = 90.0  # time until a worker with Spark commits, on two shared cores


class Sleeper:
    """A worker whose Spark driver suspends itself right before it makes the second commit
    visible.
    """

    def __init__(self, folder: Path, broker: KafkaBroker, prefix: str, mode: str) -> None:
        self.name, self.topic, self.mode = f"{prefix}sink", f"{prefix}orders", mode
        self.servers = broker.bootstrap_servers
        self.lake = Lakehouse(folder / "lake")
        self.points = folder / "points.log"
        faults = {
            "CONNECT_PY_FAULTS": f"{POINT}=stop@{SECOND_COMMIT}",
            "CONNECT_PY_FAULTS_LOG": str(self.points),
        }
        group = f"{prefix}worker"
        self.old = WorkerProcess(folder / "old", self.servers, group, SHORT_TIMEOUTS, faults)
        self.new = WorkerProcess(folder / "new", self.servers, group, SHORT_TIMEOUTS)
        self.feed = ChangeFeed(self.servers, [self.topic], "json", KEYS, rate=200)
        self.config = connector_config(self.topic, "json", mode, TABLE, "", self.lake.sink_config())
        self.driver: psutil.Process
        self.jvm: psutil.Process

    def fall_asleep(self) -> None:
        self.old.start()
        self.old.put(self.name, self.config)
        self.wait(
            "the driver to stop itself", lambda: self._pid_at(POINT, SECOND_COMMIT) is not None
        )
        self.driver = psutil.Process(self._pid_at(POINT, SECOND_COMMIT))
        self.wait("the kernel to stop it", lambda: self.driver.status() == psutil.STATUS_STOPPED)
        [self.jvm] = [p for p in self.driver.children() if "java" in p.name()]
        self.old.processes()
        self.jvm.send_signal(signal.SIGSTOP)

    def _pid_at(self, point: str, hit: int) -> int | None:
        lines = self.points.read_text().splitlines() if self.points.exists() else []
        return next(
            (int(line.split()[2]) for line in lines if line.startswith(f"{point} {hit} ")), None
        )

    def others(self) -> list[psutil.Process]:
        """Return the old worker's processes except the driver and its JVM, the front process
        first.
        """
        return [p for p in self.old.processes() if p.pid not in (self.driver.pid, self.jvm.pid)]

    def succeed(self) -> list[int]:
        """Start the new worker, wait for its first commits; returns the epoch of the sleeper."""
        asleep = self.lake.ledgers(TABLE)[-1]["epoch"]
        self.new.start()
        self.wait("the new worker's second commit", lambda: len(self._since(asleep)) >= 2)
        return asleep

    def _since(self, epoch: list[int]) -> list[object]:
        return [ledger for ledger in self.lake.ledgers(TABLE) if ledger["epoch"] != epoch]

    def has_tried(self) -> bool:
        """Return True if the coordinator received the outcome of the swap."""
        return self._pid_at("after_compare_and_swap", SECOND_COMMIT) is not None

    def is_done(self) -> bool:
        """Return True if the swap was attempted, or the driver ended because the worker's lease
        expired.
        """
        return self.has_tried() or not self.driver.is_running()

    def finish(self, asleep: list[int]) -> None:
        """End the feed, wait for everything, and compare."""
        produced = self.feed.finish(SECONDS)
        self.wait("the sink to catch up", lambda: caught_up(self.servers, self.name, self.topic))
        if self.mode == "append":
            check_appends(self.lake.rows(TABLE), expected_appends(produced, KEYS))
        else:
            check_upserts(self.lake.rows(TABLE), expected_upserts(produced, KEYS))
        self.lake.assert_ledgers_chain(TABLE)
        epochs = [ledger["epoch"] for ledger in self.lake.ledgers(TABLE)]
        assert epochs == [asleep, *(e for e in epochs[1:] if e != asleep)], (
            "the sleeper's second commit is visible"
        )
        assert self.files_of(asleep) <= self.referenced(), "files of the sleeper are left behind"

    def files_of(self, epoch: list[int]) -> set[str]:
        """Names of the files that the epoch staged and that are still there."""
        part = f".{epoch[0]}-{epoch[1]}."
        return {
            path.name for path in self.lake.directory.rglob("connect-py-*") if part in path.name
        }

    def referenced(self) -> set[str]:
        table = self.lake.table(TABLE)
        assert table is not None
        found = table.inspect.all_files().column("file_path").to_pylist()
        return {path.rpartition("/")[2] for path in found}

    def wait(self, what: str, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (
                f"{what}\n{self.old.log_end()}\n--\n{self.new.log_end()}"
            )
            time.sleep(0.1)

    def close(self) -> None:
        self.feed.close()
        _signal(self.old.seen.values(), signal.SIGCONT)
        self.old.close()
        self.new.close()


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@pytest.mark.long
# two workers with Spark, and the timeouts after which the second one takes over
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_worker_suspended_before_its_swap_changes_nothing_after_waking(
    mode: str,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
) -> None:
    """Every process of the worker is suspended and resumed, as on a suspended machine."""
    sleeper = Sleeper(tmp_path, kafka_broker, topic_prefix, mode)
    try:
        sleeper.fall_asleep()
        _signal(sleeper.others(), signal.SIGSTOP)
        asleep = sleeper.succeed()
        assert not sleeper.has_tried()
        _signal([sleeper.jvm, sleeper.driver, *sleeper.others()], signal.SIGCONT)
        sleeper.wait(
            "the sleeper to try its swap, or to see that its time is over", sleeper.is_done
        )
        assert sleeper.old.stop() == 0
        sleeper.finish(asleep)
    finally:
        sleeper.close()


@pytest.mark.long
# two workers with Spark, and the timeouts after which the second one takes over
@pytest.mark.timeout(400)
def test_suspended_driver_ends_with_its_killed_worker_without_any_change(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    """Driver and JVM are suspended while the worker is killed: they are killed with it."""
    sleeper = Sleeper(tmp_path, kafka_broker, topic_prefix, "append")
    try:
        sleeper.fall_asleep()
        front, *_ = sleeper.others()
        front.kill()
        sleeper.wait("the worker's processes to end", lambda: not sleeper.old.survivors(), 15)
        asleep = sleeper.succeed()
        sleeper.finish(asleep)
    finally:
        sleeper.close()
