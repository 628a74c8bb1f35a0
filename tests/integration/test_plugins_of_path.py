"""Connectors of `plugin.path` run: two versions of one package at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from plugin_folder import make_plugin
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

SECONDS = 30.0


@pytest.mark.timeout(400)  # a broker and a worker's process on a busy machine
def test_two_versions_of_a_connector_run_side_by_side(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    topic = f"{topic_prefix}t"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(topic, b"a line")
    assert producer.flush(SECONDS) == 0
    make_plugin(tmp_path / "plugins" / "old", "1.0")
    make_plugin(tmp_path / "plugins" / "new", "2.0")
    make_plugin(
        tmp_path / "plugins" / "broken", "3.0", table="raise RuntimeError('broken on purpose')"
    )
    strings = "org.apache.kafka.connect.storage.StringConverter"
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}g",
        {
            "plugin.path": str(tmp_path / "plugins"),
            "key.converter": strings,
            "value.converter": strings,
        },
    )
    config = {"connector.class": "PathSink", "topics": topic}
    try:
        worker.start()
        listed = worker.get("/connector-plugins")
        assert {p["version"] for p in listed if p["class"] == "com.example.PathSinkConnector"} == {
            "1.0",
            "2.0",
        }
        worker.put(f"{topic_prefix}new", {**config, "file": str(tmp_path / "new.txt")})
        worker.put(
            f"{topic_prefix}old",
            {**config, "file": str(tmp_path / "old.txt"), "connector.plugin.version": "[1.0,2.0)"},
        )
        for name, version in (("new", "2.0"), ("old", "1.0")):
            file = tmp_path / f"{name}.txt"
            expected = f"task {version}\na line\n"
            worker.wait_until(
                lambda file=file, expected=expected: file.exists() and file.read_text() == expected,  # type: ignore[misc]
                60,
                f"the line from version {version}",
            )
            worker.wait_for_states(f"{topic_prefix}{name}", "RUNNING", "RUNNING")
            assert (
                worker.get(f"/connectors/{topic_prefix}{name}/status")["connector"]["version"]
                == version
            )
            keys = worker.get(f"/connector-plugins/PathSink/config?version={version}")
            assert [key["documentation"] for key in keys if key["name"] == "file"] == [
                f"File, {version}."
            ]
        assert "RuntimeError: broken on purpose" in worker.log_path.read_text()
        assert worker.stop() == 0
        worker.wait_until(lambda: not worker.survivors(), 30, "its processes to end")
    finally:
        worker.close()


@pytest.fixture(autouse=True)
def _no_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker finds plugins only in its own path, not in the PYTHONPATH of a test run."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
