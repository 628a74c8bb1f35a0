"""Configurations that cannot work: over REST each gets an answer that names key and reason; nothing
is left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from bad_input import case, lakehouse, worker
from lakehouse import Lakehouse
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimeType
from sink_case import SinkCase
from worker_process import WorkerProcess, free_port

from connect_py.embedded.broker import KafkaBroker

__all__ = ["case", "lakehouse", "worker"]  # fixtures

# two runs of a task, each with a Spark driver that starts on a busy machine
pytestmark = pytest.mark.timeout(400)

STRING = "org.apache.kafka.connect.storage.StringConverter"
SINK = "org.apache.iceberg.connect.IcebergSinkConnector"


def post(worker: WorkerProcess, name: str, config: Mapping[str, str]) -> httpx.Response:
    return httpx.post(
        f"{worker.url}/connectors", json={"name": name, "config": dict(config)}, timeout=100
    )


def validate(worker: WorkerProcess, config: Mapping[str, str]) -> tuple[int, dict[str, list[str]]]:
    """The error count, and the errors by key."""
    url = f"{worker.url}/connector-plugins/IcebergSinkConnector/config/validate"
    answer = httpx.put(url, json=dict(config), timeout=100)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    values = [info["value"] for info in body["configs"]]
    return body["error_count"], {
        value["name"]: value["errors"] for value in values if value["errors"]
    }


def test_unknown_connector_class_error_lists_the_available_connector_classes(
    case: SinkCase,
) -> None:
    answer = post(
        case.worker, case.name, {"connector.class": "com.example.NoSuchConnector", "topics": "t"}
    )
    assert answer.status_code == 400
    assert answer.json()["error_code"] == 400
    message = answer.json()["message"]
    assert message.startswith(
        "Failed to find any class that implements Connector and which name matches "
        "com.example.NoSuchConnector"
    )
    assert SINK in message
    assert case.name not in case.worker.get("/connectors")


def test_each_invalid_value_is_told_with_its_key(case: SinkCase) -> None:
    config = case.config() | {
        "tasks.max": "0",
        "iceberg.control.commit.interval-ms": "often",
        "iceberg.ext.write-mode": "sideways",
        "iceberg.tables.auto-create-enabled": "perhaps",
        "errors.tolerance": "some",
        "value.converter": "com.example.NoSuchConverter",
    }
    count, errors = validate(case.worker, {"name": case.name, **config})
    assert errors == {
        "tasks.max": ["Invalid value 0 for configuration tasks.max: Value must be at least 1"],
        "iceberg.control.commit.interval-ms": [
            "Invalid value often for configuration iceberg.control.commit.interval-ms: Not a "
            "number of type INT",
            "Invalid value null for configuration iceberg.control.commit.interval-ms: Value must "
            "be non-null",
        ],
        "iceberg.ext.write-mode": [
            "Invalid value sideways for configuration iceberg.ext.write-mode: "
            "String must be one of: auto, append, merge, changelog"
        ],
        "iceberg.tables.auto-create-enabled": [
            "Invalid value perhaps for configuration iceberg.tables.auto-create-enabled: "
            "Expected value to be either true or false"
        ],
        "errors.tolerance": [
            "Invalid value some for configuration errors.tolerance: String must be one of: none, "
            "all"
        ],
        "value.converter": [
            "Invalid value com.example.NoSuchConverter for configuration value.converter: "
            "Class com.example.NoSuchConverter could not be found."
        ],
    }
    assert count == sum(map(len, errors.values()))
    answer = post(case.worker, case.name, config)
    assert answer.status_code == 400
    message = answer.json()["message"]
    assert f"contains the following {count} error(s):" in message
    for texts in errors.values():
        assert texts[0] in message
    assert case.name not in case.worker.get("/connectors")


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        ({"iceberg.tables": None}, "iceberg.tables", "Must specify table name(s)"),
        (
            {"iceberg.tables.dynamic-enabled": "true"},
            "iceberg.tables",
            "Cannot specify both static and dynamic table names",
        ),
        (
            {"iceberg.ext.commit-engine": "merge"},
            "iceberg.ext.commit-engine",
            "merge requires merged tables, but rows are appended",
        ),
        (
            {"iceberg.tables.default-partition-by": "days(ts"},
            "iceberg.tables.default-partition-by",
            "days(ts",
        ),
        ({"topics": None}, "topics", "Must configure one of topics or topics.regex"),
        (
            {"iceberg.spark.remote": "sc://x"},
            "iceberg.spark.remote",
            "to run commits on a Spark cluster, set iceberg.spark.master to spark://host:port, "
            "yarn, or k8s://",
        ),
    ],
)
def test_combinations_that_make_no_sense_are_told_with_their_key(
    worker: WorkerProcess,
    lakehouse: Lakehouse,
    change: Mapping[str, str | None],
    key: str,
    text: str,
) -> None:
    config: dict[str, str | None] = {
        **SinkCase(worker, lakehouse, "", "combined").config(),
        **change,
    }
    _, errors = validate(
        worker, {name: value for name, value in config.items() if value is not None}
    )
    assert any(text in told for told in errors[key]), errors
    answer = post(
        worker, "combined", {name: value for name, value in config.items() if value is not None}
    )
    assert answer.status_code == 400
    assert any(key in line and text in line for line in answer.json()["message"].splitlines()), (
        answer.text
    )


def test_merge_without_key_columns_fails_and_names_the_setting(case: SinkCase) -> None:
    case.create_topic()
    case.produce({"id": 1}, {"id": 2}, {"id": 2})
    case.start(iceberg__tables__upsert_mode_enabled="true")
    trace = case.await_failure()
    assert (
        f"table {case.table}: MERGE requires key columns: set "
        f"iceberg.table.{case.table}.id-columns or iceberg.tables.default-id-columns, identifier "
        "fields of the table, or iceberg.ext.key-source=record"
    ) in trace
    assert case.offset() == 0
    case.start(
        iceberg__tables__upsert_mode_enabled="true", iceberg__tables__default_id_columns="id"
    )
    case.await_running()
    case.assert_complete([1, 2])


def test_missing_table_fails_the_task_until_somebody_creates_it(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    case.create_topic()
    case.produce_ids([1, 2])
    case.start(iceberg__tables__auto_create_enabled="false")
    trace = case.await_failure()
    assert (
        f"table {case.table}: does not exist, and iceberg.tables.auto-create-enabled is false"
        in trace
    )
    assert case.offset() == 0
    lakehouse.catalog.create_table(
        case.table, Schema(NestedField(1, "id", LongType(), required=False))
    )
    case.produce_ids([3])
    case.restart_task()
    case.await_running()
    case.assert_complete([1, 2, 3])


@pytest.mark.long
def test_table_with_a_time_column_is_refused_with_the_reason(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at", TimeType(), required=False),
    )
    lakehouse.catalog.create_table(case.table, schema)
    case.create_topic()
    case.produce_ids([1, 2])
    merge = {
        "iceberg__tables__upsert_mode_enabled": "true",
        "iceberg__tables__default_id_columns": "id",
    }
    case.start(**merge)
    trace = case.await_failure()
    assert f"table {case.table}: " in trace
    assert "column at has type time, which Spark cannot read" in trace
    assert case.offset() == 0
    with lakehouse.catalog.load_table(case.table).update_schema() as update:
        update.delete_column("at")
    case.restart_task()
    case.await_running()
    case.assert_complete([1, 2])


@pytest.mark.long
def test_topic_that_does_not_exist_is_waited_for(case: SinkCase) -> None:
    case.start(consumer__override__allow__auto__create__topics="false")
    case.await_running()
    case.await_log(
        f"Subscribed topic not available: {case.name}: Broker: Unknown topic or partition"
    )
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    case.create_topic()
    case.produce_ids([1, 2, 3])
    case.assert_complete([1, 2, 3])


def test_catalog_that_cannot_be_reached_is_waited_for(case: SinkCase, tmp_path: Path) -> None:
    """The catalog's database is in a folder that does not exist, as on a share that is not
    mounted.
    """
    case.create_topic()
    case.produce_ids([1, 2])
    folder = tmp_path / "share"
    case.start(iceberg__catalog__uri=f"jdbc:sqlite:{folder / 'catalog.db'}")
    case.await_log(str(folder))
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert case.offset() == 0
    case.lakehouse = Lakehouse(folder)
    case.assert_complete([1, 2])


def test_status_names_the_rest_catalog_that_refuses_connections(case: SinkCase) -> None:
    case.create_topic()
    case.produce_ids([1, 2])
    nobody = f"http://127.0.0.1:{free_port()}"
    elsewhere = {
        key: value for key, value in case.config().items() if not key.startswith("iceberg.catalog")
    }
    case.worker.put(
        case.name, {**elsewhere, "iceberg.catalog.type": "rest", "iceberg.catalog.uri": nobody}
    )
    case.await_log(f"Connect to {nobody}")
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert case.offset() == 0
    waiting = case.await_waiting()
    assert waiting["for"] == "coordinator"
    case.worker.wait_until(
        lambda: f"Connect to {nobody}" in (case.waiting() or waiting)["reason"],
        30,
        "the reason in the status",
    )
    assert datetime.fromisoformat(waiting["since"]) < datetime.now(UTC)
    labels = f'connector="{case.name}",for="coordinator",task="0"'
    case.worker.wait_until(
        lambda: (
            f"connect_py_waiting_seconds{{{labels}}}"
            in httpx.get(f"{case.worker.url}/metrics").text
        ),
        30,
        labels,
    )
    case.start()
    case.assert_complete([1, 2])
    case.worker.wait_until(lambda: case.waiting() is None, 30, "nothing to be waited for")


@pytest.mark.long
def test_task_fails_after_waiting_too_long_for_its_catalog(case: SinkCase) -> None:
    case.create_topic()
    nobody = f"http://127.0.0.1:{free_port()}"
    elsewhere = {
        key: value for key, value in case.config().items() if not key.startswith("iceberg.catalog")
    }
    more = {
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": nobody,
        "iceberg.ext.fail-after-waiting-ms": "8000",
    }
    case.worker.put(case.name, {**elsewhere, **more})
    trace = case.await_failure()
    assert (
        "timed out waiting for coordinator: iceberg.ext.fail-after-waiting-ms=8000 exceeded"
        in trace
    )
    assert case.waiting() is None, "a failed task waits for nothing"


@pytest.mark.long
def test_unavailable_schema_registry_shows_in_status_or_fails_the_task(case: SinkCase) -> None:
    case.create_topic()
    case.produce(b"\0\0\0\0\1x")
    nobody = f"http://127.0.0.1:{free_port()}"
    avro = {
        "value__converter": "io.confluent.connect.avro.AvroConverter",
        "value__converter__schema__registry__url": nobody,
    }
    case.start(**avro)
    waiting = case.await_waiting("schema registry")
    assert nobody in waiting["reason"]
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    case.start(**avro, iceberg__ext__fail_after_waiting_ms="5000")
    assert (
        "waited for schema registry longer than iceberg.ext.fail-after-waiting-ms=5000"
        in case.await_failure()
    )


@pytest.mark.long  # in every run: test_catalog_that_cannot_be_reached_is_waited_for
def test_rows_wait_while_the_named_warehouse_is_not_writable(
    case: SinkCase, tmp_path: Path
) -> None:
    """A file is in place of the warehouse's folder: not even root can write there."""
    case.create_topic()
    case.produce_ids([1, 2])
    blocked = tmp_path / "warehouse"
    blocked.write_text("in the way")
    case.start(
        iceberg__catalog__warehouse=f"file://{blocked}", iceberg__tables=f"blocked.{case.name[:9]}"
    )
    case.await_log(str(blocked))
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert case.offset() == 0
    blocked.unlink()
    case.await_caught_up()
    rows = case.lakehouse.rows(f"blocked.{case.name[:9]}")
    assert sorted(rows.column("id").to_pylist()) == [1, 2]


