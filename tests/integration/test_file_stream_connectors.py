"""FileStream connectors in a worker: lines of a file travel through a topic into another file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from fixtures.worker_news import News

from connect_py.embedded.broker import KafkaBroker
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.worker import Worker

DEADLINE_SECONDS = 30.0


class Offsets:
    """Source offsets in memory, with the interface of a worker's store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.stored: dict[tuple[str, frozenset[Any]], Mapping[str, Any]] = {}

    def refresh(self, timeout: float) -> None:
        return

    def get(self, connector: str, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        with self._lock:
            return self.stored.get((connector, frozenset(partition.items())))

    def set(
        self, connector: str, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
    ) -> Future[None]:
        with self._lock:
            self.stored |= {(connector, frozenset(p.items())): o for p, o in offsets}
        done: Future[None] = Future()
        done.set_result(None)
        return done


@pytest.fixture
def offsets() -> Offsets:
    return Offsets()


@pytest.fixture
def worker(kafka_broker: KafkaBroker, offsets: Offsets) -> Iterator[Worker]:
    props = {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "offset.flush.interval.ms": "300",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "header.converter": "org.apache.kafka.connect.json.JsonConverter",
    }
    listener = News()
    worker = Worker(
        props, plugins=PluginRegistry.discover(), listener=listener, source_offsets=offsets
    )
    worker.start()
    yield worker
    worker.stop()
    assert listener.failures == []


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not check():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def run(worker: Worker, config: Mapping[str, str]) -> ConnectorTaskId:
    """Start a connector and its first task, the way a herder does."""
    name = config["name"]
    worker.start_connector(name, config, TargetState.STARTED).result(DEADLINE_SECONDS)
    (task_config,) = worker.task_configs(name, config, 1).result(DEADLINE_SECONDS)
    task = ConnectorTaskId(name, 0)
    worker.start_task(task, config, task_config, TargetState.STARTED, 1)
    return task


def test_file_stream_connectors_continue_after_the_last_line_on_restart(
    worker: Worker, offsets: Offsets, kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    source_file, sink_file = tmp_path / "in.txt", tmp_path / "out.txt"
    source_file.write_text("one\ntwo\r\n\nunfinished")
    topic = f"{topic_prefix}lines"
    source = {
        "name": f"{topic_prefix}source",
        "connector.class": "FileStreamSource",
        "topic": topic,
        "file": str(source_file),
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    sink = {
        "name": f"{topic_prefix}sink",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": topic,
        "file": str(sink_file),
        "consumer.override.metadata.max.age.ms": "1000",
    }
    task = run(worker, source)
    until(lambda: bool(offsets.stored))
    assert (
        topic
        in AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
        .list_topics(timeout=10)
        .topics
    )
    run(worker, sink)
    until(lambda: sink_file.exists() and sink_file.read_text() == "one\ntwo\n\n")
    worker.stop_tasks([task]).result(DEADLINE_SECONDS)
    until(lambda: list(offsets.stored.values()) == [{"position": 10}])
    with source_file.open("a") as more:
        more.write(" no more\nthree\n")
    run(worker, source)
    until(lambda: sink_file.read_text() == "one\ntwo\n\nunfinished no more\nthree\n")


def test_task_configurations_carry_the_java_task_class_and_the_topics(
    worker: Worker, tmp_path: Path
) -> None:
    config = {
        "name": "s",
        "connector.class": "FileStreamSink",
        "topics": "a,b",
        "file": str(tmp_path / "x"),
    }
    worker.start_connector("s", config, TargetState.STARTED).result(DEADLINE_SECONDS)
    made = worker.task_configs("s", config, 2).result(DEADLINE_SECONDS)
    assert len(made) == 2
    assert made[0]["task.class"] == "org.apache.kafka.connect.file.FileStreamSinkTask"
    assert made[0]["topics"] == "a,b"
