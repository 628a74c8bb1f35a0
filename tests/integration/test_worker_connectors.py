"""Connectors in the worker's connector process: life, questions, death. Needs no broker."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fixtures.worker_plugins as plugins
import psutil
import pytest
from fixtures.worker_news import News

from connect_py.api.config import NO_DEFAULT, Type
from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.api.plugin import PluginKind
from connect_py.model import TargetState
from connect_py.plugins.plugin_registry import PluginRegistry, PluginTable, UnknownPluginError
from connect_py.worker.connector_process import OPERATIONS
from connect_py.worker.worker import TooManyTasksError, Worker

DEADLINE_SECONDS = 20.0


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry([PluginTable(plugins.PLUGINS)])


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture
def worker(registry: PluginRegistry, news: News) -> Iterator[Worker]:
    def resolve(config: Any) -> dict[str, str]:
        return {key: value.replace("${file:secret}", "s3cret") for key, value in config.items()}

    worker = Worker({}, plugins=registry, listener=news, resolve=resolve)
    worker.start()
    yield worker
    worker.stop()


def config(**more: str) -> dict[str, str]:
    return {"name": "c", "connector.class": "test.RecordingSinkConnector", "topics": "t", **more}


def start(worker: Worker, target: TargetState = TargetState.STARTED, **more: str) -> None:
    worker.start_connector("c", config(**more), target).result(DEADLINE_SECONDS)


def test_a_connector_starts_pauses_resumes_stops_and_goes(worker: Worker, news: News) -> None:
    start(worker)
    worker.set_target_state("c", TargetState.PAUSED)
    worker.set_target_state("c", TargetState.STARTED)
    worker.set_target_state("c", TargetState.STOPPED)
    news.wait_for("connector_stop", "c")
    assert worker.running_connectors() == {"c"}
    worker.stop_connector("c").result(DEADLINE_SECONDS)
    assert worker.running_connectors() == frozenset()
    assert [item[0] for item in news.items] == [
        "connector_startup",
        "connector_pause",
        "connector_resume",
        "connector_stop",
        "connector_shutdown",
    ]


@pytest.mark.parametrize(
    ("target", "news_kind"),
    [(TargetState.PAUSED, "connector_pause"), (TargetState.STOPPED, "connector_stop")],
)
def test_a_connector_that_is_not_to_run_never_starts_first(
    worker: Worker, news: News, target: TargetState, news_kind: str
) -> None:
    start(worker, target, **{"fail.connector": "true"})
    assert [item[:2] for item in news.items] == [(news_kind, "c")]
    with pytest.raises(ConnectError, match="connector c is not running"):
        worker.task_configs("c", config(), 1).result(DEADLINE_SECONDS)


def test_connector_that_fails_to_start_can_be_started_again(worker: Worker, news: News) -> None:
    with pytest.raises(ConnectError, match="fails as asked"):
        start(worker, **{"fail.connector": "true"})
    assert "fails as asked" in news.wait_for("connector_failure", "c")[2]
    start(worker)
    news.wait_for("connector_startup", "c")


def test_a_second_start_ends_the_first_instance_before(worker: Worker, news: News) -> None:
    start(worker)
    start(worker)
    # as Java's worker tells it
    assert news.kinds() == ["connector_startup", "connector_shutdown", "connector_startup"]


def test_a_connector_whose_stop_hangs_is_given_up(worker: Worker, news: News) -> None:
    start(worker, **{"hang.stop": "true"})
    began = time.monotonic()
    worker.stop_connector("c").result(DEADLINE_SECONDS)
    assert 4.0 < time.monotonic() - began < 8.0
    start(worker)
    news.wait_for("connector_startup", "c", 2)


def test_secrets_in_task_configurations_become_their_placeholders_again(worker: Worker) -> None:
    whole = config(password="${file:secret}")
    worker.start_connector("c", whole, TargetState.STARTED).result(DEADLINE_SECONDS)
    (made,) = worker.task_configs("c", whole, 1).result(DEADLINE_SECONDS)
    assert made["password"] == "${file:secret}"
    assert made["topics"] == "t"
    assert made["number"] == "0"


def test_more_tasks_than_allowed_are_refused_unless_that_is_permitted(worker: Worker) -> None:
    start(worker, **{"too.many": "1"})
    with pytest.raises(TooManyTasksError, match="has generated 3 tasks, which is greater than 2"):
        worker.task_configs("c", config(), 2).result(DEADLINE_SECONDS)
    permitted = config(**{"tasks.max.enforce": "false"})
    assert len(worker.task_configs("c", permitted, 2).result(DEADLINE_SECONDS)) == 3


def test_a_connector_asks_to_be_asked_again(worker: Worker, news: News) -> None:
    start(worker, **{"ask.again": "true"})
    news.wait_for("reconfiguration_requested", "c")


def test_a_configuration_is_validated_in_the_connector_process(worker: Worker) -> None:
    checked = worker.validate_connector("RecordingSink", {"batch": "0", "record.file": "x"}).result(
        DEADLINE_SECONDS
    )
    assert [key.name for key in checked.definitions] == ["record.file", "switch.dir", "batch"]
    assert checked.definitions[0].default is NO_DEFAULT
    assert checked.definitions[2].type is Type.INT
    assert checked.values["record.file"].errors == []
    assert checked.values["batch"].errors == [
        "Invalid value 0 for configuration batch: Value must be at least 1"
    ]
    with pytest.raises(UnknownPluginError):
        worker.validate_connector("Nope", {}).result(DEADLINE_SECONDS)


def test_definitions_of_any_plugin_are_listed(worker: Worker, registry: PluginRegistry) -> None:
    plugin = registry.find("test.TextConverter", PluginKind.CONVERTER)
    assert worker.plugin_definitions(plugin).result(DEADLINE_SECONDS) == []
    assert worker.validate_plugin(plugin, {"x": "1"}).result(DEADLINE_SECONDS).values == {}


def test_killed_connector_process_fails_its_connectors_and_is_replaced(
    worker: Worker, news: News
) -> None:
    start(worker)
    (pid,) = [
        p.pid for p in psutil.Process().children(recursive=True) if _is_child_of_fork_server(p)
    ]
    os.kill(pid, signal.SIGKILL)
    assert "killed by SIGKILL" in news.wait_for("connector_failure", "c")[2]
    with pytest.raises(NotFoundError):
        worker.task_configs("c", config(), 1).result(DEADLINE_SECONDS)
    start(worker)
    news.wait_for("connector_startup", "c", 2)


def _is_child_of_fork_server(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and parent.pid != os.getpid() and parent.ppid() == os.getpid()


def test_connector_started_after_lease_end_runs_with_the_next_lease(
    worker: Worker, news: News
) -> None:
    """A worker that was cut off, or slept, begins again: nothing of its old lease may end what runs
    by the new one."""
    start(worker)
    worker.extend_lease(time.monotonic())
    news.wait_for("connector_failure", "c")  # its process has ended by itself
    worker.stop_connector("c").result(DEADLINE_SECONDS)
    news.items.clear()
    started = worker.start_connector("c", config(), TargetState.STARTED)
    time.sleep(1)  # a process that was given the old lease ends at once
    assert not started.done()
    worker.extend_lease(None)
    started.result(DEADLINE_SECONDS)
    news.wait_for("connector_startup", "c")
    worker.extend_lease(time.monotonic() + DEADLINE_SECONDS)
    assert len(worker.task_configs("c", config(), 1).result(DEADLINE_SECONDS)) == 1
    assert "connector_failure" not in [item[0] for item in news.items]


def test_a_worker_killed_for_certain_takes_every_child_along(tmp_path: Path) -> None:
    program = f"""
