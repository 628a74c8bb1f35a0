"""FileStreamSource and FileStreamSink on a worker that runs as a process: from file to topic to
file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

STRING = "org.apache.kafka.connect.storage.StringConverter"
ARRIVE_SECONDS = 20.0


@pytest.fixture
def worker(kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    process = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, f"{topic_prefix}g")
    try:
        yield process.start()
    finally:
        process.close()


# lines travel as far, and through a restart, when connectors go from Java to ours and back
@pytest.mark.long
@pytest.mark.timeout(400)  # three runs of a worker
def test_file_stream_connectors_continue_from_their_offsets_after_a_restart(
    worker: WorkerProcess, topic_prefix: str, tmp_path: Path
) -> None:
    source, target, topic = tmp_path / "in.txt", tmp_path / "out.txt", f"{topic_prefix}lines"

    def add(*lines: str) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def arrived() -> list[str]:
        return target.read_text().splitlines() if target.exists() else []

    def wait_for(*lines: str) -> None:
        worker.wait_until(
            lambda: len(arrived()) >= len(lines), ARRIVE_SECONDS, f"{len(lines)} lines"
        )
        assert arrived() == list(lines)

    add("one", "two")
    converters = {"key.converter": STRING, "value.converter": STRING}
    creation = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    reading = {"connector.class": "FileStreamSource", "file": str(source), "topic": topic}
    worker.put("source", {**reading, **creation, **converters})
    worker.put(
        "sink",
        {"connector.class": "FileStreamSink", "file": str(target), "topics": topic, **converters},
    )
    wait_for("one", "two")
    assert worker.states("source") == ["RUNNING", "RUNNING"]
    assert worker.get("/connectors/source/topics") == {"source": {"topics": [topic]}}
    add("three")
    wait_for("one", "two", "three")

    assert worker.stop() == 0
    add("four")
    worker.start()
    wait_for("one", "two", "three", "four")

    worker.wait_until(
        lambda: "RUNNING" in worker.states("source")[1:], ARRIVE_SECONDS, "the source task"
    )
    add("five")
    wait_for("one", "two", "three", "four", "five")
    assert worker.stop() == 0
    worker.start()
    add("six")
    wait_for("one", "two", "three", "four", "five", "six")
