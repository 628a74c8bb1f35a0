"""A task that is restarted and stopped at the same moment: its old life counts until it has really ended."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from connect_py.metrics.task_report import TaskReport
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.task.messages import TaskSpec
from connect_py.worker.task_host import TaskHostListener
from connect_py.worker.worker import Worker

TASK = ConnectorTaskId("c", 0)
SECONDS = 30.0


class SlowHost:
    """A task that ends when the test says so."""

    def __init__(self, spec: TaskSpec, listener: TaskHostListener) -> None:
        self.spec = spec
        self.report = TaskReport()
        self._listener = listener
        self.started, self.asked, self._ended = threading.Event(), threading.Event(), threading.Event()

    def start(self) -> None:
        self.started.set()
        self._listener.on_started(self.spec.id)

    def stop(self) -> None:
        self.asked.set()

    def end(self) -> None:
        self._listener.on_stopped(self.spec.id)
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

    def on_task_startup(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self.told.append("startup")

    def on_task_shutdown(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self.told.append("shutdown")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: None


def test_a_stop_during_a_restart_waits_for_the_life_that_is_ending() -> None:
    hosts: queue.SimpleQueue[SlowHost] = queue.SimpleQueue()
    news = News()

    def make(spec: TaskSpec, listener: TaskHostListener) -> SlowHost:
        host = SlowHost(spec, listener)
        hosts.put(host)
        return host

    props = {"task.shutdown.graceful.timeout.ms": str(int(SECONDS * 1000))}
    worker = Worker(props, plugins=PluginRegistry([]), listener=news, make_task_host=make)  # type: ignore[arg-type]
    try:
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 0)
        first = hosts.get(timeout=SECONDS)
        assert first.started.wait(SECONDS)
        worker.start_task(TASK, {}, {}, TargetState.STARTED, 1)  # a restart: the first life is asked to end
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
