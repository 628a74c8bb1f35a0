"""`connect-standalone` as users start it: a process, a properties file, files of connectors,
HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.topic_reader import read_topic
from standalone_process import StandaloneProcess, standalone_properties

from connect_py.embedded.broker import KafkaBroker

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@pytest.fixture
def worker(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[StandaloneProcess]:
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.connect_py.ttl.ms": "300",
    }
    process = StandaloneProcess(
        tmp_path, kafka_broker.bootstrap_servers, {**standalone_properties(tmp_path), **providers}
    )
    yield process
    process.close()


@pytest.fixture
def topic(kafka_broker: KafkaBroker, topic_prefix: str) -> Callable[[str], str]:
    def create(name: str) -> str:
        full = f"{topic_prefix}{name}"
        admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
        for future in admin.create_topics([NewTopic(full, 1, 1)]).values():
            future.result()
        return full

    return create


@pytest.mark.timeout(400)  # two starts of a worker, one restart of a connector, on a busy machine
def test_command_line_connectors_run_and_resume_after_worker_restart(
    worker: StandaloneProcess,
    kafka_broker: KafkaBroker,
    topic: Callable[[str], str],
    tmp_path: Path,
) -> None:
    lines = topic("lines")
    source, copy, moved, values_file = (
        tmp_path / name for name in ("in.txt", "out.txt", "moved.txt", "values")
    )
    values_file.write_text(f"copy={copy}\n")
    source.write_text("one\ntwo\n")
    (tmp_path / "source.properties").write_text(
        f"name=lines\nconnector.class={SOURCE}\ntasks.max=1\nfile={source}\ntopic={lines}\n"
    )
    (tmp_path / "sink.json").write_text(
        json.dumps(
            {
                "name": f"{lines}-copy",
                "config": {
                    "connector.class": SINK,
                    "topics": lines,
                    "file": f"${{file:{values_file}:copy}}",
                },
            }
        )
    )
    (tmp_path / "paused.json").write_text(
        json.dumps(
            {
                "name": "later",
                "initial_state": "paused",
                "config": {"connector.class": SOURCE, "file": str(source), "topic": lines},
            }
        )
    )
    worker.connectors = (
        tmp_path / "source.properties",
        tmp_path / "sink.json",
        tmp_path / "paused.json",
    )
    worker.start()
    assert sorted(worker.get("/connectors")) == sorted(["lines", f"{lines}-copy", "later"])
    assert worker.get("/connectors/lines")["tasks"] == [{"connector": "lines", "task": 0}]
    worker.wait_for_states("later", "PAUSED")
    worker.wait_until(
        lambda: copy.exists() and copy.read_text() == "one\ntwo\n", 60, "both lines in the copy"
    )
    offsets = tmp_path / "connect.offsets.connect-py.jsonl"
    worker.wait_until(
        lambda: '\\"position\\":8' in offsets.read_text(), 30, "the offset to be kept"
    )
    assert worker.stop() == 0

    source.write_text("one\ntwo\nthree\n")
    worker.start()
    worker.wait_until(
        lambda: copy.read_text() == "one\ntwo\nthree\n", 60, "the third line in the copy"
    )
    read = read_topic(kafka_broker.bootstrap_servers, lines)
    assert [record.text for record in read] == ["one", "two", "three"]
    values_file.write_text(f"copy={moved}\n")
    worker.wait_until(moved.exists, 60, "the sink to restart with the new value of its provider")
    answer = worker.get("/connectors/lines/status")
    assert answer["connector"]["worker_id"] == worker.url.removeprefix("http://")
    # a level of the command line reached a task's process
    assert "DEBUG [" in worker.log_path.read_text()
    assert worker.stop() == 0


@pytest.mark.timeout(400)  # a worker's process on a busy machine
def test_requests_are_answered_as_by_javas_standalone_worker(
    worker: StandaloneProcess, tmp_path: Path
) -> None:
    worker.start()
    source = {"connector.class": SOURCE, "file": str(tmp_path / "in.txt"), "topic": "t"}

    made = worker.post({"name": "two", "config": source})
    assert made.status_code == 201
    # it has started when it is answered
    assert made.json()["tasks"] == [{"connector": "two", "task": 0}]
    changed = httpx.put(
        f"{worker.url}/connectors/two/config", json={**source, "topic": "u"}, timeout=100
    )
    assert (changed.status_code, changed.json()["tasks"]) == (
        200,
        [{"connector": "two", "task": 0}],
    )
    paused = worker.post({"name": "paused", "initial_state": "PAUSED", "config": source})
    assert (paused.status_code, paused.json()["tasks"]) == (201, [])
    again = worker.post({"name": "two", "config": source})
    assert (again.status_code, again.json()["message"]) == (409, "Connector two already exists")

    def refusal(method: str, path: str, **more: Any) -> tuple[int, str]:
        answer = httpx.request(method, f"{worker.url}/connectors/{path}", timeout=100, **more)
        return answer.status_code, answer.json()["message"]

    assert refusal("POST", "nope/restart") == (404, "Connector nope not found")
    assert refusal("POST", "nope/restart?includeTasks=true") == (404, "Unknown connector: nope")
    assert refusal("POST", "two/tasks/7/restart") == (404, "Task two-7 not found")
    assert refusal("PUT", "nope/pause") == (404, "Unknown connector nope")
    assert refusal("DELETE", "nope") == (404, "Connector nope not found")
    assert refusal("POST", "two/tasks", json=[]) == (
        500,
        "Kafka Connect in standalone mode does not support externally setting task configurations.",
    )
    assert refusal("PUT", "two/fence") == (
        500,
        "Kafka Connect in standalone mode does not support exactly-once source connectors.",
    )
    assert httpx.post(f"{worker.url}/connectors/two/restart", timeout=100).status_code == 204
    assert (
        httpx.post(f"{worker.url}/connectors/two/tasks/0/restart", timeout=100).status_code == 204
    )
    assert httpx.put(f"{worker.url}/connectors/two/stop", timeout=100).status_code == 204
    worker.wait_for_states("two", "STOPPED")
    assert worker.get("/connectors/two/tasks") == []
    assert httpx.put(f"{worker.url}/connectors/two/resume", timeout=100).status_code == 202
    worker.wait_for_states("two", "RUNNING", "RUNNING")
    level = httpx.put(
        f"{worker.url}/admin/loggers/org.x?scope=cluster", json={"level": "DEBUG"}, timeout=100
    )
    assert level.status_code == 204
    assert worker.get("/admin/loggers/org.x")["level"] == "DEBUG"
    worker.delete("two")
    worker.wait_until(
        lambda: worker.states("two") == [], 30, "the deleted connector's statuses to go"
    )
    assert worker.stop() == 0


@pytest.mark.timeout(400)  # a worker's process on a busy machine
def test_connector_creation_failure_ends_worker_with_exit_status_3(
    worker: StandaloneProcess, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text('{"name":"x","connector.class":"FileStreamSource"}')
    worker.connectors = (tmp_path / "bad.json",)
    worker.start(wait=False)
    assert worker.wait(120) == 3
    said = worker.log_path.read_text()
    assert (
        "Stopping after connector error: Connector configuration is invalid and contains the "
        "following 1" in said
    )
    worker.wait_until(lambda: not worker.survivors(), 30, "its processes to end")


def test_wrong_usage_and_wrong_properties_have_different_exit_statuses(tmp_path: Path) -> None:
    command = str(Path(sys.executable).parent / "connect-standalone")
    usage = subprocess.run([command], capture_output=True, text=True, timeout=60, check=False)
    assert (usage.returncode, "Usage: connect-standalone" in usage.stderr) == (1, True)
    (tmp_path / "worker.properties").write_text("key.converter=x\nvalue.converter=x\n")
    refused = subprocess.run(
        [command, str(tmp_path / "worker.properties")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert 'Missing required configuration "offset.storage.file.filename"' in refused.stdout
