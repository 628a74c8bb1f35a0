"""Records that no table could hold, on a running worker: each is a dead letter, and those around it
arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bad_input import case, lakehouse, worker
from sink_case import SinkCase

from connect_py.api.schema import MAX_NESTING

__all__ = ["case", "lakehouse", "worker"]  # fixtures

pytestmark = pytest.mark.timeout(400)  # a task with a Spark driver that starts on a busy machine

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def tolerant(case: SinkCase) -> dict[str, str]:
    return {
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": case.dead_letters,
        "errors__deadletterqueue__topic__replication__factor": "1",
        "errors__deadletterqueue__context__headers__enable": "true",
    }


def enveloped(id_: int, amount: Any, **parameters: str) -> bytes:
    """A message with its schema: an id, and a decimal of these parameters."""
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {
            "field": "amount",
            "type": "bytes",
            "optional": True,
            "name": DECIMAL,
            "parameters": parameters,
        },
    ]
    schema = {"type": "struct", "fields": fields}
    return json.dumps({"schema": schema, "payload": {"id": id_, "amount": amount}}).encode()


def test_decimals_of_an_absurd_scale_or_exponent_are_dead_letters(case: SinkCase) -> None:
    case.create_topic()
    exponent = enveloped(6, "?", scale="2").replace(b'"?"', b"1e-999999999")
    case.produce(
        enveloped(1, "AQ==", scale="2"),
        enveloped(2, "AQ==", scale="2000000000"),
        enveloped(3, None, scale="-2000000000"),
        enveloped(4, "AQ==", scale="6000"),
        enveloped(5, "AQ==", **{"scale": "2", "connect.decimal.precision": "many"}),
        exponent,
        enveloped(7, "AQ==", scale="2"),
    )
    case.start(value__converter__schemas__enable="true", **tolerant(case))
    case.assert_complete([1, 7])
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert len(case.read_dead_letters(5)) == 5


def nested(id_: int, levels: int) -> bytes:
    """A record with so many objects one in another."""
    return f'{{"id":{id_},"d":'.encode() + b'{"a":' * (levels - 1) + b"1" + b"}" * levels


@pytest.mark.long  # in every run: test_task_trace_names_the_too_deeply_nested_record
def test_deeply_nested_records_are_dead_letters_with_or_without_table(case: SinkCase) -> None:
    case.create_topic()
    deep = [nested(1, 80), nested(2, 501), nested(3, 999)]
    case.produce(*deep[:2], nested(4, 40))
    case.start(**tolerant(case), iceberg__tables__evolve_schema_enabled="true")
    case.assert_complete([4])
    case.produce(deep[2], {"id": 5})
    case.assert_complete([4, 5])
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert [m.value() for m in case.read_dead_letters(3)] == deep


def test_task_trace_names_the_too_deeply_nested_record(case: SinkCase) -> None:
    case.create_topic()
    case.produce({"id": 1}, nested(2, 80))
    case.start()
    trace = case.await_failure()
    assert f"topic '{case.name}' partition 0 at offset 1" in trace
    assert f"nesting depth exceeds the maximum allowed ({MAX_NESTING})" in trace


@pytest.mark.long  # in every run: test_columns_that_a_table_cannot_get_make_dead_letters
def test_records_without_a_possible_table_schema_are_dead_letters(case: SinkCase) -> None:
    case.create_topic()
    refused: list[bytes] = [
        b"17",
        b'"text"',
        b"[1]",
        b'{"": 1}',
        b'{"a.b": 1, "a": {"b": 2}}',
        b'{"x": {"": 1}}',
        b"{}",
    ]
    case.produce(*refused)
    case.start(**tolerant(case))
    case.worker.wait_until(
        lambda: case.offset() == len(refused), 60, "the records to be passed over"
    )
    case.produce({"id": 1, "a": {"b": 1}}, b"null")
    case.assert_complete([1])
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert [m.value() for m in case.read_dead_letters(len(refused))] == refused


def test_columns_that_a_table_cannot_get_make_dead_letters(case: SinkCase) -> None:
    case.create_topic()
    case.produce({"id": 1, "a": {"b": 1}})
    case.start(**tolerant(case), iceberg__tables__evolve_schema_enabled="true")
    case.await_caught_up()
    case.produce(
        {"id": 2, "a.b": 2},
        {"id": 3, "": 3},
        {"id": 4, "a": {"": 4}},
        {"id": 5, "a": {"b": 5}, "more": 1},
    )
    case.assert_complete([1, 5])
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert len(case.read_dead_letters(3)) == 3


def test_columns_in_brackets_are_the_key_and_the_partitions(case: SinkCase) -> None:
    case.create_topic()
    case.produce({"id": 1, "v": 1}, {"id": 1, "v": 2})
    case.start(
        iceberg__tables__upsert_mode_enabled="true",
        iceberg__tables__default_id_columns="[id]",
        iceberg__tables__default_partition_by="[bucket(id, 4)]",
    )
    case.assert_complete([1])
    table = case.lakehouse.table(case.table)
    assert table is not None
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]


def typed(id_: int, **members: tuple[str, Any]) -> bytes:
    """A message with its schema; each member is a type and a value, and required."""
    given = {"id": ("int64", id_), **members}
    fields = [
        {"field": name, "type": type_, "optional": False} for name, (type_, _) in given.items()
    ]
    payload = {name: value for name, (_, value) in given.items()}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


def test_required_column_becomes_optional_when_its_field_disappears_or_changes(
    case: SinkCase,
) -> None:
    case.create_topic()
    case.produce(
        typed(1, c=("int32", 1), gone=("string", "x")),
        typed(2, c=("int32", 2), gone=("string", "y")),
    )
    case.start(
        value__converter__schemas__enable="true",
        iceberg__tables__evolve_schema_enabled="true",
        iceberg__ext__evolution__incompatible="apply",
    )
    case.assert_complete([1, 2])
    table = case.lakehouse.table(case.table)
    assert table is not None
    assert all(field.required for field in table.schema().fields)
    case.produce(typed(3, c=("int32", 3)), typed(4, c=("string", "four")), typed(5, c=("int32", 5)))
    case.assert_complete([1, 2, 3, 4, 5])
    rows = sorted(case.lakehouse.rows(case.table).to_pylist(), key=lambda row: row["id"])
    assert [row["gone"] for row in rows] == ["x", "y", None, None, None]
    assert [row["c"] for row in rows] == [1, 2, 3, None, 5]
    assert [row["c_v2"] for row in rows] == [None, None, None, "four", None]
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
