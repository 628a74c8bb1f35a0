"""Three workers as processes on one broker: whatever happens to them, nothing runs twice and
everything runs again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from fixtures.worker_group import SESSION_SECONDS, GroupUnderTest, latencies

CONNECTORS, TASKS = 20, 60
LINES = "lines"
EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}
SETTLE_SECONDS = 90.0  # statuses are true within 30 s on a quiet machine; tests share theirs
LOG_LINES_PER_TASK = 12  # that an outage may cost


class Lines:
    """A file that grows, and the topic that a FileStream source copies it to."""

    def __init__(self, group: GroupUnderTest) -> None:
        self._group = group
        self.path = group.directory / "lines.txt"
        self.path.touch()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="lines")

    def _write(self) -> None:
        with self.path.open("a", buffering=1) as file:
            number = 0
            while not self._stop.wait(0.02):
                file.write(f"line {number}\n")
                number += 1

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Every line is in the topic once, in order."""
        wanted = self.path.read_text().splitlines()
        deadline = time.monotonic() + 60
        while len(found := [value for _, value in self._group.read(LINES)]) < len(wanted):
            assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)} lines arrived"
            time.sleep(0.5)
        assert found == wanted


@contextmanager
def group_at_work(
    directory: Path, connectors: int = CONNECTORS, tasks: int = TASKS, **properties: str
) -> Iterator[GroupUnderTest]:
    """A group whose tasks beat and whose FileStream source copies lines; both are checked at the
    end."""
    with GroupUnderTest(directory, "group-", **EXACTLY_ONCE, **properties) as group:
        group.start()
        for worker in group.workers:
            worker.wait_until(worker.healthy, SETTLE_SECONDS, "the worker to be healthy")
        lines = Lines(group)
        lines.start()
        try:
            group.create_lines(LINES, lines.path, LINES)
            group.create(connectors, tasks)
            group.items = connectors + 1 + tasks + 1
            group.settle(2 * SETTLE_SECONDS)
            yield group
        finally:
            lines.end()
        lines.check()
        group.check_nothing_ran_twice()


def others(group: GroupUnderTest, *numbers: int) -> list[int]:
    return [number for number in range(len(group.workers)) if number not in numbers]


def kill(group: GroupUnderTest, *numbers: int) -> None:
    """The other workers take over; the killed workers restart at their addresses and get a share
    again.
    """
    for number in numbers:
        group.kill(number)
    group.settle(SETTLE_SECONDS, others(group, *numbers))
    group.start(numbers)
    group.settle(SETTLE_SECONDS, range(len(group.workers)))
    group.check_nothing_ran_twice()


def put_leader_to_sleep(group: GroupUnderTest) -> None:
    """Its tasks end; when it resumes, it is fenced, and gets a share again."""
    leader = group.leader()
    told = group.workers[leader].log_path.stat().st_size
    group.signal(leader, signal.SIGSTOP)
    time.sleep(2 * SESSION_SECONDS)
    group.settle(SETTLE_SECONDS, others(group, leader))
    assert group.leader(others(group, leader)) != leader
    group.signal(leader, signal.SIGCONT)
    group.settle(SETTLE_SECONDS, range(len(group.workers)))
    with group.workers[leader].log_path.open() as log:
        log.seek(told)
        assert "this worker is no longer the leader of its group" in log.read()
    group.check_nothing_ran_twice()


def cut_the_network(group: GroupUnderTest) -> None:
    """w0 stops its tasks before others start them, and gets its share again."""
    group.cut.cut()
    group.settle(SETTLE_SECONDS, others(group, 0))
    group.check_nothing_ran_twice()
    group.cut.mend()
    group.settle(SETTLE_SECONDS, range(len(group.workers)))
    group.check_nothing_ran_twice()


def restart_one_after_the_other(
    group: GroupUnderTest, *numbers: int, by_kill: bool = False, own_work_back: bool = False
) -> None:
    """A worker that returns within the delay gets its own work back; other work does not move."""
    for number in numbers:
        before = group.statuses(number)
        if by_kill:
            group.kill(number)
        else:
            assert group.workers[number].stop() == 0
        group.start([number])
        group.settle(SETTLE_SECONDS, range(len(group.workers)))
        assert not own_work_back or group.statuses(number) == before
    group.check_nothing_ran_twice()


def take_the_broker_away(group: GroupUnderTest, seconds: float) -> None:
    """Everything stops, and starts again where it was, with nobody's help."""
    before = group.statuses(0)
    fronts = [psutil.Process(worker.pid) for worker in group.workers]
    memory = [front.memory_info().rss for front in fronts]
    sizes = [
        len(worker.log_path.read_text(errors="replace").splitlines()) for worker in group.workers
    ]
    group.broker.stop()
    time.sleep(seconds)
    told = [
        len(worker.log_path.read_text(errors="replace").splitlines()) for worker in group.workers
    ]
    group.broker.start()
    group.settle(SETTLE_SECONDS, range(len(group.workers)))
    assert group.statuses(0) == before
    for front, size in zip(fronts, memory, strict=True):
        assert front.memory_info().rss < size + 30e6
    per_worker = (group.items // len(group.workers)) * LOG_LINES_PER_TASK
    for first, last in zip(sizes, told, strict=True):
        assert last - first < per_worker, (
            f"{last - first} lines of log in {seconds:g} s without a broker"
        )
    group.check_nothing_ran_twice()


def ask_often(group: GroupUnderTest) -> None:
    """REST stays responsive, and front processes small; a separate test measures the full load."""
    took = latencies(f"{group.workers[0].url}/connectors?expand=status", 5.0)
    assert took[-2] < 1.0  # other tests share the machine
    for worker in group.workers:
        assert psutil.Process(worker.pid).memory_info().rss < 150e6


@pytest.mark.long
# three workers, 61 tasks, and a session's time-out for each thing that happens to them
@pytest.mark.timeout(600)
def test_worker_failures_lose_no_line_and_run_no_task_twice(tmp_path: Path) -> None:
    with group_at_work(tmp_path) as group:
        ask_often(group)
        kill(group, group.leader())
        put_leader_to_sleep(group)
        cut_the_network(group)
        restart_one_after_the_other(group, 1)
        take_the_broker_away(group, 2 * SESSION_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_group_survives_several_kills_and_two_minutes_without_broker(tmp_path: Path) -> None:
    with group_at_work(tmp_path) as group:
        leader = group.leader()
        kill(group, (leader + 1) % 3)
        kill(group, leader, (leader + 1) % 3)
        put_leader_to_sleep(group)
        cut_the_network(group)
        restart_one_after_the_other(group, 0, 1, 2)
        take_the_broker_away(group, 120)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_rolling_restarts_within_the_delay_move_nothing(tmp_path: Path) -> None:
    with group_at_work(tmp_path, **{"scheduled.rebalance.max.delay.ms": "120000"}) as group:
        restart_one_after_the_other(group, 0, 1, 2, own_work_back=True)
        restart_one_after_the_other(group, 0, 1, 2, by_kill=True, own_work_back=True)
