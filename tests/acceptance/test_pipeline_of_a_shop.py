"""A pipeline of twelve tables on a worker that runs: planned, applied twice, changed, destroyed by
the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.command_line import command_app
from lakehouse import Lakehouse
from pipeline_files import LISTED, ROUTED, shop
from typer.testing import CliRunner
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connectors.iceberg_tools.commands.pipeline import apply, destroy, plan, status

ALLOWED = {"connect_py.spark.user-code.allowed": "iceberg.table.*.expect.*"}
APP = command_app(apply, destroy, plan, status)
NAMES = ("masters", "orders", "clicks")


@dataclass(frozen=True, slots=True)
class Shop:
    """A worker that has a catalog for all, empty topics of a shop, and its pipeline file."""

    worker: WorkerProcess
    lake: Lakehouse
    file: Path
    prefix: str

    def run(self, command: str, *words: str, status: int) -> dict[str, Any]:
        done = CliRunner().invoke(
            APP, [command, str(self.file), "--url", self.worker.url, "--json", *words]
        )
        assert done.exit_code == status, done.output + self.worker.log_end()
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def planned(self, status: int) -> dict[str, str]:
        changes = self.run("plan", status=status)["changes"]
        return {
            each["connector"].removeprefix(f"{self.prefix}shop-"): each["action"]
            for each in changes
        }

    def create_stopped(self) -> None:
        """Connectors of the pipeline, as of an earlier file: their tasks do not run, and no Spark
        does."""
        for name in NAMES:
            config = {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "connect_py.pipeline": f"{self.prefix}shop",
                "topics": "x",
                "iceberg.tables": "a.b",
            }
            body = {
                "name": f"{self.prefix}shop-{name}",
                "config": config,
                "initial_state": "STOPPED",
            }
            answer = httpx.post(f"{self.worker.url}/connectors", json=body, timeout=100)
            assert answer.status_code == 201, answer.text

    def land_a_click(self) -> None:
        producer = Producer({"bootstrap.servers": self.worker.servers})
        producer.produce(f"{self.prefix}clicks", json.dumps({"session": 7, "at": "2026-01-02"}))
        assert producer.flush(30) == 0
        self.worker.wait_until(lambda: self.lake.table("shop.clicks") is not None, 90, "a table")
        self.worker.wait_until(lambda: self.lake.rows("shop.clicks").num_rows == 1, 90, "a row")


@pytest.fixture
def pipeline(
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path: Path,
    topic_prefix: str,
) -> Iterator[Shop]:
    lake = Lakehouse(tmp_path / "lake")
    file = tmp_path / "shop.yaml"
    file.write_text(shop("", topic_prefix))
    topics = [f"{topic_prefix}shop.public.{name}" for name in (*LISTED, *ROUTED)] + [
        f"{topic_prefix}clicks"
    ]
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(30)
    properties = {f"connect_py.defaults.{key}": value for key, value in lake.sink_config().items()}
    worker = WorkerProcess(
        tmp_path / "worker", kafka_broker.bootstrap_servers, topic_prefix, ALLOWED | properties
    )
    try:
        yield Shop(worker.start(), lake, file, topic_prefix)
    finally:
        worker.close()


@pytest.mark.timeout(400)  # RUNNING: three connectors start twice, with Spark
@pytest.mark.parametrize("state", ["STOPPED", pytest.param("RUNNING", marks=pytest.mark.long)])
def test_pipeline_is_applied_once_changed_and_destroyed(pipeline: Shop, state: str) -> None:
    text = pipeline.file.read_text().replace("days(at), ", "")
    pipeline.file.write_text(text.replace("interval: 1m", "interval: 1s"))
    runs = state == "RUNNING"
    if not runs:
        pipeline.create_stopped()
    assert pipeline.planned(status=1) == dict.fromkeys(NAMES, "create" if runs else "change")
    applied = pipeline.run("apply", status=0)
    assert len(applied["done"]) == 3
    assert {each["parts"][0]["state"] for each in applied["connectors"]} == {state}
    assert [each["runs"] for each in applied["connectors"]] == [runs] * 3
    assert pipeline.planned(status=0) == dict.fromkeys(NAMES, "unchanged")
    assert pipeline.run("apply", status=0)["done"] == []
    if runs:
        pipeline.land_a_click()

    pipeline.file.write_text(text.partition("  clicks:")[0])
    assert pipeline.planned(status=1) == {
        "masters": "change",
        "orders": "change",
        "clicks": "delete",
    }
    pipeline.run("apply", "--yes", status=0)
    assert pipeline.run("status", status=0 if runs else 1)["connectors"][0]["runs"] is runs
    config = pipeline.worker.get(f"/connectors/{pipeline.prefix}shop-orders/config")
    assert config["iceberg.control.commit.interval-ms"] == "60000"

    pipeline.file.write_text(
        text.replace("write-mode: append", "properties: {value.converter: no.Such}")
    )
    (mistake,) = pipeline.run("apply", status=2)["mistakes"]
    assert "is set by `format`" in mistake["problem"]
    pipeline.file.write_text(text.replace("write-mode: append", "transforms: [{type: no.Such}]"))
    assert "transforms.t1.type" in pipeline.run("apply", status=2)["mistakes"][0]["problem"]
    assert len(pipeline.run("destroy", "--yes", status=0)["deleted"]) == 2
    assert pipeline.worker.get("/connectors") == []
