"""The Spark driver of a worker: shared by its connectors, of bounded size, and no obstacle to some
when others fail."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest
from command_lines import command_line
from lakehouse import Lakehouse
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import JAVA_VARIABLE as JAVA

long_ = pytest.mark.long
pytestmark = pytest.mark.timeout(400)  # ten tasks and a Spark driver on two busy cores

CONNECTORS = 10
MOST_MEGABYTES = 3_000
MERGE = {
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__default_id_columns": "id",
}
ENDLESS = {  # the join of the MERGE has more tasks than ever end
    "iceberg__spark__spark__sql__shuffle__partitions": "100000",
    "iceberg__spark__spark__sql__autoBroadcastJoinThreshold": "-1",
    "iceberg__ext__commit_attempt_timeout_ms": "10000",
}


class Memory:
    """The highest PSS of a worker with everything that it started, looked at twice a second."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_megabytes = 0.0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            total = 0
            for process in self._worker.processes():
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:  # it ended meanwhile
                    continue
            self.peak_megabytes = max(self.peak_megabytes, total / 1e6)


@pytest.fixture
def worker(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path: Path
) -> Iterator[WorkerProcess]:
    properties = {"connect_py.spark.drivers.max": "2"}
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


@pytest.fixture
def lakehouse(tmp_path: Path) -> Lakehouse:
    made = Lakehouse(tmp_path / "lake")
    made.catalog.create_namespace("db")
    return made


def drivers(worker: WorkerProcess) -> list[psutil.Process]:
    """The JVMs of Spark."""
    return [
        process for process in worker.processes() if "py4j.GatewayServer" in command_line(process)
    ]


def rows(case: SinkCase) -> dict[int, str]:
    found = case.lakehouse.rows(case.table).to_pylist()
    made = {row["id"]: row["v"] for row in found}
    assert len(made) == len(found), "a key has several rows"
    return made


def write(cases: list[SinkCase], text: str) -> None:
    for case in cases:
        case.produce(*({"id": number, "v": text} for number in range(20)))


@pytest.mark.long
def test_hung_or_killed_shared_driver_harms_none_of_ten_connectors(
    worker: WorkerProcess, lakehouse: Lakehouse, kafka_broker: KafkaBroker
) -> None:
    cases = [
        SinkCase(
            worker, lakehouse, kafka_broker.bootstrap_servers, f"shares-a-driver-{number}"
        ).create_topic()
        for number in range(CONNECTORS)
    ]
    hanging, others = cases[0], cases[1:]
    with Memory(worker) as memory:
        write(cases, "first")
        hanging.start(**MERGE, **ENDLESS)
        for case in others:
            case.start(**MERGE)
        for case in cases:
            case.await_caught_up()
        assert len(drivers(worker)) == 1

        write(cases, "second")
        for case in others:
            case.await_caught_up()
            assert set(rows(case).values()) == {"second"}
        hanging.await_log("did not finish within 10 s and was interrupted")
        assert set(rows(hanging).values()) == {"first"}

        write(others, "third")
        (driver,) = drivers(worker)
        driver.kill()
        for case in others:
            case.await_caught_up()
        hanging.start(**MERGE)  # the statement ends now
        hanging.await_caught_up()
    for case, last in [(hanging, "second"), *((case, "third") for case in others)]:
        assert rows(case) == dict.fromkeys(range(20), last)
        assert lakehouse.assert_ledgers_chain(case.table) >= 2
        assert worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert len(drivers(worker)) == 1
    print(f"{CONNECTORS} connectors: {memory.peak_megabytes:.0f} MB at most")
    assert memory.peak_megabytes <= MOST_MEGABYTES


