"""A task that is restarted and stopped at the same moment: its old life counts until it has really
ended."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from fixtures.worker_slow_offsets import SlowOffsets

from connect_py.metrics.task_report import TaskReport
from connect_py.model import ConnectorTaskId, State, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import Started, Stopped, TaskSpec, WriteSourceOffsets
from connect_py.testing import FakeClock
from connect_py.worker.task_host import TaskListener
from connect_py.worker.worker import Worker
from connect_py.worker.worker_tasks import KILL_SECONDS

TASK = ConnectorTaskId("c", 0)
SECONDS = 30.0


class SlowHost:
    """A task that ends when the test says so."""

    def __init__(self, spec: TaskSpec, tell: TaskListener) -> None:
        self.spec = spec
        self.report = TaskReport()
        self.tell = tell
        self.started, self.asked, self._ended = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )

    def start(self) -> None:
        self.started.set()
        self.tell(Started())

    def stop(self) -> None:
        self.asked.set()

    def end(self) -> None:
        self.tell(Stopped())
        self._ended.set()

    def cancel(self) -> None:
        self._ended.set()

    def wait(self, timeout: float) -> bool:
        return self._ended.wait(timeout)

    def extend_lease(self, until: float | None) -> None:
        return

    def set_target_state(self, target: TargetState) -> None:
        return

    def set_log_levels(self, levels: Any) -> None:
        return


class News:
    """Keeps what the worker tells of tasks; takes everything else."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_state(self, id: ConnectorTaskId, state: State, trace: str | None = None) -> None:  # noqa: A002 - Connect's word
        words = {
            State.RUNNING: "startup",
            State.UNASSIGNED: "shutdown",
            State.RESTARTING: "restart",
        }
        if state in words:
            self.told.append(words[state])

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: None


def worker_of(
    news: News, offsets: OffsetStore | None = None, **props: str
) -> tuple[Worker, queue.SimpleQueue[SlowHost]]:
    """A worker, and the hosts that it makes."""
    hosts: queue.SimpleQueue[SlowHost] = queue.SimpleQueue()

    def make(spec: TaskSpec, tell: TaskListener) -> SlowHost:
        host = SlowHost(spec, tell)
        hosts.put(host)
        return host

    props = {"task.shutdown.graceful.timeout.ms": str(int(SECONDS * 1000)), **props}
    worker = Worker(
        props,
        plugins=PluginRegistry([]),
        listener=news,
        source_offsets=offsets,
        make_task_host=make,  # type: ignore[arg-type]
    )
    return worker, hosts


def test_stop_during_a_restart_waits_for_the_ending_task() -> None:
    news = News()
    worker, hosts = worker_of(news)
    try:
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0)
        first = hosts.get(timeout=SECONDS)
        assert first.started.wait(SECONDS)
        # a restart: the first life is asked to end
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 1)
        assert first.asked.wait(SECONDS)
        stopped = worker.stop_tasks([TASK])
        assert not stopped.done()  # somebody else would start the task now, while it still runs
        first.end()
        stopped.result(SECONDS)
        told = list(news.told)
        assert told[-1] == "shutdown"
        assert hosts.empty() or not hosts.get().started.is_set()
    finally:
        worker.stop(0)
    assert news.told == told  # nothing is heard of it afterwards


def test_task_is_reported_as_restarting_between_stop_and_start() -> None:
    news = News()
    worker, hosts = worker_of(news)
    try:
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0)
        first = hosts.get(timeout=SECONDS)
        assert first.started.wait(SECONDS)
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0, restarting=True)
        assert first.asked.wait(SECONDS)
        first.end()
        assert hosts.get(timeout=SECONDS).started.wait(SECONDS)
        # as Java's worker tells it
        assert news.told == ["startup", "shutdown", "restart", "startup"]
    finally:
        worker.stop(0)


class UnkillableHost(SlowHost):
    """Whose process stays although it was killed; waiting for it takes all the time that there
    is."""

    def __init__(self, spec: TaskSpec, tell: TaskListener, clock: FakeClock) -> None:
        super().__init__(spec, tell)
        self._clock = clock

    def wait(self, timeout: float) -> bool:
        self._clock.now += timeout
        return False


def test_processes_that_were_killed_are_waited_for_together() -> None:
    clock, hosts = FakeClock(), list[SlowHost]()
    begun = clock.now

    def make(spec: TaskSpec, tell: TaskListener) -> SlowHost:
        hosts.append(UnkillableHost(spec, tell, clock))
        return hosts[-1]

    worker = Worker(
        {}, plugins=PluginRegistry([]), listener=News(), make_task_host=make, clock=clock
    )  # type: ignore[arg-type]
    for number in range(10):
        worker.start_task(ConnectorTaskId("c", number), {}, {}, TargetState.STARTED, 0)
    deadline = time.monotonic() + SECONDS
    while len(hosts) < 10 or not all(host.started.is_set() for host in hosts):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker.stop(0)
    assert clock.now - begun == pytest.approx(KILL_SECONDS)


def test_task_that_misses_its_stop_timeout_logs_connects_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    news = News()
    worker, hosts = worker_of(news, **{"task.shutdown.graceful.timeout.ms": "1"})
    try:
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0)
        assert hosts.get(timeout=SECONDS).started.wait(SECONDS)
        worker.stop_tasks([TASK]).result(SECONDS)
    finally:
        worker.stop(0)
    assert "Graceful stop of task c-0 failed." in caplog.text
    assert news.told == ["startup", "shutdown"]


def test_task_stop_completes_only_after_its_last_offsets_are_stored() -> None:
    news, offsets = News(), SlowOffsets()
    worker, hosts = worker_of(news, cast(OffsetStore, offsets))
    try:
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0)
        host = hosts.get(timeout=SECONDS)
        assert host.started.wait(SECONDS)
        host.tell(WriteSourceOffsets([({"file": "a"}, {"at": 1})]))
        assert offsets.writing.wait(SECONDS)
        stopped = worker.stop_tasks([TASK])
        assert host.asked.wait(SECONDS)
        host.end()
        with pytest.raises(TimeoutError):
            # a successor would begin before them, and they would be stored over its own
            stopped.result(0.2)
        offsets.arrival.set_result(None)
        stopped.result(SECONDS)
    finally:
        worker.stop(0)


def test_task_whose_process_cannot_start_leaves_no_threads_behind() -> None:
    failed = threading.Event()

    class Failures(News):
        def on_state(self, id: ConnectorTaskId, state: State, trace: str | None = None) -> None:  # noqa: A002 - as above
            if state is State.FAILED:
                failed.set()

    def make(spec: TaskSpec, tell: TaskListener) -> SlowHost:
        raise OSError("no more processes")

    worker = Worker({}, plugins=PluginRegistry([]), listener=Failures(), make_task_host=make)  # type: ignore[arg-type]
    try:
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0)
        assert failed.wait(SECONDS)
        assert worker._request_threads._pools == {}
    finally:
        worker.stop(0)
