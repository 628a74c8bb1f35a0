"""A table of a Java sink is migrated: `connect-py migrate --apply` and resume lose or duplicate
nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once_events import SHORT_TIMEOUTS
from java_sink_events import data_complete
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

TABLE = "db.orders"
SECONDS = 90.0
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class JavaSinksLegacy:
    """Twenty records; the Java sink has read fifteen, and its last commit contains ten of them."""

    def __init__(self, folder: Path, broker: KafkaBroker, prefix: str) -> None:
        self.servers = broker.bootstrap_servers
        self.name, self.topic, self.control = f"{prefix}sink", f"{prefix}orders", f"{prefix}control"
        self.lake = Lakehouse(folder / "lake")
        self.group = f"connect-{self.name}"
        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in admin.create_topics(
            [NewTopic(self.topic, 1, 1), NewTopic(self.control, 1, 1)]
        ).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(20):
            producer.produce(
                self.topic, json.dumps({"id": number, "name": f"order {number}"}).encode()
            )
        for read_to in (10, 15):
            producer.produce(self.control, data_complete(self.group, {(self.topic, 0): read_to}))
        producer.flush(30)
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        consumer.commit(offsets=[TopicPartition(self.topic, 0, 10)], asynchronous=False)
        consumer.close()
        self.lake.catalog.create_namespace("db")
        table = self.lake.catalog.create_table(TABLE, SCHEMA)
        rows = pa.Table.from_pylist(
            [{"id": n, "name": f"order {n}"} for n in range(10)], schema=SCHEMA
        )
        key = f"kafka.connect.offsets.{self.control}.{self.group}"
        table.append(
            rows, {key: '{"0":2}', "kafka.connect.commit-id": "c1", "engine-name": "kafka-connect"}
        )
        self.connector = folder / "connector.json"
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.topic,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "iceberg.tables": TABLE,
            "iceberg.control.topic": self.control,
            "iceberg.control.group-id-prefix": "cg-",
            "iceberg.control.commit.interval-ms": "1000",
            **self.lake.sink_config(),
        }
        self.connector.write_text(json.dumps({"name": self.name, "config": config}))

    def migrate(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            str(Path(sys.executable).with_name("connect-py")),
            "migrate",
            str(self.connector),
        ]
        command += ["--bootstrap-server", self.servers, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.long
# a worker with a JVM, and the command's own, on two cores that others share
@pytest.mark.timeout(400)
def test_a_java_sinks_table_is_taken_over_where_it_stood(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    legacy = JavaSinksLegacy(tmp_path, kafka_broker, topic_prefix)
    worker = WorkerProcess(
        tmp_path / "worker", legacy.servers, f"{topic_prefix}worker", SHORT_TIMEOUTS
    )
    try:
        worker.start()
        done = legacy.migrate("--apply", worker.url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "last commit c1" in done.stdout
        assert "no offsets need to be set" in done.stdout
        assert "iceberg.control.group-id-prefix" in done.stdout
        worker.wait_for_states(legacy.name, "STOPPED")
        response = httpx.put(f"{worker.url}/connectors/{legacy.name}/resume", timeout=60)
        assert response.status_code == 202, response.text
        worker.wait_until(
            lambda: caught_up(legacy.servers, legacy.name, legacy.topic),
            SECONDS,
            "the sink to catch up",
        )
        assert sorted(legacy.lake.rows(TABLE)["id"].to_pylist()) == list(range(20))
    finally:
        worker.close()
