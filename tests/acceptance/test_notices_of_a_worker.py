"""A worker notifies a lineage server and a webhook of its sink's commits, even if they are
temporarily unavailable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_sink import HttpSink, http_sink
from lakehouse import Lakehouse
from sink_case import SinkCase
from topic_reader import read_topic
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.long  # separate parts: `test_iceberg_notices`


@pytest.fixture
def servers() -> Iterator[tuple[HttpSink, HttpSink]]:
    with http_sink() as lineage, http_sink() as webhook:
        yield lineage, webhook


@pytest.mark.timeout(400)  # a worker and its driver
def test_commits_and_schema_changes_reach_other_systems(
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
    servers: tuple[HttpSink, HttpSink],
) -> None:
    lineage, webhook = servers
    lineage.refusals = webhook.refusals = 1
    name, address = f"{topic_prefix}told", kafka_broker.bootstrap_servers
    worker = WorkerProcess(
        tmp_path / "worker", address, f"{topic_prefix}w", environment=spark_environment
    )
    extra = {
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.ext.openlineage.url": lineage.url,
        "iceberg.ext.notices.webhook": webhook.url,
        "iceberg.ext.notices.topic": f"{name}-notices",
    }
    try:
        case = SinkCase(worker.start(), Lakehouse(tmp_path / "lake"), address, name, extra)
        case.create_topic()
        case.start()
        case.produce({"id": 1})
        case.await_caught_up()
        case.produce({"id": 2, "more": "text"})
        case.await_caught_up()
        worker.wait_until(
            lambda: len(lineage.bodies) >= 3 and bool(webhook.bodies), 60, "the events"
        )
        case.stop()
        worker.wait_until(
            lambda: lineage.bodies[-1]["eventType"] == "COMPLETE", 30, "the end of the run"
        )
    finally:
        worker.close()
    commits = [event for event in lineage.bodies if event["eventType"] == "RUNNING"]
    assert {source["name"] for event in commits for source in event["inputs"]} == {name}
    offsets = [
        event["inputs"][0]["inputFacets"]["kafkaConnectOffsets"]["partitions"]["0"]
        for event in commits
    ]
    assert offsets == [[0, 1], [1, 2]]
    columns = [
        [f["name"] for f in event["outputs"][0]["facets"]["schema"]["fields"]] for event in commits
    ]
    assert columns == [["id"], ["id", "more"]]
    assert [body["kind"] for body in webhook.bodies] == ["schema-changed"]
    [record] = read_topic(address, f"{name}-notices")
    assert json.loads(record.text)["changes"] == webhook.bodies[0]["changes"]
