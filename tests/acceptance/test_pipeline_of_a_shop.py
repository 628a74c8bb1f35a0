"""A pipeline of twelve tables on a worker that runs: planned, applied twice, changed, destroyed by the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from lakehouse import Lakehouse
from pipeline_files import LISTED, ROUTED, shop
from typer.testing import CliRunner
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connectors.iceberg.commands.pipeline import app

ALLOWED = {"connect_py.spark.user-code.allowed": "iceberg.table.*.expect.*"}


@dataclass(frozen=True, slots=True)
class Shop:
    """A worker, empty topics of a shop, and its pipeline file."""

    worker: WorkerProcess
    file: Path
    prefix: str

    def run(self, command: str, *words: str, status: int) -> dict[str, Any]:
        done = CliRunner().invoke(app, [command, str(self.file), "--url", self.worker.url, "--json", *words])
        assert done.exit_code == status, done.output + self.worker.log_end()
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def actions(self, document: Mapping[str, Any]) -> dict[str, str]:
        return {each["connector"].removeprefix(f"{self.prefix}shop-"): each["action"] for each in document["changes"]}


@pytest.fixture
def pipeline(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path: Path, topic_prefix: str
) -> Iterator[Shop]:
    lake = Lakehouse(tmp_path / "lake").sink_config()
    catalog = "\n".join(
        f"{key.removeprefix('iceberg.catalog.')}: {value}"
        for key, value in lake.items()
        if key.startswith("iceberg.catalog.")
    )
    file = tmp_path / "shop.yaml"
    file.write_text(shop(catalog, topic_prefix))
    topics = [f"{topic_prefix}shop.public.{name}" for name in (*LISTED, *ROUTED)] + [f"{topic_prefix}clicks"]
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(30)
    worker = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, topic_prefix, ALLOWED)
    try:
        yield Shop(worker.start(), file, topic_prefix)
    finally:
        worker.close()


def test_pipeline_is_applied_once_changed_and_destroyed(pipeline: Shop) -> None:
    text = pipeline.file.read_text()
    assert set(pipeline.actions(pipeline.run("plan", status=1)).values()) == {"create"}
    applied = pipeline.run("apply", status=0)
    assert len(applied["done"]) == 3
    assert [each["runs"] for each in applied["connectors"]] == [True] * 3
    assert set(pipeline.actions(pipeline.run("plan", status=0)).values()) == {"unchanged"}
    assert pipeline.run("apply", status=0)["done"] == []

    pipeline.file.write_text(text.partition("  clicks:")[0].replace("interval: 1m", "interval: 2m"))
    planned = pipeline.actions(pipeline.run("plan", status=1))
    assert planned == {"masters": "change", "orders": "change", "clicks": "delete"}
    pipeline.run("apply", "--yes", status=0)
    assert pipeline.run("status", status=0)["connectors"][0]["runs"]
    config = pipeline.worker.get(f"/connectors/{pipeline.prefix}shop-orders/config")
    assert config["iceberg.control.commit.interval-ms"] == "120000"

    pipeline.file.write_text(pipeline.file.read_text().replace("write-mode: merge", "write-mode: merge\n  branch: a b"))
    assert pipeline.run("apply", status=2)["mistakes"][0]["field"] == "defaults.branch"
    pipeline.file.write_text(text)
    assert len(pipeline.run("destroy", "--yes", status=0)["deleted"]) == 2
    assert pipeline.worker.get("/connectors") == []
