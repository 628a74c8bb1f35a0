"""Shared services of a worker: tasks and connectors use them, and they end with their users. Needs
no broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fixtures.service_plugins as plugins
import psutil
import pytest
from fixtures.in_process_task_host import InProcessTaskHost
from fixtures.worker_news import News

from connect_py.clock import SystemClock
from connect_py.metrics.samples import OwnSample
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry, PluginTable
from connect_py.worker.connector_messages import AlterOffsets
from connect_py.worker.worker import Worker

SECONDS = 30.0
TESTS = Path(__file__).parents[1]
PROPS = {
    "bootstrap.servers": "127.0.0.1:1",
    "key.converter": "TextConverter",
    "value.converter": "TextConverter",
    "header.converter": "TextHeaderConverter",
    "connect_py.echo.mark": "of-the-worker",
    "connect_py.echo.password": "s3cr3t-s3tting",
}


@pytest.fixture(autouse=True)
def _programs_find_the_fixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)


@pytest.fixture
def news() -> News:
    return News()


def make_worker(news: News, **more: Any) -> Worker:
    return Worker(
        PROPS, plugins=PluginRegistry([PluginTable(plugins.PLUGINS)]), listener=news, **more
    )  # type: ignore[arg-type] # it takes any news


@pytest.fixture(params=["process", "thread"])
def worker(request: pytest.FixtureRequest, news: News) -> Iterator[Worker]:
    """Tasks in processes, and on threads."""
    more: dict[str, Any] = {}
    if request.param == "thread":
        more["make_task_host"] = lambda spec, tell: InProcessTaskHost(spec, tell, SystemClock())
    worker = make_worker(news, **more)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def with_processes(news: News) -> Iterator[Worker]:
    worker = make_worker(news)
    worker.start()
    yield worker
    worker.stop()


def config(path: Path, **more: str) -> dict[str, str]:
    return {
        "name": "c",
        "connector.class": "test.ServiceSinkConnector",
        "topics": "t",
        "record.file": str(path),
        **more,
    }


def start_task(worker: Worker, news: News, path: Path, number: int = 0, **more: str) -> None:
    whole = config(path, **more)
    worker.start_task(ConnectorTaskId("c", number), whole, whole, TargetState.STARTED, 1)
    news.wait_for("task_startup", ConnectorTaskId("c", number))


def answers(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def service_pid(answer: dict[str, Any]) -> int:
    return int(answer["service"].split()[0])


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def service_value(worker: Worker, name: str) -> float | None:
    samples = [
        s
        for s in worker.metrics()
        if isinstance(s, OwnSample) and s.name == f"connect_py_service_{name}"
    ]
    return samples[0].value if samples else None


def test_tasks_share_a_configured_service_until_the_last_one_stops(
    worker: Worker, news: News, tmp_path: Path
) -> None:
    path = tmp_path / "answers"
    for number in (0, 1):
        start_task(worker, news, path, number)
    one, other = answers(path)
    assert one["service"] == other["service"]
    assert one["service"].split()[1] == "of-the-worker"
    assert service_value(worker, "users") == 2
    worker.stop_tasks([ConnectorTaskId("c", 0)]).result(SECONDS)
    assert service_value(worker, "users") == 1
    assert running(service_pid(one))
    worker.stop_tasks([ConnectorTaskId("c", 1)]).result(SECONDS)
    until(lambda: not running(service_pid(one)), "the service did not end")
    assert service_value(worker, "users") == 0
    assert service_value(worker, "starts_total") == 1
    assert service_value(worker, "deaths_total") == 0


def test_task_continues_with_new_process_when_its_service_dies(
    worker: Worker, news: News, tmp_path: Path
) -> None:
    path = tmp_path / "answers"
    start_task(worker, news, path)
    os.kill(service_pid(answers(path)[0]), signal.SIGKILL)
    until(lambda: len(answers(path)) == 2, "the task found no new process")
    assert service_pid(answers(path)[1]) != service_pid(answers(path)[0])
    assert news.failures == []


def test_lasting_service_failure_fails_task_with_the_error_text(
    worker: Worker, news: News, tmp_path: Path
) -> None:
    whole = config(tmp_path / "answers", **{"echo.fail": "Java 17 is not installed"})
    worker.start_task(ConnectorTaskId("c", 0), whole, whole, TargetState.STARTED, 1)
    trace = news.wait_for("task_failure", ConnectorTaskId("c", 0))[2]
    assert "Java 17 is not installed" in trace


def test_a_task_that_waits_for_its_service_stops_in_order(
    worker: Worker, news: News, tmp_path: Path
) -> None:
    switch = tmp_path / "switch"
    switch.touch()
    task, whole = (
        ConnectorTaskId("c", 0),
        config(tmp_path / "answers", **{"echo.die.while": str(switch)}),
    )
    worker.start_task(task, whole, whole, TargetState.STARTED, 1)
    until(lambda: service_value(worker, "starts_total"), "the service was not requested")
    begun = time.monotonic()
    worker.stop_tasks([task]).result(SECONDS)
    assert time.monotonic() - begun < 4.0  # less than it takes to be cancelled
    assert news.kinds() == ["task_shutdown"]


def test_a_stopped_worker_has_ended_its_services(
    worker: Worker, news: News, tmp_path: Path
) -> None:
    path = tmp_path / "answers"
    start_task(worker, news, path)
    worker.stop()
    assert not running(service_pid(answers(path)[0]))


def test_a_task_that_was_killed_is_no_user_any_more(
    with_processes: Worker, news: News, tmp_path: Path
) -> None:
    path = tmp_path / "answers"
    for number in (0, 1):
        start_task(with_processes, news, path, number)
    one, other = answers(path)
    assert one["pid"] != other["pid"]
    os.kill(one["pid"], signal.SIGKILL)
    until(lambda: service_value(with_processes, "users") == 1, "the dead task still counts")
    assert running(service_pid(one))
    os.kill(other["pid"], signal.SIGKILL)
    until(lambda: not running(service_pid(one)), "the service outlived its last user")


def test_a_connector_has_its_service_started_before_any_task_asks(
    with_processes: Worker, news: News, tmp_path: Path
) -> None:
    starts, path = tmp_path / "starts", tmp_path / "answers"
    more = {"early": "true", "echo.count.starts": str(starts)}
    with_processes.start_connector("c", config(path, **more), TargetState.STARTED).result(SECONDS)
    until(starts.exists, "the service was not started")
    start_task(with_processes, news, path, **more)
    assert [service_pid(answer) for answer in answers(path)] == [int(starts.read_text())]


def test_prestarted_service_serves_the_task_that_comes_later(
    with_processes: Worker, news: News, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts, path = tmp_path / "starts", tmp_path / "answers"
    more = {"early": "true", "echo.count.starts": str(starts)}
    unknown = {"connector.class": "test.NoSuchConnector"}
    with_processes.prestart_services(
        {"broken": unknown, "refused": config(path), "c": config(path, **more)}
    )
    until(starts.exists, "the service was not started")
    assert service_value(with_processes, "users") == 0
    start_task(with_processes, news, path, **more)
    assert [service_pid(answer) for answer in answers(path)] == [int(starts.read_text())]
    assert "failed to list the services of connector broken in advance" in caplog.text


def test_a_connector_uses_a_service_while_it_runs(with_processes: Worker, tmp_path: Path) -> None:
    whole = config(tmp_path / "answers", **{"use.in.start": "true"})
    with_processes.start_connector("c", whole, TargetState.STARTED).result(SECONDS)
    assert (service_value(with_processes, "users"), service_value(with_processes, "up")) == (1, 1)
    with_processes.set_target_state("c", TargetState.PAUSED)
    until(lambda: service_value(with_processes, "users") == 0, "a paused connector still counts")
    with_processes.set_target_state("c", TargetState.STARTED)
    until(lambda: service_value(with_processes, "users") == 1, "a resumed connector does not count")
    # the connectors'
    (process,) = [p for p in psutil.Process().children(recursive=True) if p.ppid() != os.getpid()]
    process.kill()
    until(lambda: service_value(with_processes, "users") == 0, "a connector that died still counts")


def test_offsets_are_changed_with_the_help_of_a_service(
    with_processes: Worker, tmp_path: Path
) -> None:
    whole = config(tmp_path / "answers")
    plugin = with_processes.plugins.connector_of(whole)
    host = with_processes._connectors.host_of(plugin.location)
    assert host.request(AlterOffsets(plugin, "c", whole, {}, PROPS, 1)).result(SECONDS) is True
    until(lambda: service_value(with_processes, "users") == 0, "the change still counts")
    until(lambda: service_value(with_processes, "up") == 0, "the service did not end")


def test_sigkill_of_worker_ends_services_and_successor_removes_their_folder(
    tmp_path: Path,
) -> None:
    path, temporary = tmp_path / "answers", tmp_path.parents[1] / f"s{os.getpid()}"
    temporary.mkdir()
    program = f"""
