"""A stand-alone cluster: executors write the delete files, and neither their death nor the driver's
loses a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from command_lines import command_line
from lakehouse import Lakehouse
from sink_case import SinkCase
from spark_elsewhere import StandaloneCluster
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.timeout(500)  # a cluster, and MERGEs that are restarted

ROWS = 50
SECONDS = 120.0
MERGE = {
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__default_id_columns": "id",
}
SLOW = {  # a MERGE of many small tasks
    "iceberg__spark__sql__shuffle__partitions": "300",
    "iceberg__spark__sql__autoBroadcastJoinThreshold": "-1",
}


@pytest.fixture
def worker(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path: Path
) -> Iterator[WorkerProcess]:
    environment = {**spark_environment, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = WorkerProcess(
        tmp_path / "worker", kafka_broker.bootstrap_servers, tmp_path.name, environment=environment
    )
    try:
        yield process.start()
    finally:
        process.close()


def executors(cluster: StandaloneCluster) -> list[psutil.Process]:
    found = [
        child for pid in cluster.pids for child in psutil.Process(pid).children(recursive=True)
    ]
    return [process for process in found if "CoarseGrainedExecutorBackend" in command_line(process)]


def driver(worker: WorkerProcess) -> psutil.Process:
    (found,) = [
        process for process in worker.processes() if "py4j.GatewayServer" in command_line(process)
    ]
    return found


def said(folder: Path, pattern: str) -> int:
    """Return the number of lines that match, in the logs of all executors."""
    return sum(
        len(re.findall(pattern, log.read_text(errors="replace")))
        for log in folder.rglob("work/app-*/*/stderr")
    )


@pytest.mark.long
def test_rows_are_exact_after_executor_and_driver_die_during_merge(
    worker: WorkerProcess,
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path: Path,
) -> None:
    lakehouse = Lakehouse(tmp_path / "lake")
    lakehouse.catalog.create_namespace("db")
    case = SinkCase(
        worker, lakehouse, kafka_broker.bootstrap_servers, "merged-on-a-cluster"
    ).create_topic()

    def write(text: str) -> None:
        case.produce(*({"id": number, "v": text} for number in range(ROWS)))

    def under_way(begun: int) -> None:
        worker.wait_until(
            lambda: said(tmp_path, "Running task") > begun + 20, SECONDS, "a MERGE to be under way"
        )

    with StandaloneCluster(tmp_path / "cluster", spark_environment) as cluster:
        write("first")
        case.start(
            **MERGE, **SLOW, iceberg__spark__master=cluster.url, iceberg__spark__cores__max="2"
        )
        case.await_caught_up()
        write("second")
        case.await_caught_up()
        deletes = list(tmp_path.rglob("*-deletes.puffin"))
        assert deletes, "no delete file was written"
        assert said(tmp_path, r"Committed partition \d+"), "no executor wrote deletes"

        begun = said(tmp_path, "Running task")
        write("third")
        under_way(begun)
        executors(cluster)[0].kill()
        case.await_caught_up()
        assert said(tmp_path, "Running task") > begun + 300, "the MERGE was not run"

        begun = said(tmp_path, "Running task")
        write("fourth")
        under_way(begun)
        driver(worker).kill()
        case.await_caught_up()
    rows = lakehouse.rows(case.table).to_pylist()
    assert len(rows) == ROWS
    assert {row["id"]: row["v"] for row in rows} == dict.fromkeys(range(ROWS), "fourth")
    assert lakehouse.assert_ledgers_chain(case.table) >= 4
    table = lakehouse.table(case.table)
    assert table is not None
    assert set(table.refs()) == {"main"}
    assert worker.states(case.name) == ["RUNNING", "RUNNING"]
