"""The REST cases of Kafka Connect, asked of a real worker process over HTTP: what a strict client is satisfied with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

J = {"Content-Type": "application/json"}
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
ALIAS = "FileStreamSink"


@pytest.fixture(scope="module")
def worker(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(tmp_path_factory.mktemp("rest"), kafka_broker.bootstrap_servers, "rest-conformance")
    try:
        yield worker.start()
    finally:
        worker.close()


@pytest.fixture(scope="module")
def client(worker: WorkerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=worker.url, timeout=100) as client:
        yield client


@pytest.fixture(scope="module")
def sink(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A valid configuration of a sink whose topic exists."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic("rest-topic", 1, 1)])["rest-topic"].result(30)
    return {
        "connector.class": ALIAS,
        "topics": "rest-topic",
        "file": str(tmp_path_factory.mktemp("out") / "lines.txt"),
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }


@pytest.fixture(scope="module")
def running(worker: WorkerProcess, client: httpx.Client, sink: dict[str, str]) -> str:
    """The name of a connector that runs with one task, whatever earlier cases did to it."""
    assert client.put("/connectors/a/config", json=sink).status_code in (200, 201)
    worker.wait_for_states("a", "RUNNING", "RUNNING")
    return "a"


def error(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    assert list(body) == ["error_code", "message"]
    assert body["error_code"] == response.status_code
    return response.status_code, body["message"]


def eventually(check: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_root_and_health(client: httpx.Client) -> None:
    root = client.get("/").json()
    assert list(root) == ["version", "commit", "kafka_cluster_id"]
    assert root["version"] == "4.1.1"
    assert len(root["kafka_cluster_id"]) == 22
    assert client.get("/health").json()["status"] == "healthy"


def test_create_answers_201_with_location_and_texts_of_numbers(client: httpx.Client, sink: dict[str, str]) -> None:
    body = {"name": "  b ", "config": {**sink, "tasks.max": 2, "x.flag": True}}
    created = client.post("/connectors", json=body)
    assert created.status_code == 201
    assert created.headers["location"] == f"{client.base_url}/connectors/b"
    info = created.json()
    assert list(info) == ["name", "config", "tasks", "type"]
    assert (info["name"], info["tasks"], info["type"]) == ("b", [], "sink")
    assert (info["config"]["tasks.max"], info["config"]["x.flag"], info["config"]["name"]) == ("2", "true", "b")
    assert client.delete("/connectors/b").status_code == 204
    assert error(client.get("/connectors/b")) == (404, "Connector b not found")


def test_names_that_do_not_fit(client: httpx.Client, sink: dict[str, str]) -> None:
    assert error(client.post("/connectors", json={"config": {**sink, "name": "b3"}})) == (
        400,
        "Connector name configuration (b3) doesn't match connector name in the URL ()",
    )
    status, message = error(client.post("/connectors", json={"name": " ", "config": sink}))
    assert status == 400
    assert "1 error(s)" in message
    assert "Invalid value  for configuration name: String may not be empty" in message


def test_a_class_that_is_missing_or_unknown(client: httpx.Client) -> None:
    assert error(client.post("/connectors", json={"name": "x", "config": {"topics": "t"}})) == (
        400,
        "Connector config contains no connector type",
    )
    status, message = error(client.post("/connectors", json={"name": "x", "config": {"connector.class": "Nope"}}))
    assert status == 400
    assert message.startswith(
        "Failed to find any class that implements Connector and which name matches Nope, available connectors are: "
    )


def test_a_taken_name_is_409_but_an_invalid_config_is_400_first(
    client: httpx.Client, running: str, sink: dict[str, str]
) -> None:
    assert error(client.post("/connectors", json={"name": running, "config": sink})) == (
        409,
        "Connector a already exists",
    )
    without_topics = {k: v for k, v in sink.items() if k != "topics"}
    status, message = error(client.post("/connectors", json={"name": running, "config": without_topics}))
    assert status == 400
    assert message.startswith("Connector configuration is invalid and contains the following 2 error(s):\n")
    assert message.count("Must configure one of topics or topics.regex") == 2
    assert message.endswith("at the endpoint `/connector-plugins/{connectorType}/config/validate`")


def test_initial_state_stopped_never_starts_tasks(client: httpx.Client, sink: dict[str, str]) -> None:
    body = {"name": "held", "config": sink, "initial_state": "stopped"}
    assert client.post("/connectors", json=body).status_code == 201
    eventually(lambda: client.get("/connectors/held/status").status_code == 200)
    eventually(lambda: client.get("/connectors/held/status").json()["connector"]["state"] == "STOPPED")
    assert client.get("/connectors/held/status").json()["tasks"] == []
    assert client.delete("/connectors/held").status_code == 204


def test_put_creates_then_replaces_and_checks_the_name(client: httpx.Client, sink: dict[str, str]) -> None:
    created = client.put("/connectors/new/config", json=sink)
    assert (created.status_code, "location" in created.headers) == (201, True)
    replaced = client.put("/connectors/new/config", json={**sink, "tasks.max": "3", "name": None})
    assert (replaced.status_code, "location" in replaced.headers) == (200, False)
    assert replaced.json()["config"]["name"] == "new"
    assert error(client.put("/connectors/new/config", json={**sink, "name": "z"})) == (
        400,
        "Connector name configuration (z) doesn't match connector name in the URL (new)",
    )
    assert client.delete("/connectors/new").status_code == 204


def test_status_has_the_members_in_order(client: httpx.Client, running: str) -> None:
    status = client.get(f"/connectors/{running}/status").json()
    assert list(status) == ["name", "connector", "tasks", "type"]
    assert list(status["connector"]) == ["state", "worker_id", "version"]
    assert list(status["tasks"][0]) == ["id", "state", "worker_id", "version"]
    assert status["connector"]["worker_id"] == f"127.0.0.1:{client.base_url.port}"
    both = client.get("/connectors?expand=status&expand=info").json()[running]
    assert list(both) == ["status", "info"]
    assert both["info"]["tasks"] == [{"connector": running, "task": 0}]
    assert client.get("/connectors?expand=info,status").json()[running] == {}


def test_unknown_connectors_have_the_texts_that_clients_match(client: httpx.Client) -> None:
    assert error(client.get("/connectors/zz/status")) == (404, "No status found for connector zz")
    assert error(client.get("/connectors/zz")) == (404, "Connector zz not found")
    assert error(client.get("/connectors/zz/config")) == (404, "Connector zz not found")
    assert error(client.get("/connectors/zz/tasks")) == (404, "Connector zz not found")
    assert error(client.put("/connectors/zz/pause")) == (404, "Unknown connector zz")
    assert error(client.put("/connectors/zz/stop")) == (404, "Unknown connector zz")
    assert error(client.post("/connectors/zz/restart")) == (404, "Unknown connector: zz")
    assert error(client.post("/connectors/zz/tasks/0/restart")) == (404, "Unknown connector: zz")
    assert error(client.delete("/connectors/zz")) == (404, "Connector zz not found")
    assert client.get("/connectors/zz/topics").json() == {"zz": {"topics": []}}


def test_restarts(worker: WorkerProcess, client: httpx.Client, running: str) -> None:
    assert client.post(f"/connectors/{running}/restart").status_code == 204
    planned = client.post(f"/connectors/{running}/restart?includeTasks=true")
    assert planned.status_code == 202
    assert planned.json()["connector"]["state"] == "RESTARTING"
    assert [task["state"] for task in planned.json()["tasks"]] == ["RESTARTING"]
    worker.wait_for_states(running, "RUNNING", "RUNNING")
    nothing_failed = client.post(f"/connectors/{running}/restart?onlyFailed=true&includeTasks=true")
    assert nothing_failed.json()["connector"]["state"] == "RUNNING"
    assert client.post(f"/connectors/{running}/tasks/0/restart").status_code == 204
    worker.wait_for_states(running, "RUNNING", "RUNNING")
    assert error(client.post(f"/connectors/{running}/tasks/7/restart")) == (404, "Unknown task: a-7")


def test_pause_stop_resume(worker: WorkerProcess, client: httpx.Client, running: str) -> None:
    assert client.put(f"/connectors/{running}/pause").status_code == 202
    worker.wait_for_states(running, "PAUSED", "PAUSED")
    assert client.put(f"/connectors/{running}/stop").status_code == 204
    worker.wait_for_states(running, "STOPPED")
    assert client.get(f"/connectors/{running}/tasks").json() == []
    assert client.put(f"/connectors/{running}/pause").status_code == 202
    worker.wait_for_states(running, "PAUSED")
    assert client.put(f"/connectors/{running}/resume").status_code == 202
    worker.wait_for_states(running, "RUNNING", "RUNNING")
    tasks = client.get(f"/connectors/{running}/tasks").json()
    assert tasks[0]["id"] == {"connector": running, "task": 0}
    assert tasks[0]["config"]["task.class"] == "org.apache.kafka.connect.file.FileStreamSinkTask"


def test_plugins_are_listed_by_kind(client: httpx.Client) -> None:
    listed = client.get("/connector-plugins").json()
    assert {"class": SINK, "type": "sink", "version": listed[0]["version"]} in listed
    assert [p["type"] for p in listed] == sorted(p["type"] for p in listed)
    kinds = {p["type"] for p in client.get("/connector-plugins?connectorsOnly=false").json()}
    assert kinds == {"sink", "source", "converter", "header_converter", "transformation", "predicate"}
    assert error(client.get("/connector-plugins/filestreamsink/config")) == (404, "Unknown plugin filestreamsink.")
    assert error(client.get("/connector-plugins/InsertField$Key/config"))[0] == 404
    full = "org.apache.kafka.connect.transforms.InsertField$Key"
    assert client.get(f"/connector-plugins/{full}/config").status_code == 200


def validate(client: httpx.Client, config: dict[str, str], plugin: str = ALIAS) -> dict[str, Any]:
    response = client.put(f"/connector-plugins/{plugin}/config/validate", json=config)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert list(body) == ["name", "error_count", "groups", "configs"]
    return body


def test_validate_shows_each_field_with_its_errors(client: httpx.Client, sink: dict[str, str]) -> None:
    body = validate(client, {**sink, "connector.class": SINK, "name": "v", "tasks.max": "abc"})
    assert (body["name"], body["error_count"]) == (SINK, 2)
    assert body["groups"][:4] == ["Common", "Transforms", "Predicates", "Error Handling"]
    by_name = {c["value"]["name"]: c for c in body["configs"]}
    tasks_max = by_name["tasks.max"]
    assert tasks_max["value"]["value"] is None
    assert tasks_max["value"]["errors"] == [
        "Invalid value abc for configuration tasks.max: Not a number of type INT",
        "Invalid value null for configuration tasks.max: Value must be non-null",
    ]
    assert set(tasks_max["definition"]) == {
        "name", "type", "required", "default_value", "importance", "documentation", "group", "order_in_group",
        "order", "width", "display_name", "dependents",
    }  # fmt: skip
    assert by_name["file"]["definition"]["name"] == "file"


def test_validate_checks_transformations_and_the_dead_letter_topic(client: httpx.Client, sink: dict[str, str]) -> None:
    config = {
        **sink, "name": "v", "transforms": "a", "transforms.a.type": "RegexRouter",
        "errors.deadletterqueue.topic.name": "rest-topic",
    }  # fmt: skip
    body = validate(client, config)
    errors = [e for c in body["configs"] if c["value"] for e in c["value"]["errors"]]
    assert 'Missing required configuration "transforms.a.regex" which has no default value.' in errors
    assert any(e.startswith("The DLQ topic 'rest-topic' may not be included in the list of topics") for e in errors)
    assert "Transforms: a" in body["groups"]


def test_validate_that_cannot_run_is_500(client: httpx.Client, sink: dict[str, str]) -> None:
    assert error(client.put(f"/connector-plugins/{SINK}/config/validate", json=sink)) == (
        400,
        f"Included connector type {ALIAS} does not match request type {SINK}",
    )
    status, message = error(client.put(f"/connector-plugins/{ALIAS}/config/validate", json={}))
    assert status == 500
    assert "contains no connector type" in message


def test_topics_are_tracked_once_records_flow(
    kafka_broker: KafkaBroker, worker: WorkerProcess, client: httpx.Client, running: str
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce("rest-topic", b"one line")
    producer.flush(30)
    eventually(lambda: client.get(f"/connectors/{running}/topics").json() == {running: {"topics": ["rest-topic"]}})


def test_the_command_refuses_wrong_usage_and_bad_properties(tmp_path: Path) -> None:
    import subprocess
    import sys

    command = str(Path(sys.executable).parent / "connect-distributed")
    usage = subprocess.run([command], capture_output=True, text=True, timeout=60, check=False)
    assert (usage.returncode, "Usage: connect-distributed" in usage.stderr) == (1, True)
    properties = tmp_path / "worker.properties"
    converter = "converter=org.apache.kafka.connect.json.JsonConverter"
    properties.write_text(f"bootstrap.servers=127.0.0.1:1\nkey.{converter}\nvalue.{converter}\n")
    bad = subprocess.run([command, str(properties)], capture_output=True, text=True, timeout=60, check=False)
    assert bad.returncode == 2
    assert 'Missing required configuration "group.id"' in bad.stdout + bad.stderr
