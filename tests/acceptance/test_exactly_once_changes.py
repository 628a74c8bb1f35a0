"""Death at points of the protocol with truncates, changed keys and unavailable values in the
stream."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once_events import SHORT_TIMEOUTS
from fixtures.iceberg_changes import Source
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

FAULTS = "CONNECT_PY_FAULTS"
FAULTS_LOG = "CONNECT_PY_FAULTS_LOG"
STEPS = 60  # of the database, for each run of the worker
# from the start of a worker to its death at the point, on two cores that others share
LIFE_SECONDS = 120.0
CATCH_UP_SECONDS = 90.0
TABLE = "db.shop"


class Database:
    """Writes, deletes, changes keys and truncates at random, and sends what Debezium would send."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._topic = topic
        self._random = random.Random(seed)
        self._sent = 0
        self.source = Source(1, by_key=True)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.source.apply(self._step())
        log = self.source.log[0]
        for record in log[self._sent :]:
            headers = [(header.key, json.dumps(header.value).encode()) for header in record.headers]
            key, value = (
                None if part is None else json.dumps(part).encode()
                for part in (record.key, record.value)
            )
            self._producer.produce(self._topic, value, key, headers=headers)
        self._sent = len(log)
        assert self._producer.flush(30) == 0

    def _step(self) -> tuple[Any, ...]:
        id_, other = self._random.randrange(40), self._random.randrange(40)
        kind = self._random.choices(["write", "delete", "move", "truncate"], [70, 12, 15, 3])[0]
        match kind:
            case "write":
                return (
                    "write",
                    id_,
                    self._random.choice(["north", "south"]),
                    self._random.random() < 0.4,
                )
            case "delete":
                return "delete", id_
            case "move":
                return "move", id_, other
        return ("truncate",)


def live_and_die(points: Sequence[str], folder: Path, broker: KafkaBroker, prefix: str) -> None:
    """Kill one run per point, each of which recovers from the previous kill; then read and compare
    all.
    """
    servers, name, topic = broker.bootstrap_servers, f"{prefix}sink", f"{prefix}shop"
    lake, log = Lakehouse(folder / "lake"), folder / "points.log"
    worker = WorkerProcess(
        folder, servers, f"{prefix}worker", SHORT_TIMEOUTS, {FAULTS_LOG: str(log)}
    )
    database = Database(servers, topic, seed=7)
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        **lake.sink_config(),
        "iceberg.tables": TABLE,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.ext.envelope": "debezium",
        "iceberg.ext.truncate-events": "apply",
        "iceberg.control.commit.interval-ms": "1000",
        "iceberg.control.commit.timeout-ms": "5000",
    }
    try:
        for life, point in enumerate(points):
            database.go_on(STEPS)
            log.unlink(missing_ok=True)
            worker.environment[FAULTS] = f"{point}=killgroup@1"
            worker.start(wait=life == 0)
            if life == 0:
                worker.put(name, config)
            worker.wait_for_death(LIFE_SECONDS)
            assert f"\n{point} 1 " in f"\n{log.read_text()}"  # other processes may write after it
        database.go_on(STEPS)
        worker.environment.pop(FAULTS)
        worker.start()
        worker.wait_until(
            lambda: caught_up(servers, name, topic), CATCH_UP_SECONDS, "the sink to catch up"
        )
        rows = {row["id"]: row for row in lake.rows(TABLE).to_pylist()}
        assert len(rows) == lake.rows(TABLE).num_rows, "a key has several rows"
        assert rows == database.source.rows
        lake.assert_ledgers_chain(TABLE)
    finally:
        worker.close()


@pytest.mark.long
@pytest.mark.timeout(420)  # three runs of a worker
def test_truncates_and_changed_keys_survive_death_around_the_swap(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    live_and_die(
        ["before_compare_and_swap", "after_compare_and_swap"], tmp_path, kafka_broker, topic_prefix
    )


@pytest.mark.long
@pytest.mark.timeout(1200)  # a run of a worker per point
def test_truncates_and_changed_keys_survive_death_at_every_step(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    points = [
        "after_start_commit",
        "after_close_files",
        "after_report",
        "after_accept",
        "before_prepare",
        "before_compare_and_swap",
        "after_compare_and_swap",
        "before_commit_complete",
        "after_group_commit",
    ]
    live_and_die(points, tmp_path, kafka_broker, topic_prefix)