import sys, time
sys.path[:0] = {sys.path!r}
import fixtures.service_plugins as plugins
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry, PluginTable
from connect_py.worker.worker import Worker

class Listener:
    def __getattr__(self, name):
        return lambda *arguments: print(name, *arguments[:2], flush=True)

worker = Worker({PROPS!r}, plugins=PluginRegistry([PluginTable(plugins.PLUGINS)]), listener=Listener())
worker.start()
config = {config(path, **{"echo.hang.at.end": "yes"})!r}
worker.start_task(ConnectorTaskId("c", 0), config, config, TargetState.STARTED, 1)
time.sleep(60)
"""  # noqa: E501 - a table or a literal is wider
    front = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        assert front.stdout is not None
        assert front.stdout.readline().strip() == "on_state c-0 State.RUNNING"
        (answer,) = answers(path)
        children = psutil.Process(front.pid).children(recursive=True)
        assert {service_pid(answer), answer["pid"]} <= {child.pid for child in children}
        front.kill()
        service = psutil.Process(service_pid(answer))
        assert psutil.wait_procs([service], timeout=2.0)[1] == []
        assert psutil.wait_procs(children, timeout=5.0)[1] == []
        assert len(list(temporary.iterdir())) >= 1
    finally:
        front.kill()
        front.wait()
        if front.stdout is not None:
            front.stdout.close()
    sweep = (
        "from connect_py.process.scratch_folder import scratch_folder;"
        "scratch_folder('connect-py-services-').rmdir()"
    )
    subprocess.run(
        [sys.executable, "-c", sweep],
        env={**os.environ, "TMPDIR": str(temporary)},
        check=True,
        timeout=30,
    )
    assert list(temporary.glob("connect-py-services-*")) == []