@pytest.mark.long
def test_connectors_may_have_their_own_drivers_up_to_the_limit(
    worker: WorkerProcess, lakehouse: Lakehouse, kafka_broker: KafkaBroker
) -> None:
    cases = [
        SinkCase(
            worker, lakehouse, kafka_broker.bootstrap_servers, f"has-a-driver-{number}"
        ).create_topic()
        for number in range(3)
    ]
    for case in cases:
        case.produce_ids([1])
    cases[0].start()
    cases[1].start(iceberg__ext__spark_driver="own")
    for case in cases[:2]:
        case.assert_complete([1])
    assert len(drivers(worker)) == 2
    cases[1].await_log("starting process 2 of at most 2 on this worker")
    cases[2].start(iceberg__ext__spark_driver="own")
    assert "connect_py.spark.drivers.max" in cases[2].await_failure()
    worker.delete(cases[1].name)
    worker.wait_until(lambda: len(drivers(worker)) == 1, 30, "the driver to end with its only user")
    cases[2].restart_task()
    cases[2].assert_complete([1])


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ({"CONNECT_PY_CACHE": "{empty}"}, "run `connect-py jars spark` and restart the worker"),
        pytest.param(
            {"CONNECT_PY_SPARK_JARS": "{empty}/spark.jar"},
            "jars for Spark are missing",
            marks=long_,
        ),
        pytest.param(
            {"CONNECT_PY_JAVA": "{empty}/java"},
            "could not be started: the program does not exist",
            marks=long_,
        ),
    ],
    ids=["nothing", "jars", "java"],
)
def test_worker_that_cannot_start_spark_refuses_an_iceberg_connector(
    spark_environment: Mapping[str, str],
    lakehouse: Lakehouse,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    lacking: Mapping[str, str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "CONNECT_PY_CACHE" in lacking:
        for name in spark_environment:
            monkeypatch.delenv(name)
    environment = {name: value.format(empty=tmp_path / "empty") for name, value in lacking.items()}
    worker = WorkerProcess(
        tmp_path / "worker", kafka_broker.bootstrap_servers, tmp_path.name, environment=environment
    )
    try:
        worker.start()
        case = SinkCase(worker, lakehouse, kafka_broker.bootstrap_servers, "cannot-start-spark")
        answer = httpx.post(
            f"{worker.url}/connectors",
            json={"name": case.name, "config": case.config()},
            timeout=100,
        )
        assert answer.status_code == 400
        assert why in answer.json()["message"]
        assert worker.get("/connectors") == []
    finally:
        worker.close()


@pytest.mark.long  # in every run: test_driver_is_requested_before_the_first_commit_needs_it
def test_announced_or_existing_connector_uses_the_driver_that_started_with_the_worker(
    spark_environment: Mapping[str, str],
    lakehouse: Lakehouse,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
) -> None:
    """Static settings are set in the connector, the worker, and a config provider; the catalog in
    the worker.
    """
    (tmp_path / "secrets").write_text("heap=900m\ntasks=7\n")
    properties = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "connect_py.services.connectors": str(tmp_path / "announced.json"),
        "connect_py.spark.driver.memory": f"${{file:{tmp_path}/secrets:heap}}",
        **{f"connect_py.defaults.{key}": value for key, value in lakehouse.sink_config().items()},
    }
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        tmp_path.name,
        properties,
        spark_environment,
    )
    case = SinkCase(
        worker, lakehouse, kafka_broker.bootstrap_servers, "starts-with-the-worker"
    ).create_topic()
    config = {
        key: value for key, value in case.config().items() if key not in lakehouse.sink_config()
    }
    config["iceberg.spark.ui.retainedTasks"] = f"${{file:{tmp_path}/secrets:tasks}}"
    (tmp_path / "announced.json").write_text(json.dumps({"name": case.name, "config": config}))
    try:
        worker.start()
        case.await_log("Spark session: version")
        (announced,) = drivers(worker)
        assert "-Xmx900m" in command_line(announced)
        worker.put(case.name, config)
        case.produce_ids([1])
        case.assert_complete([1])
        assert drivers(worker) == [announced]

        (tmp_path / "announced.json").unlink()
        assert worker.stop() == 0
        worker.log_path.unlink()
        worker.start()
        case.produce_ids([2])
        case.assert_complete([1, 2])
        log = worker.log_path.read_text()
        assert "announced.json cannot be read" in log
        assert "service spark-driver (instance 1): started process" in log
        assert "(instance 2)" not in log
        assert len(drivers(worker)) == 1
    finally:
        worker.close()


@pytest.mark.long  # in every run: test_driver_is_requested_before_the_first_commit_needs_it
def test_status_says_that_spark_is_starting_or_why_it_cannot_start(
    spark_environment: Mapping[str, str],
    lakehouse: Lakehouse,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java, gate = tmp_path / "java", tmp_path / "gate"
    java.write_text(
        f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.1; done\nexec {spark_environment[JAVA]} "
        f'"$@"\n'
    )
    java.chmod(0o755)
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        tmp_path.name,
        environment={**spark_environment, JAVA: str(java)},
    )
    case = SinkCase(
        worker, lakehouse, kafka_broker.bootstrap_servers, "waits-for-spark"
    ).create_topic()
    try:
        worker.start()
        begun = datetime.now(UTC)
        case.start()
        waiting = case.await_waiting("Spark")
        assert waiting["reason"] == "Spark is starting"
        assert (
            begun - timedelta(seconds=1)
            < datetime.fromisoformat(waiting["since"])
            < datetime.now(UTC)
        )
        shown = subprocess.run(
            [Path(sys.executable).parent / "connect-py", "status", "--url", worker.url],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "waits for Spark: Spark is starting" in " ".join(shown.stdout.split())
        gate.touch()
        case.produce_ids([1])
        case.assert_complete([1])
        worker.wait_until(lambda: case.waiting() is None, 30, "the task to wait for nothing")

        assert worker.stop() == 0
        for name in spark_environment:
            monkeypatch.delenv(name)
        worker.environment = {"CONNECT_PY_CACHE": str(tmp_path / "empty")}
        worker.start()
        assert (
            "Spark's jars are missing: run `connect-py jars spark` and restart the worker"
            in case.await_failure()
        )
    finally:
        worker.close()
