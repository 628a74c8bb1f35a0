"""Shared services in workers of both kinds: the program is in `plugin.path`, and one of its
settings is secret.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from command_lines import command_line
from confluent_kafka.admin import AdminClient, NewTopic
from plugin_folder import make_plugin
from standalone_process import StandaloneProcess, standalone_properties
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

SECONDS = 30.0
PROGRAM = Path(__file__).parents[1] / "fixtures" / "echo_service.py"
CONNECTOR = """
from path_plugin.program import ask
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.connector import SinkConnector
from connect_py.api.service import SharedService
from connect_py.api.task import SinkTask

def wanted(settings):
    return SharedService("echo", "path_plugin.program", settings("connect_py.echo."))

class EchoTask(SinkTask):
    def start(self, props):
        answer = ask(self.context.shared_service(wanted(self.context.worker_settings)))
        with open(props["file"], "a") as file:
            file.write(answer + "\\n")
    def put(self, records):
        pass
    def stop(self):
        pass

class PathSinkConnector(SinkConnector):
    task_class = EchoTask
    config_def = ConfigDef().define("file", Type.STRING, importance=Importance.HIGH, doc="File.")
    @classmethod
    def shared_services(cls, props, worker_settings):
        return [wanted(worker_settings)]
    def start(self, props):
        self._props = props
    def task_configs(self, max_tasks):
        return [dict(self._props)] * max_tasks
"""


@pytest.fixture(autouse=True)
def _no_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.mark.timeout(400)  # a broker and a worker's process on a busy machine
@pytest.mark.parametrize("kind", ["distributed", "standalone"])
def test_worker_tasks_share_one_service_that_ends_with_worker(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path, kind: str
) -> None:
    topic = f"{topic_prefix}t"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    plugin = make_plugin(tmp_path / "plugins" / "echo", "1.0") / "path_plugin"
    (plugin / "connector.py").write_text(CONNECTOR)
    (plugin / "program.py").write_text(PROGRAM.read_text())
    (tmp_path / "secrets").write_text("password=s3cr3t-s3tting\n")
    strings = "org.apache.kafka.connect.storage.StringConverter"
    properties = {
        "plugin.path": str(tmp_path / "plugins"),
        "key.converter": strings,
        "value.converter": strings,
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "connect_py.echo.password": f"${{file:{tmp_path / 'secrets'}:password}}",
    }
    servers = kafka_broker.bootstrap_servers
    worker: WorkerProcess
    if kind == "standalone":
        worker = StandaloneProcess(
            tmp_path / "w", servers, {**standalone_properties(tmp_path), **properties}
        )
    else:
        worker = WorkerProcess(tmp_path / "w", servers, f"{topic_prefix}g", properties)
    name, file = f"{topic_prefix}c", tmp_path / "answers"

    def services() -> list[psutil.Process]:
        return [p for p in worker.processes() if "path_plugin.program" in command_line(p)]

    try:
        worker.start()
        config: dict[str, Any] = {
            "connector.class": "PathSink",
            "topics": topic,
            "file": str(file),
            "tasks.max": "2",
        }
        worker.put(name, config)
        worker.wait_until(
            lambda: file.exists() and len(file.read_text().splitlines()) == 2, 60, "two answers"
        )
        (service,) = services()
        assert file.read_text().split() == [str(service.pid)] * 2
        metrics = httpx.get(f"{worker.url}/metrics", timeout=SECONDS).text
        assert 'connect_py_service_users{service="echo"} 2.0' in metrics
        assert 'connect_py_service_up{service="echo"} 1.0' in metrics
        assert (
            "s3cr3t"
            not in json.dumps([command_line(p) for p in worker.processes()])
            + worker.log_path.read_text()
        )
        worker.delete(name)
        worker.wait_until(lambda: not services(), SECONDS, "the service to end with its last user")
        worker.put(name, config)
        worker.wait_until(lambda: len(file.read_text().splitlines()) == 4, 60, "two more answers")
        (again,) = services()
        worker.processes()
        assert worker.stop() == 0
        assert not again.is_running()
        worker.wait_until(lambda: not worker.survivors(), SECONDS, "its processes to end")
    finally:
        worker.close()
