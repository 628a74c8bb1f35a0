"""Contract of every `TaskHost`, wherever the task runs. The broker's address is a closed port: it
is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fixtures.worker_plugins as plugins
import pytest
from fixtures.in_process_task_host import InProcessTaskHost
from fixtures.worker_news import News

from connect_py.clock import SystemClock
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginTable
from connect_py.process.fork_server import ForkServer
from connect_py.task.messages import TaskSpec
from connect_py.worker.process_task_host import ProcessTaskHost
from connect_py.worker.task_host import TaskHost, TaskListener

DEADLINE_SECONDS = 20.0
TASK = ConnectorTaskId("c", 0)


Make = Callable[[TaskSpec, TaskListener], TaskHost]


@pytest.fixture(params=["process", "thread"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[TaskHost] = []

    def make(spec: TaskSpec, tell: TaskListener) -> TaskHost:
        host: TaskHost
        if request.param == "process":
            host = ProcessTaskHost(spec, tell, ForkServer(), SystemClock(), 10.0)
        else:
            host = InProcessTaskHost(spec, tell, SystemClock())
        made.append(host)
        return host

    yield make
    for host in made:
        host.cancel()
        assert host.wait(DEADLINE_SECONDS)


@pytest.fixture
def news() -> Any:
    return News(TASK)


def spec(directory: Path, target: TargetState = TargetState.STARTED, **more: str) -> TaskSpec:
    config = {
        "name": "c",
        "connector.class": "test.RecordingSinkConnector",
        "topics": "t",
        "switch.dir": str(directory),
        "record.file": str(directory / "record"),
        **more,
    }
    worker = {
        "bootstrap.servers": "127.0.0.1:1",
        "key.converter": "test.TextConverter",
        "value.converter": "test.TextConverter",
        "header.converter": "test.TextHeaderConverter",
    }
    return TaskSpec(TASK, worker, config, config, target, 1, (PluginTable(plugins.PLUGINS),))


def test_a_task_starts_and_stops_as_asked(make: Make, news: Any, tmp_path: Path) -> None:
    host = make(spec(tmp_path), news)
    host.start()
    news.wait_for_all("started")
    host.stop()
    assert host.wait(DEADLINE_SECONDS)
    news.wait_for_all("started", "stopped")


def test_a_task_is_paused_and_resumed(make: Make, news: Any, tmp_path: Path) -> None:
    host = make(spec(tmp_path), news)
    host.start()
    news.wait_for_all("started")
    host.set_target_state(TargetState.PAUSED)
    news.wait_for_all("started", "paused")
    host.set_target_state(TargetState.STARTED)
    news.wait_for_all("started", "paused", "resumed")


def test_task_paused_from_the_start_can_be_stopped_without_starting(
    make: Make, news: Any, tmp_path: Path
) -> None:
    host = make(spec(tmp_path, TargetState.PAUSED), news)
    host.start()
    news.wait_for_all("paused")
    host.stop()
    news.wait_for_all("paused", "stopped")
    assert not (tmp_path / "record").exists()


def test_failed_task_start_is_reported_only_once_with_its_trace(
    make: Make, news: Any, tmp_path: Path
) -> None:
    (tmp_path / "fail-start").touch()
    host = make(spec(tmp_path), news)
    host.start()
    assert host.wait(DEADLINE_SECONDS)
    news.wait_for_all("failed")
    assert news.items[0][1] == TASK
    assert "start fails as asked" in news.items[0][2]


def test_a_configuration_that_cannot_be_run_fails_the_task(
    make: Make, news: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = make(spec(tmp_path, **{"value.converter": "no.such.Converter"}), news)
    host.start()
    news.wait_for_all("failed")
    # operators look for it
    assert "Task is being killed and will not recover until manually restarted" in caplog.text
    assert "Class no.such.Converter could not be found." in news.items[0][2]


def test_running_task_reports_the_start_and_end_of_a_wait(
    make: Make, news: Any, tmp_path: Path
) -> None:
    (tmp_path / "gate").touch()
    host = make(spec(tmp_path), news)
    host.start()
    (_, _, waiting) = news.wait_for("waiting", TASK)
    assert (waiting.what, waiting.reason) == ("gate", "it is closed")
    (tmp_path / "gate").unlink()
    assert news.wait_for("waiting", TASK, count=2)[2] is None
    news.wait_for_all("started", "waiting", "waiting")


def test_running_task_reports_its_warnings(make: Make, news: Any, tmp_path: Path) -> None:
    (tmp_path / "warning").touch()
    host = make(spec(tmp_path), news)
    host.start()
    assert news.wait_for("warns", TASK) == ("warns", TASK, ("needs attention",))
    (tmp_path / "warning").unlink()
    assert news.wait_for("warns", TASK, count=2) == ("warns", TASK, ())


def test_cancelled_task_reports_nothing_after_its_cancellation(
    make: Make, news: Any, tmp_path: Path
) -> None:
    host = make(spec(tmp_path), news)
    host.start()
    news.wait_for_all("started")
    host.cancel()
    assert host.wait(DEADLINE_SECONDS)
    assert news.kinds() == ["started"]


def test_a_task_that_is_stopped_before_it_began_ends(make: Make, news: Any, tmp_path: Path) -> None:
    host = make(spec(tmp_path), news)
    host.stop()
    host.start()
    assert host.wait(DEADLINE_SECONDS)
    assert news.kinds()[-1] == "stopped"
