"""A connector that stops automatically, exactly at its bounds, even if the worker is killed
before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_input import lakehouse, worker
from confluent_kafka import Consumer, TopicPartition
from exactly_once_events import SHORT_TIMEOUTS
from kafka_offsets import committed
from lakehouse import Lakehouse
from sink_case import SinkCase, case_on_own_worker
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

__all__ = ["lakehouse", "worker"]


@pytest.fixture
def case(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> Iterator[SinkCase]:
    with case_on_own_worker(
        tmp_path, kafka_broker.bootstrap_servers, topic_prefix, SHORT_TIMEOUTS, {}
    ) as made:
        yield made


def end_of(case: SinkCase, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": case.bootstrap_servers, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(case.name, partition), 30)[1])
    finally:
        consumer.close()


def await_stop(case: SinkCase) -> str:
    """Wait until the connector has stopped; returns the reason that its status shows."""
    case.worker.wait_for_states(case.name, "STOPPED", seconds=150)
    status = case.worker.get(f"/connectors/{case.name}/status")
    assert status["tasks"] == []
    return str(status["connector"]["stopped"]["reason"])


@pytest.mark.timeout(300)  # Spark may have to start
def test_connectors_end_at_the_ends_of_logs_and_at_offsets(
    worker: WorkerProcess, lakehouse: Lakehouse, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    case = SinkCase(
        worker, lakehouse, kafka_broker.bootstrap_servers, f"{topic_prefix}bounded"
    ).create_topic(2)
    other = f"{case.name}-offsets"
    case.produce_ids(range(300))  # all have one key, so one of the partitions is empty
    full = next(number for number in range(2) if end_of(case, number))
    case.start(iceberg__ext__stop_at="latest", iceberg__control__commit__interval_ms="3000")
    bound = f"{case.name}:{full}:120"
    worker.put(
        other, case.config(iceberg__ext__stop_at=bound) | {"iceberg.tables": "db.bounded_offsets"}
    )
    # by the ends of the logs; the other connector has another bound
    case.await_log(f"{case.name}:{full}:300")
    case.produce_ids(range(300, 330))  # behind the bounds, before anything is committed
    reason = await_stop(case)
    assert reason.startswith("iceberg.ext.stop-at=latest is reached: ")
    assert f"{case.name}:{full}:300" in reason
    assert case.ids() == list(range(300))
    worker.wait_for_states(other, "STOPPED", seconds=150)
    assert sorted(lakehouse.rows("db.bounded_offsets").column("id").to_pylist()) == list(range(120))
    assert committed(case.bootstrap_servers, f"connect-{other}", case.name)[case.name, full] == 120


@pytest.mark.long
@pytest.mark.timeout(400)  # a worker that is killed, and its drivers
def test_bounded_connector_ends_exactly_at_the_logs_ends(case: SinkCase) -> None:
    case.produce_ids(range(300))
    case.start(iceberg__ext__stop_at="latest", iceberg__control__commit__interval_ms="4000")
    case.await_log("will stop at")
    case.produce_ids(range(300, 400))  # behind the bounds, before anything is committed
    case.worker.kill_group()
    case.worker.start()
    assert await_stop(case) == f"iceberg.ext.stop-at=latest is reached: {case.name}:0:300"
    assert case.ids() == list(range(300))
    assert case.offset() == 300
    case.start(iceberg__ext__stop_at=f"{case.name}:0:350")
    # as a stop of a user's
    assert "stopped" in case.worker.get(f"/connectors/{case.name}/status")["connector"]
    case.resume()
    case.worker.wait_until(lambda: case.offset() == 350, 90, "the second bound")
    assert f"{case.name}:0:350 is reached" in await_stop(case)
    assert case.ids() == list(range(350))


@pytest.mark.long  # in every run: the ends of the logs, and offsets
@pytest.mark.timeout(400)
def test_bounded_connector_resumes_to_new_ends_or_stops_at_once(case: SinkCase) -> None:
    case.produce_ids(range(100))
    case.start(iceberg__ext__stop_at="latest")
    await_stop(case)
    case.produce_ids(range(100, 150))
    case.resume()
    case.worker.wait_until(lambda: case.offset() == 150, 90, "the new ends")
    await_stop(case)
    case.worker.stop()
    case.worker.start()
    assert "150" in await_stop(case)
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
    case.produce_ids(range(150, 200))
    case.start(iceberg__ext__stop_at=moment)
    case.resume()
    case.worker.wait_until(lambda: "is reached" in case.worker.log_path.read_text(), 60, "the stop")
    assert moment in await_stop(case)
    assert case.ids() == list(range(150))
    assert committed(case.bootstrap_servers, f"connect-{case.name}", case.name) == {
        (case.name, 0): 150
    }
