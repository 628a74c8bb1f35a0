"""A real worker process answers REST requests with the responses of Kafka Connect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rest_serving import error
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

J = {"Content-Type": "application/json"}
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
ALIAS = "FileStreamSink"


@pytest.fixture(scope="module")
def worker(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(
        tmp_path_factory.mktemp("rest"), kafka_broker.bootstrap_servers, "rest-conformance"
    )
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


def eventually(check: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_root_and_health_report_version_cluster_and_healthy_status(client: httpx.Client) -> None:
    root = client.get("/").json()
    assert list(root) == ["version", "commit", "kafka_cluster_id"]
    assert root["version"] == "4.1.1"
    assert len(root["kafka_cluster_id"]) == 22
    assert client.get("/health").json()["status"] == "healthy"


def test_created_connector_has_a_location_and_string_values(
    client: httpx.Client, sink: dict[str, str]
) -> None:
    body = {"name": "  b ", "config": {**sink, "tasks.max": 2, "x.flag": True}}
    created = client.post("/connectors", json=body)
    assert created.status_code == 201
    assert created.headers["location"] == f"{client.base_url}/connectors/b"
    info = created.json()
    assert list(info) == ["name", "config", "tasks", "type"]
    assert (info["name"], info["tasks"], info["type"]) == ("b", [], "sink")
    assert (info["config"]["tasks.max"], info["config"]["x.flag"], info["config"]["name"]) == (
        "2",
        "true",
        "b",
    )
    assert client.delete("/connectors/b").status_code == 204
    assert error(client.get("/connectors/b")) == (404, "Connector b not found")


def test_connector_name_that_is_blank_or_mismatched_is_refused(
    client: httpx.Client, sink: dict[str, str]
) -> None:
    assert error(client.post("/connectors", json={"config": {**sink, "name": "b3"}})) == (
        400,
        "Connector name configuration (b3) doesn't match connector name in the URL ()",
    )
    status, message = error(client.post("/connectors", json={"name": " ", "config": sink}))
    assert status == 400
    assert "1 error(s)" in message
    assert "Invalid value  for configuration name: String may not be empty" in message


def test_missing_or_unknown_connector_class_is_400(client: httpx.Client) -> None:
    assert error(client.post("/connectors", json={"name": "x", "config": {"topics": "t"}})) == (
        400,
        "Connector config contains no connector type",
    )
    status, message = error(
        client.post("/connectors", json={"name": "x", "config": {"connector.class": "Nope"}})
    )
    assert status == 400
    assert message.startswith(
        "Failed to find any class that implements Connector and which name matches Nope, available "
        "connectors are: "
    )


def test_existing_name_is_409_but_an_invalid_config_is_400(
    client: httpx.Client, running: str, sink: dict[str, str]
) -> None:
    assert error(client.post("/connectors", json={"name": running, "config": sink})) == (
        409,
        "Connector a already exists",
    )
    without_topics = {k: v for k, v in sink.items() if k != "topics"}
    status, message = error(
        client.post("/connectors", json={"name": running, "config": without_topics})
    )
    assert status == 400
    assert message.startswith(
        "Connector configuration is invalid and contains the following 2 error(s):\n"
    )
    assert message.count("Must configure one of topics or topics.regex") == 2
    assert message.endswith("at the endpoint `/connector-plugins/{connectorType}/config/validate`")


def test_initial_state_stopped_never_starts_tasks(
    client: httpx.Client, sink: dict[str, str]
) -> None:
    body = {"name": "held", "config": sink, "initial_state": "stopped"}
    assert client.post("/connectors", json=body).status_code == 201
    assert client.get("/connectors/held/status").status_code == 200, "it is waited for"
    eventually(
        lambda: client.get("/connectors/held/status").json()["connector"]["state"] == "STOPPED"
    )
    assert client.get("/connectors/held/status").json()["tasks"] == []
    assert client.delete("/connectors/held").status_code == 204


def test_put_creates_or_replaces_a_connector_and_checks_its_name(
    client: httpx.Client, sink: dict[str, str]
) -> None:
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


def test_status_has_its_fields_in_the_order_of_java(client: httpx.Client, running: str) -> None:
    status = client.get(f"/connectors/{running}/status").json()
    assert list(status) == ["name", "connector", "tasks", "type"]
    assert list(status["connector"]) == ["state", "worker_id", "version"]
    assert list(status["tasks"][0]) == ["id", "state", "worker_id", "version"]
    assert status["connector"]["worker_id"] == f"127.0.0.1:{client.base_url.port}"
    both = client.get("/connectors?expand=status&expand=info").json()[running]
    assert list(both) == ["status", "info"]
    assert both["info"]["tasks"] == [{"connector": running, "task": 0}]
    assert client.get("/connectors?expand=info,status").json()[running] == {}


def test_unknown_connector_is_404_with_the_message_of_java(client: httpx.Client) -> None:
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


def test_restart_requests_answer_with_the_planned_connector_and_task_states(
    worker: WorkerProcess, client: httpx.Client, running: str
) -> None:
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
    assert error(client.post(f"/connectors/{running}/tasks/7/restart")) == (
        404,
        "Unknown task: a-7",
    )


def test_connector_follows_pause_stop_and_resume_requests(
    worker: WorkerProcess, client: httpx.Client, running: str
) -> None:
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


def test_connector_plugins_are_listed_and_sorted_by_type(client: httpx.Client) -> None:
    listed = client.get("/connector-plugins").json()
    assert {"class": SINK, "type": "sink", "version": listed[0]["version"]} in listed
    assert [p["type"] for p in listed] == sorted(p["type"] for p in listed)
    kinds = {p["type"] for p in client.get("/connector-plugins?connectorsOnly=false").json()}
    assert kinds == {
        "sink",
        "source",
        "converter",
        "header_converter",
        "transformation",
        "predicate",
    }
    assert error(client.get("/connector-plugins/filestreamsink/config")) == (
        404,
        "Unknown plugin filestreamsink.",
    )
    assert error(client.get("/connector-plugins/InsertField$Key/config"))[0] == 404
    full = "org.apache.kafka.connect.transforms.InsertField$Key"
    assert client.get(f"/connector-plugins/{full}/config").status_code == 200


def validate(client: httpx.Client, config: dict[str, str], plugin: str = ALIAS) -> dict[str, Any]:
    response = client.put(f"/connector-plugins/{plugin}/config/validate", json=config)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert list(body) == ["name", "error_count", "groups", "configs"]
    return body


def test_validate_shows_each_field_with_its_errors(
    client: httpx.Client, sink: dict[str, str]
) -> None:
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
        "name",
        "type",
        "required",
        "default_value",
        "importance",
        "documentation",
        "group",
        "order_in_group",
        "order",
        "width",
        "display_name",
        "dependents",
    }
    assert by_name["file"]["definition"]["name"] == "file"


def test_validate_checks_transformations_and_the_dead_letter_topic(
    client: httpx.Client, sink: dict[str, str]
) -> None:
    config = {
        **sink,
        "name": "v",
        "transforms": "a",
        "transforms.a.type": "RegexRouter",
        "errors.deadletterqueue.topic.name": "rest-topic",
    }
    body = validate(client, config)
    errors = [e for c in body["configs"] if c["value"] for e in c["value"]["errors"]]
    assert (
        'Missing required configuration "transforms.a.regex" which has no default value.' in errors
    )
    assert any(
        e.startswith("The DLQ topic 'rest-topic' may not be included in the list of topics")
        for e in errors
    )
    assert "Transforms: a" in body["groups"]


def test_validate_without_a_matching_connector_class_fails(
    client: httpx.Client, sink: dict[str, str]
) -> None:
    assert error(client.put(f"/connector-plugins/{SINK}/config/validate", json=sink)) == (
        400,
        f"Included connector type {ALIAS} does not match request type {SINK}",
    )
    status, message = error(client.put(f"/connector-plugins/{ALIAS}/config/validate", json={}))
    assert status == 500
    assert "contains no connector type" in message


def test_config_patch_sets_new_keys_and_removes_null_keys(
    client: httpx.Client, sink: dict[str, str]
) -> None:
    held = {"name": "patched", "config": {**sink, "demo.x": "1"}, "initial_state": "STOPPED"}
    assert client.post("/connectors", json=held).status_code == 201
    patched = client.patch("/connectors/patched/config", json={"demo.x": None, "tasks.max": "3"})
    assert patched.status_code == 200
    assert patched.json()["config"] == {**sink, "name": "patched", "tasks.max": "3"}
    assert client.get("/connectors/patched/config").json() == patched.json()["config"]
    assert client.patch("/connectors/patched/config", json={}).json() == patched.json()
    status, message = error(client.patch("/connectors/patched/config", json={"topics": None}))
    assert status == 400
    assert "Must configure one of topics or topics.regex" in message
    status, message = error(client.patch("/connectors/patched/config", json={"name": None}))
    assert status == 400
    assert 'Missing required configuration "name" which has no default value.' in message
    assert error(client.patch("/connectors/patched/config", json={"name": "other"}))[0] == 400
    assert client.delete("/connectors/patched").status_code == 204
    assert error(client.patch("/connectors/zz/config", json={"a": "b"})) == (
        404,
        "Connector zz not found",
    )
    assert error(client.patch("/connectors/zz/config", content=b"", headers=J)) == (
        404,
        "Connector zz not found",
    )


def test_initial_state_paused_has_no_tasks_until_it_is_resumed(
    worker: WorkerProcess, client: httpx.Client, sink: dict[str, str]
) -> None:
    body = {"name": "asleep", "config": sink, "initial_state": "PAUSED"}
    assert client.post("/connectors", json=body).status_code == 201
    worker.wait_for_states("asleep", "PAUSED")
    assert client.get("/connectors/asleep/tasks").json() == []
    assert client.put("/connectors/asleep/resume").status_code == 202
    worker.wait_for_states("asleep", "RUNNING", "RUNNING")
    assert client.delete("/connectors/asleep").status_code == 204


def test_failed_task_is_restarted_only_if_tasks_are_included(
    worker: WorkerProcess, client: httpx.Client, sink: dict[str, str], tmp_path: Path
) -> None:
    unwritable = {**sink, "file": str(tmp_path / "no-such-folder" / "lines")}
    assert (
        client.post("/connectors", json={"name": "failing", "config": unwritable}).status_code
        == 201
    )
    worker.wait_for_states("failing", "RUNNING", "FAILED")
    only_connectors = client.post("/connectors/failing/restart?onlyFailed=true")
    assert (only_connectors.status_code, only_connectors.json()["connector"]["state"]) == (
        202,
        "RUNNING",
    )
    assert only_connectors.json()["tasks"][0]["state"] == "FAILED"
    trace = only_connectors.json()["tasks"][0]["trace"]
    assert trace.startswith(
        "org.apache.kafka.connect.errors.ConnectException: Couldn't find or create file '"
    )
    assert "\nCaused by: FileNotFoundError: " in trace.partition("\n\n")[0]
    with_tasks = client.post("/connectors/failing/restart?onlyFailed=true&includeTasks=true").json()
    assert (with_tasks["tasks"][0]["state"], with_tasks["tasks"][0]["trace"]) == (
        "RESTARTING",
        trace,
    )
    assert client.delete("/connectors/failing").status_code == 204


def test_validation_with_an_uninstalled_version_shows_the_common_keys(client: httpx.Client) -> None:
    body = validate(
        client,
        {"connector.class": ALIAS, "name": "v", "topics": "t", "connector.plugin.version": "99"},
    )
    assert (body["error_count"], len(body["configs"])) == (2, 19)


def test_kafkas_own_version_fits_plugins_under_kafkas_names(client: httpx.Client) -> None:
    body = validate(
        client,
        {"connector.class": ALIAS, "name": "v", "topics": "t", "connector.plugin.version": "4.1.1"},
    )
    assert [value["value"] for value in body["configs"] if value["value"]["errors"]] == []


def produce(broker: KafkaBroker, line: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("rest-topic", line.encode())
    assert producer.flush(30) == 0


def test_log_levels_reach_the_worker_and_its_task_processes(
    kafka_broker: KafkaBroker, worker: WorkerProcess, client: httpx.Client, running: str
) -> None:
    assert error(client.put("/admin/loggers/root", json={"level": "HIGH"})) == (
        404,
        "invalid log level 'HIGH'.",
    )
    assert error(client.put("/admin/loggers/root", json={}))[0] == 400
    assert error(client.get("/admin/loggers/none.such")) == (404, "Logger none.such not found.")
    root = client.get("/admin/loggers/root").json()
    assert root == {"level": "INFO", "last_modified": None}
    assert client.get("/admin/loggers").json()["root"] == root

    def commits() -> int:
        return worker.log_path.read_text().count(
            f"DEBUG [{running}|task-0] committing offsets: rest-topic-0"
        )

    produce(kafka_broker, "a line")
    eventually(lambda: bool(client.get(f"/connectors/{running}/topics").json()[running]["topics"]))
    assert commits() == 0
    assert (
        "connect_py.task"
        in client.put("/admin/loggers/connect_py.task", json={"level": "debug"}).json()
    )
    produce(kafka_broker, "another line")
    eventually(lambda: commits() > 0)
    shown = client.get("/admin/loggers/connect_py.task").json()
    assert (shown["level"], abs(shown["last_modified"] / 1000 - time.time()) < 600) == (
        "DEBUG",
        True,
    )
    # By way of the config topic, and for processes that are not yet there.
    cluster = client.put("/admin/loggers/connect_py.task?scope=cluster", json={"level": "INFO"})
    assert (cluster.status_code, cluster.content) == (204, b"")
    eventually(lambda: client.get("/admin/loggers/connect_py.task").json()["level"] == "INFO")
    assert client.put("/admin/loggers/connect_py.task", json={"level": "DEBUG"}).status_code == 200
    assert client.post(f"/connectors/{running}/tasks/0/restart").status_code == 204
    before = commits()
    produce(kafka_broker, "a third line")
    eventually(lambda: commits() > before)
    assert client.put("/admin/loggers/connect_py.task", json={"level": "INFO"}).status_code == 200


def test_internal_endpoints_refuse_unsigned_and_wrongly_signed_requests(
    client: httpx.Client, running: str
) -> None:
    unsigned = (400, "Internal request missing required signature")
    assert error(client.post(f"/connectors/{running}/tasks", json=[])) == unsigned
    assert error(client.put(f"/connectors/{running}/fence")) == unsigned
    forged = {
        "X-Connect-Authorization": "Zm9yZ2Vk",
        "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
    }
    assert error(client.put(f"/connectors/{running}/fence", headers=forged)) == (
        403,
        "Internal request contained invalid signature.",
    )


def test_topic_reset_empties_the_active_topics_of_a_connector(
    client: httpx.Client, running: str
) -> None:
    def is_reset() -> bool:  # a record that is still on its way adds its topic again
        assert client.put(f"/connectors/{running}/topics/reset").status_code == 202
        topics = client.get(f"/connectors/{running}/topics").json()
        return bool(topics == {running: {"topics": []}})

    eventually(is_reset)
    assert client.put("/connectors/zz/topics/reset").status_code == 202


def test_topics_are_tracked_once_records_flow(
    kafka_broker: KafkaBroker, worker: WorkerProcess, client: httpx.Client, running: str
) -> None:
    def tracked() -> bool:  # a topic that was just forgotten is recorded again with a later record
        produce(kafka_broker, "one line")
        return bool(
            client.get(f"/connectors/{running}/topics").json()
            == {running: {"topics": ["rest-topic"]}}
        )

    eventually(tracked)


def test_the_command_refuses_wrong_usage_and_bad_properties(tmp_path: Path) -> None:
    import subprocess
    import sys

    command = str(Path(sys.executable).parent / "connect-distributed")
    usage = subprocess.run([command], capture_output=True, text=True, timeout=60, check=False)
    assert (usage.returncode, "Usage: connect-distributed" in usage.stderr) == (1, True)
    properties = tmp_path / "worker.properties"
    converter = "converter=org.apache.kafka.connect.json.JsonConverter"
    properties.write_text(f"bootstrap.servers=127.0.0.1:1\nkey.{converter}\nvalue.{converter}\n")
    bad = subprocess.run(
        [command, str(properties)], capture_output=True, text=True, timeout=60, check=False
    )
    assert bad.returncode == 2
    assert 'Missing required configuration "group.id"' in bad.stdout + bad.stderr
