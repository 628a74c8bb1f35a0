"""Spark's event log shows the queries of a merge cycle: one `MERGE INTO` the recorded table, in a
PySpark session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from lakehouse import Lakehouse
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.timeout(400)  # a worker and a Spark driver start

CYCLES = 3
STARTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"


@pytest.fixture
def worker(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path: Path
) -> Iterator[WorkerProcess]:
    logs = tmp_path / "events"
    logs.mkdir()
    properties = {
        "connect_py.spark.eventLog.enabled": "true",
        "connect_py.spark.eventLog.dir": f"file://{logs}",
    }
    properties["connect_py.spark.eventLog.compress"] = "false"
    process = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        tmp_path.name,
        properties,
        spark_environment,
    )
    try:
        yield process.start()
    finally:
        process.close()


def merges(folder: Path, table: str) -> list[str]:
    """Return the plans of all executions that remove rows of a table. A warm-up merges into private
    tables."""
    found = []
    for file in sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    ):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == STARTED and "WriteDelta" in event["physicalPlanDescription"]:
                plan = event["physicalPlanDescription"]
                found += [plan] if f"BatchScan {table} " in plan else []
    return found


def application(folder: Path) -> dict[str, str]:
    """Spark's settings, as the log has them."""
    for file in sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    ):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerEnvironmentUpdate":
                return dict(event["Spark Properties"])
    raise AssertionError("the log has no settings")


@pytest.mark.long  # in every run: test_iceberg_commit_cost.py
def test_cycle_that_replaces_rows_is_one_merge_into_a_recorded_table(
    worker: WorkerProcess, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    lakehouse = Lakehouse(tmp_path / "lake")
    lakehouse.catalog.create_namespace("db")
    case = SinkCase(worker, lakehouse, kafka_broker.bootstrap_servers, "merged-by-spark")
    case.create_topic()
    case.produce(*({"id": n, "v": "first"} for n in range(10)))
    case.start(
        iceberg__tables__upsert_mode_enabled="true", iceberg__tables__default_id_columns="id"
    )
    case.await_caught_up()
    for cycle in range(CYCLES):
        case.produce({"id": cycle, "v": f"cycle {cycle}"}, {"id": 100 + cycle, "v": "new"})
        case.await_caught_up()
    table = lakehouse.table(case.table)
    assert table is not None
    replaced = [
        snapshot.summary.additional_properties
        for snapshot in table.snapshots()
        if snapshot.summary is not None
        and "added-position-deletes" in snapshot.summary.additional_properties
    ]
    worker.stop()
    plans = merges(tmp_path / "events", case.table)
    assert len(plans) == len(replaced) == CYCLES
    assert all("MergeRows" in plan for plan in plans)
    settings = application(tmp_path / "events")
    assert settings["spark.app.name"] == "connect-py"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert {row["id"]: row["v"] for row in lakehouse.rows(case.table).to_pylist()} == {
        **dict.fromkeys(range(10), "first"),
        **{cycle: f"cycle {cycle}" for cycle in range(CYCLES)},
        **{100 + cycle: "new" for cycle in range(CYCLES)},
    }
