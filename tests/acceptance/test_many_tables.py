"""One connector, hundreds of tables by dynamic routing: how long they take to come, a cycle, and
how much memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

ROWS = 5  # per table and round


@pytest.fixture
def case(
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path: Path,
    topic_prefix: str,
) -> Iterator[SinkCase]:
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        topic_prefix,
        environment=spark_environment,
    )
    try:
        yield SinkCase(
            worker.start(),
            Lakehouse(tmp_path / "lake"),
            kafka_broker.bootstrap_servers,
            f"{topic_prefix}many",
        )
    finally:
        worker.close()


def memory(worker: WorkerProcess) -> tuple[int, int]:
    """PSS of the Python processes and of the JVMs, in MB."""
    python = java = 0
    root = psutil.Process(worker.pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            pss, name = process.memory_full_info().pss, process.name()
        except psutil.NoSuchProcess:
            continue
        if name == "java":
            java += pss
        else:
            python += pss
    return python >> 20, java >> 20


def round_of(case: SinkCase, tables: int, number: int, seconds: float) -> float:
    """Rows for every table; returns the seconds until all are committed."""
    case.produce(
        *(
            {"table": f"db.t{table:04d}", "id": number * ROWS + row}
            for row in range(ROWS)
            for table in range(tables)
        )
    )
    began = time.monotonic()
    case.worker.wait_until(
        lambda: caught_up(case.bootstrap_servers, case.name, case.name), seconds, "all rows"
    )
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("tables", "seconds"),
    [
        pytest.param(40, 60.0, marks=[pytest.mark.long, pytest.mark.timeout(400)]),
        pytest.param(200, 500.0, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_one_connector_writes_hundreds_of_tables(
    case: SinkCase, tables: int, seconds: float
) -> None:
    case.create_topic(2)
    config = case.config(
        iceberg__tables__dynamic_enabled="true", iceberg__tables__route_field="table"
    )
    del config["iceberg.tables"]
    case.worker.put(case.name, config)
    first = round_of(case, tables, 0, seconds)
    second = round_of(case, tables, 1, seconds)
    python, java = memory(case.worker)
    figures = {
        "tables": tables,
        "first_s": round(first, 1),
        "cycle_s": round(second, 1),
        "python_mb": python,
        "jvm_mb": java,
    }
    print(json.dumps(figures))
    for table in range(tables):
        found = case.lakehouse.table(f"db.t{table:04d}")
        assert found is not None
        snapshot = found.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["total-records"] == str(2 * ROWS)
    for table in (0, tables - 1):
        assert sorted(case.lakehouse.rows(f"db.t{table:04d}").column("id").to_pylist()) == list(
            range(2 * ROWS)
        )
        case.lakehouse.assert_ledgers_chain(f"db.t{table:04d}")
    assert second < 2 * first  # on a machine that does other things as well
    assert python < 600
