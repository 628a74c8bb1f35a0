"""Standalone workers of Java and ours: the same responses, and ours resumes from Java's offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from side_by_side import Difference, SideBySide, side_by_side
from standalone_process import JavaStandalone, StandaloneProcess, standalone_properties
from worker_process import free_port

from connect_py.embedded.broker import KafkaBroker

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
VERSIONS = "|".join(map(re.escape, ("4.1.1", version("connect-py"))))
UNKNOWN = "standalone: restarting or stopping what does not exist answers 500 with an inner error"

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]  # two workers, one of them in Java


def make_topics(broker: KafkaBroker, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(30)


def source(path: Path, topic: str, **changes: Any) -> dict[str, Any]:
    return {"connector.class": SOURCE, "file": str(path), "topic": topic, **changes}


@pytest.fixture
def pair(kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[SideBySide]:
    servers = kafka_broker.bootstrap_servers
    java = JavaStandalone(tmp_path / "java", servers, standalone_properties(tmp_path / "java"))
    ours = StandaloneProcess(tmp_path / "ours", servers, standalone_properties(tmp_path / "ours"))
    with side_by_side(java, ours, {rf"\b({VERSIONS})\b": "<version>"}) as pair:
        yield pair


def test_standalone_worker_answers_requests_the_same_as_java(
    pair: SideBySide, kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    topic = f"{topic_prefix}t"
    make_topics(kafka_broker, topic)
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    config = source(tmp_path / "in.txt", topic)
    listed = (
        Difference(UNKNOWN, "POST /connectors/nope/restart", "status", "500", "404"),
        Difference(UNKNOWN, "POST /connectors/nope/tasks/0/restart", "status", "500", "404"),
        Difference(UNKNOWN, "PUT /connectors/nope/stop", "status", "500", "404"),
    )
    with pair.differing_only_in(*listed) as ask:
        ask("GET", "/")
        ask("GET", "/health")
        ask("POST", "/connectors", json_body={"name": "two", "config": config})
        ask("POST", "/connectors", json_body={"name": "two", "config": config}, name="again")
        paused = {"name": "paused", "initial_state": "PAUSED", "config": config}
        ask("POST", "/connectors", json_body=paused, name="paused")
        stopped = {"name": "stopped", "initial_state": "STOPPED", "config": config}
        ask("POST", "/connectors", json_body=stopped, name="stopped")
        ask(
            "POST",
            "/connectors",
            json_body={"name": "bad", "config": {"connector.class": SOURCE}},
            name="bad",
        )
        pair.wait_for_states("two", "RUNNING", "RUNNING")
        pair.wait_for_states("paused", "PAUSED")
        pair.wait_for_states("stopped", "STOPPED")
        pair.wait_for_offsets("two", [({"filename": str(tmp_path / "in.txt")}, {"position": 8})])
        for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/topics", "/offsets"):
            ask("GET", f"/connectors/two{path}")
        ask("GET", "/connectors/paused/status")
        ask("GET", "/connectors/stopped/tasks")
        ask("PUT", "/connectors/two/config", json_body={**config, "batch.size": "10"})
        ask("PUT", "/connectors/new/config", json_body=config, name="creates")
        ask("PATCH", "/connectors/two/config", json_body={"batch.size": None})
        for path in ("restart", "restart?includeTasks=true", "tasks/0/restart"):
            ask("POST", f"/connectors/nope/{path}")
        for path in ("pause", "resume", "stop", "fence"):
            ask("PUT", f"/connectors/nope/{path}")
        ask("GET", "/connectors/nope/offsets")
        ask("DELETE", "/connectors/nope")
        ask("POST", "/connectors/two/tasks", json_body=[])
        ask("PUT", "/admin/loggers/org.x?scope=cluster", json_body={"level": "DEBUG"})
        ask("POST", "/connectors/two/restart")
        pair.wait_for_states("two", "RUNNING", "RUNNING")
        ask("DELETE", "/connectors/two/offsets", name="running")
        ask("PUT", "/connectors/two/stop")
        pair.wait_for_states("two", "STOPPED")
        ask("GET", "/connectors/two", name="stopped")
        ask("DELETE", "/connectors/two/offsets")
        ask("GET", "/connectors/two/offsets", name="reset")
        ask("PUT", "/connectors/two/resume")
        pair.wait_for_states("two", "RUNNING", "RUNNING")
        ask("DELETE", "/connectors/two")
        pair.wait_until_deleted("two")
        ask("GET", "/connectors/two/status", name="gone")


def test_standalone_offsets_of_java_continue_without_lost_or_repeated_lines(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    topic, lines = f"{topic_prefix}t", tmp_path / "in.txt"
    make_topics(kafka_broker, topic)
    (tmp_path / "source.properties").write_text(
        f"name=lines\nconnector.class={SOURCE}\nfile={lines}\ntopic={topic}\ntasks.max=1\n"
    )
    lines.write_text("one\ntwo\n")
    # both have one file of properties
    properties, port = (standalone_properties(tmp_path), free_port())
    java = JavaStandalone(tmp_path, kafka_broker.bootstrap_servers, properties, port)
    ours = StandaloneProcess(tmp_path, kafka_broker.bootstrap_servers, properties, port)
    java.connectors = ours.connectors = (tmp_path / "source.properties",)
    wanted = {"offsets": [{"partition": {"filename": str(lines)}, "offset": {"position": 8}}]}
    try:
        java.start()
        java.wait_until(
            lambda: java.get("/connectors/lines/offsets") == wanted, 60, "Java to keep its offset"
        )
        java.stop()
        left = (tmp_path / "connect.offsets").read_bytes()
        lines.write_text("one\ntwo\nthree\n")
        ours.start()
        assert ours.get("/connectors/lines/offsets")["offsets"]
        wanted["offsets"][0]["offset"] = {"position": 14}
        ours.wait_until(
            lambda: ours.get("/connectors/lines/offsets") == wanted, 60, "ours to go on"
        )
        assert ours.stop() == 0
    finally:
        java.close()
        ours.close()
    assert (tmp_path / "connect.offsets").read_bytes() == left
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        found = []
        while (message := consumer.poll(5)) is not None:
            found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    assert found == ["one", "two", "three"]