# --- dedicated workers


@pytest.fixture
def own_worker(
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    spark_environment: Mapping[str, str],
) -> Iterator[WorkerProcess]:
    process = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}g",
        environment=spark_environment,
    )
    try:
        yield process
    finally:
        process.close()


@pytest.mark.long
def test_worker_without_java_fails_only_the_iceberg_sink(
    own_worker: WorkerProcess, lakehouse: Lakehouse, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """A worker without Java immediately refuses a new connector; see `test_spark_drivers.py`."""
    case = SinkCase(own_worker, lakehouse, kafka_broker.bootstrap_servers, "without-java")
    case.create_topic()
    case.produce_ids([1, 2])
    own_worker.start()
    case.start()
    case.await_running()
    own_worker.stop()
    own_worker.environment["CONNECT_PY_JAVA"] = str(tmp_path / "no" / "java")
    own_worker.start()
    trace = case.await_failure()
    assert f"{tmp_path / 'no' / 'java'} could not be started" in trace
    assert own_worker.healthy()
    lines = tmp_path / "lines"
    own_worker.put(
        "lines",
        {
            "connector.class": "FileStreamSink",
            "topics": case.name,
            "file": str(lines),
            "key.converter": STRING,
            "value.converter": STRING,
        },
    )
    own_worker.wait_until(
        lambda: lines.exists() and len(lines.read_text().splitlines()) == 2, 30, "two lines"
    )


@pytest.mark.long
@pytest.mark.timeout(400)  # a dedicated broker that is stopped and restarted, and a Spark driver
def test_broker_that_goes_away_and_comes_back_costs_nothing(
    tmp_path: Path, lakehouse: Lakehouse, spark_environment: Mapping[str, str]
) -> None:
    with KafkaBroker(tmp_path / "kafka") as broker:
        worker = WorkerProcess(
            tmp_path / "worker", broker.bootstrap_servers, "g", environment=spark_environment
        )
        try:
            case = SinkCase(worker.start(), lakehouse, broker.bootstrap_servers, "broker-away")
            case.create_topic()
            case.produce_ids([1, 2])
            # The task is killed without leaving the group, which waits this long for its member.
            session = {"session__timeout__ms": "6000", "heartbeat__interval__ms": "1000"}
            case.start(**{f"consumer__override__{key}": value for key, value in session.items()})
            case.assert_complete([1, 2])
            broker.stop()
            case.await_log("lost membership in the group because no heartbeat arrived in time")
            broker.start()
            worker.wait_until(worker.healthy, 40, "the worker to be healthy again")
            case.produce_ids([3, 4])
            case.await_running()
            case.assert_complete([1, 2, 3, 4])
            assert worker.states(case.name) == ["RUNNING", "RUNNING"]
            lines = worker.log_path.read_text().splitlines()
            assert not [line for line in lines if line.startswith("%")], (
                "what a client says goes through the log"
            )
        finally:
            worker.close()