import sys, time
sys.path[:0] = {sys.path!r}
import fixtures.worker_plugins as plugins
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry, PluginTable
from connect_py.worker.worker import Worker

class Listener:
    def __getattr__(self, name):
        return lambda *arguments: print(name, *arguments[:2], flush=True)

worker = Worker({{"bootstrap.servers": "127.0.0.1:1", "key.converter": "TextConverter",
                 "value.converter": "TextConverter", "header.converter": "TextHeaderConverter"}},
                plugins=PluginRegistry([PluginTable(plugins.PLUGINS)]), listener=Listener())
worker.start()
config = {{"name": "c", "connector.class": "RecordingSink", "topics": "t",
           "record.file": {str(tmp_path / "record")!r}, "switch.dir": {str(tmp_path)!r}}}
worker.start_connector("c", config, TargetState.STARTED).result(20)
worker.start_task(ConnectorTaskId("c", 0), config, config, TargetState.STARTED, 1)
time.sleep(60)
"""
    front = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert front.stdout is not None
        assert [front.stdout.readline().strip() for _ in range(2)] == [
            "on_state c State.RUNNING",
            "on_state c-0 State.RUNNING",
        ]
        children = psutil.Process(front.pid).children(recursive=True)
        assert len(children) >= 3
        front.kill()
        _, left = psutil.wait_procs(children, timeout=5.0)
        assert left == []
    finally:
        front.kill()
        front.wait()
        if front.stdout is not None:
            front.stdout.close()


OPERATING = {"name": "c", "connector.class": "test.OperatingSinkConnector", "topics": "t"}


def test_operations_show_steps_and_end_when_canceled_beside_validations(worker: Worker) -> None:
    """As many as may run at once, and one that waits for them."""
    steps: queue.Queue[str] = queue.Queue()
    started = [
        worker.start_operation("c", OPERATING, "wait", {}, steps.put) for _ in range(OPERATIONS)
    ]
    assert [steps.get(timeout=DEADLINE_SECONDS) for _ in started] == ["waiting as c"] * OPERATIONS
    answer, cancel = worker.start_operation("c", OPERATING, "wait", {}, steps.put)
    validated = worker.validate_connector("test.RecordingSinkConnector", config()).result(
        DEADLINE_SECONDS
    )
    assert validated.values
    cancel()
    cancel()  # once more changes nothing
    for running, cancel_running in started:
        assert not running.done()
        cancel_running()
        with pytest.raises(ConnectError, match="canceled"):
            running.result(DEADLINE_SECONDS)
    with pytest.raises(
        ConnectError, match="the operation was canceled because its client has disconnected"
    ):
        answer.result(DEADLINE_SECONDS)
    assert steps.empty()
    echoed, cancel = worker.start_operation("c", OPERATING, "echo", {"n": "1"}, steps.put)
    assert echoed.result(DEADLINE_SECONDS) == {"n": "1"}
    cancel()  # it has ended
    assert worker.operate("c", OPERATING, "echo", {}).result(DEADLINE_SECONDS) == {}
