"""Secrets that a configuration provider gives are in nothing that a worker writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from schema_registry_stub import Stub, schema_registry
from topic_reader import read_topic
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.timeout(150)

SECRET = "planted:s3cret/in=file"
IN_URL = "planted%3As3cret%2Fin%3Dfile"
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@pytest.fixture
def registry() -> Iterator[Stub]:
    with schema_registry(
        {1: {"schema": json.dumps(AVRO), "subjects": [{"subject": "s", "version": 1}]}}
    ) as stub:
        yield stub


@pytest.fixture
def worker(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[WorkerProcess]:
    (tmp_path / "secrets").write_text(f"plain={SECRET}\nin.url={IN_URL}\n")
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    made = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, "planted", providers)
    try:
        yield made.start()
    finally:
        made.close()


def test_planted_secrets_appear_in_no_log_status_or_dead_letter(
    kafka_broker: KafkaBroker, worker: WorkerProcess, registry: Stub, tmp_path: Path
) -> None:
    servers, secrets = kafka_broker.bootstrap_servers, tmp_path / "secrets"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("planted", 1, 1)])["planted"].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for value in (b"\x00\x00\x00\x00\x01\x02", b"no avro"):  # the first one has the registry asked
        producer.produce("planted", value)
    assert producer.flush(30) == 0
    host = registry.url.removeprefix("http://")
    reading = {
        "connector.class": FILE_SINK,
        "topics": "planted",
        "file": str(tmp_path / "out"),
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter.schema.registry.url": f"http://me:${{file:{secrets}:in.url}}@{host}",
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.deadletterqueue.topic.name": "planted-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    failing = {**reading, "file": f"{tmp_path}/none/${{file:{secrets}:plain}}/out"}
    worker.put("reading", reading)
    worker.put("failing", failing)
    worker.wait_for_states("failing", "RUNNING", "FAILED")
    worker.wait_until(
        lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() != "", 60, "a line"
    )
    assert worker.trace("failing").startswith(
        "org.apache.kafka.connect.errors.ConnectException: Couldn't find or cre"
    )
    assert "[hidden]" in worker.trace("failing")
    answer = json.dumps(worker.get("/connectors?expand=status&expand=info"))
    worker.stop()
    topics = [f"planted-{name}" for name in ("config", "status", "offset", "control")]
    written = [
        repr(record) for topic in (*topics, "planted-dlq") for record in read_topic(servers, topic)
    ]
    log = worker.log_path.read_text()
    assert "[hidden]" in log
    for text in (answer, *written, log):
        assert "planted:s3cret" not in text
        assert IN_URL not in text
        assert "s3cret" not in text
