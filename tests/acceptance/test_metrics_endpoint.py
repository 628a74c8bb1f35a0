"""`/metrics` of a worker that runs as a process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

STRING = "org.apache.kafka.connect.storage.StringConverter"


@pytest.fixture
def worker(kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    properties = {"connect_py.metrics.names": "confluent,strimzi"}
    process = WorkerProcess(
        tmp_path / "worker", kafka_broker.bootstrap_servers, f"{topic_prefix}g", properties
    )
    try:
        yield process.start()
    finally:
        process.close()


def series(worker: WorkerProcess) -> dict[str, float]:
    answer = httpx.get(f"{worker.url}/metrics", timeout=30)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    pairs = (line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


@pytest.mark.timeout(400)
def test_metrics_cover_worker_and_tasks_and_drop_deleted_connectors(
    worker: WorkerProcess, topic_prefix: str, tmp_path: Path
) -> None:
    topic, lines, copy = f"{topic_prefix}lines", tmp_path / "in.txt", tmp_path / "out.txt"
    lines.write_text("one\ntwo\nthree\n")
    converters = {"key.converter": STRING, "value.converter": STRING}
    creation = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    reading = {"connector.class": "FileStreamSource", "file": str(lines), "topic": topic}
    worker.put("in", {**reading, **creation, **converters})
    worker.put(
        "out",
        {"connector.class": "FileStreamSink", "file": str(copy), "topics": topic, **converters},
    )
    worker.put(
        "bad",
        {
            "connector.class": "FileStreamSink",
            "file": "/no/such/folder/x",
            "topics": topic,
            **converters,
        },
    )
    worker.wait_for_states("bad", "RUNNING", "FAILED")
    task = 'connector="out",task="0"'
    expected = {
        'kafka_connect_connect_worker_metrics_connector_count{connector="aggregate"}': 3,
        "kafka_connect_worker_task_count": 3,
        'kafka_connect_worker_connector_failed_task_count{connector="bad"}': 1,
        'kafka_connect_connector_status{connector="out",status="running"}': 1,
        'kafka_connect_connector_task_metrics{connector="bad",status="failed",task="0"}': 1,
        f"kafka_connect_sink_task_metrics_sink_record_read_total{{{task}}}": 3,
        f"kafka_connect_sink_task_sink_record_send_total{{{task}}}": 3,
        f"kafka_connect_sink_task_sink_record_active_count{{{task}}}": 0,
        'kafka_connect_source_task_source_record_write_total{connector="in",task="0"}': 3,
        f"kafka_connect_task_error_metrics_total_record_errors{{{task}}}": 0,
        'kafka_consumer_fetch_manager_records_lag{clientId="connector-consumer-out-0",'
        f'partition="0",topic="{topic}"}}': 0,
        "kafka_connect_worker_rebalance_rebalancing": 0,
    }
    seen: dict[str, float] = {}

    def all_there() -> bool:
        seen.clear()
        seen.update(series(worker))
        return all(seen.get(name) == value for name, value in expected.items())

    try:
        worker.wait_until(all_there, 40, "all series")
    except AssertionError as error:
        raise AssertionError({name: seen.get(name) for name in expected}) from error
    assert seen["kafka_connect_worker_rebalance_completed_rebalances_total"] >= 1
    assert any(
        re.match(r'kafka_connect_coordinator_assigned_tasks\{clientId="[^"]+"\}', name)
        for name in seen
    )
    assert f'leader_name="{worker.url}/"' in next(n for n in seen if "rebalance_leader_name" in n)
    worker.delete("bad")
    worker.wait_until(
        lambda: not any('"bad"' in name for name in series(worker)),
        30,
        "the series of bad to vanish",
    )
