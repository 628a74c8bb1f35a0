"""Bad records: each error identifies its record, and no record is lost or duplicated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from bad_input import case, lakehouse, worker
from confluent_kafka import Message
from lakehouse import Lakehouse
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType
from schema_registry_stub import Stub, schema_registry
from sink_case import SinkCase

__all__ = ["case", "lakehouse", "worker"]  # fixtures

# two runs of a task, each with a Spark driver that starts on a busy machine
pytestmark = pytest.mark.timeout(400)

AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
KNOWN_ID, UNKNOWN_ID = 1, 9999
TOLERANT = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": "1",
    "errors.deadletterqueue.context.headers.enable": "true",
}


@pytest.fixture
def registry() -> Iterator[Stub]:
    schema = {"schema": json.dumps(AVRO), "subjects": [{"subject": "s", "version": 1}]}
    with schema_registry({KNOWN_ID: schema}) as stub:
        yield stub


def error_headers(message: Message) -> dict[str, str]:
    headers = message.headers() or []
    return {
        key.removeprefix("__connect.errors."): value.decode()
        for key, value in headers
        if key.startswith("__connect.errors.")
    }


def avro(number: int, schema_id: int = KNOWN_ID) -> bytes:
    # a small int is one zig-zag byte
    return b"\x00" + schema_id.to_bytes(4, "big") + bytes([2 * number])


def test_invalid_json_record_fails_the_task_and_stays_uncommitted(case: SinkCase) -> None:
    case.create_topic()
    case.produce({"id": 1}, {"id": 2}, b"{ not json", {"id": 4})
    case.start()
    trace = case.await_failure()
    assert "Tolerance exceeded in error handler" in trace
    assert f"topic '{case.name}' partition 0 at offset 2" in trace
    assert "Converting byte[] to Kafka Connect data failed due to serialization error" in trace
    assert case.offset() <= 2
    assert set(case.ids()) <= {1, 2}
    case.start(errors__deadletterqueue__topic__name=case.dead_letters, **tolerant())
    case.await_running()
    case.assert_complete([1, 2, 4])
    (bad,) = case.read_dead_letters(1)
    assert (bad.key(), bad.value()) == (b"key", b"{ not json")


def tolerant() -> dict[str, str]:
    return {key.replace(".", "__"): value for key, value in TOLERANT.items()}


def test_tolerated_bad_records_become_dead_letters_with_connect_error_headers(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    case.create_topic()
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "name", StringType(), required=False),
    )
    lakehouse.catalog.create_table(case.table, schema)
    case.produce(
        {"id": 0},
        b"\xff",
        {"id": 2, "name": "two"},
        {"id": "three"},
        {"id": 4},
        {"id": 1 << 40},
        {"id": 6},
    )
    case.start(errors__deadletterqueue__topic__name=case.dead_letters, **tolerant())
    case.assert_complete([0, 2, 4, 6])
    letters = {int(error_headers(m)["offset"]): m for m in case.read_dead_letters(3)}
    assert set(letters) == {1, 3, 5}
    for offset, message in letters.items():
        headers = error_headers(message)
        assert headers["topic"] == case.name
        assert headers["partition"] == "0"
        assert headers["connector.name"] == case.name
        assert headers["task.id"] == "0"
        assert headers["exception.stacktrace"]
        assert headers["stage"] == ("VALUE_CONVERTER" if offset == 1 else "TASK_PUT")
    assert error_headers(letters[1])["class.name"] == "org.apache.kafka.connect.json.JsonConverter"
    assert (
        error_headers(letters[1])["exception.class.name"]
        == "org.apache.kafka.connect.errors.DataException"
    )
    assert letters[3].value() == b'{"id": "three"}'
    assert "id" in error_headers(letters[3])["exception.message"]
    assert (
        "1099511627776" in error_headers(letters[5])["exception.message"]
        or letters[5].value() is not None
    )


@pytest.mark.long  # in every run: test_invalid_json_record_fails_the_task_and_stays_uncommitted
def test_value_of_wrong_type_fails_the_task_naming_its_column(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    case.create_topic()
    lakehouse.catalog.create_table(
        case.table, Schema(NestedField(1, "id", IntegerType(), required=True))
    )
    case.produce({"id": 1}, {"id": "two"}, {"id": 3})
    case.start()
    trace = case.await_failure()
    assert (
        f"topic '{case.name}' partition 0 at offset 1: table {case.table}, column id: is" in trace
    )
    assert case.offset() <= 1
    case.start(errors__deadletterqueue__topic__name=case.dead_letters, **tolerant())
    case.await_running()
    case.assert_complete([1, 3])
    case.read_dead_letters(1)


def test_unknown_schema_id_fails_the_task_until_it_is_registered(
    case: SinkCase, registry: Stub
) -> None:
    case.create_topic()
    case.produce(avro(1), avro(2, UNKNOWN_ID), avro(3))
    case.start(**avro_config(registry))
    trace = case.await_failure()
    assert f"topic '{case.name}' partition 0 at offset 1" in trace
    assert str(UNKNOWN_ID) in trace
    assert case.offset() <= 1
    registry.schemas[UNKNOWN_ID] = registry.schemas[KNOWN_ID]
    case.restart_task()
    case.await_running()
    case.assert_complete([1, 2, 3])


def avro_config(registry: Stub) -> dict[str, str]:
    return {
        "value__converter": "io.confluent.connect.avro.AvroConverter",
        "value__converter__schema__registry__url": registry.url,
    }


def test_registry_that_is_down_is_waited_for(case: SinkCase, registry: Stub) -> None:
    case.create_topic()
    registry.down = 503
    case.produce(avro(1), avro(2))
    case.start(**avro_config(registry))
    case.await_log("the schema registry responded with 503")
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert case.offset() == 0
    registry.down = None
    case.assert_complete([1, 2])
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]


@pytest.mark.long  # in every run: test_invalid_json_record_fails_the_task_and_stays_uncommitted
def test_null_in_merge_key_fails_the_task_naming_the_record(case: SinkCase) -> None:
    case.create_topic()
    merge = {
        "iceberg__tables__upsert_mode_enabled": "true",
        "iceberg__tables__default_id_columns": "id",
    }
    case.produce({"id": 1, "v": "a"}, {"id": None, "v": "b"}, {"id": 3, "v": "c"})
    case.start(**merge)
    trace = case.await_failure()
    assert f"topic '{case.name}' partition 0 at offset 1: " in trace
    assert case.offset() <= 1
    case.start(**merge, iceberg__ext__null_key="skip")
    case.await_running()
    case.assert_complete([1, 3])


def rows_of(case: SinkCase) -> list[dict[str, Any]]:
    return sorted(case.lakehouse.rows(case.table).to_pylist(), key=lambda row: row["id"])


def test_missing_column_is_left_out_unless_schema_evolution_is_enabled(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    case.create_topic()
    lakehouse.catalog.create_table(
        case.table, Schema(NestedField(1, "id", IntegerType(), required=False))
    )
    case.produce({"id": 1, "more": "x"})
    case.start()
    case.assert_complete([1])
    assert rows_of(case) == [{"id": 1}]
    case.stop()
    case.start(iceberg__tables__evolve_schema_enabled="true")
    case.produce({"id": 2, "more": "y"})
    case.resume()
    case.assert_complete([1, 2])
    assert rows_of(case) == [{"id": 1, "more": None}, {"id": 2, "more": "y"}]
