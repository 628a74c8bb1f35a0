"""Batches of rows, and rows of batches."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from fixtures.converter_rows import same

from connect_py.api.batch import Batch, schemaless_column
from connect_py.api.errors import NotColumnar
from connect_py.api.record import RecordOrigin, SinkRecord
from connect_py.api.schema import (
    INT32,
    OPTIONAL_STRING,
    STRING,
    Struct,
    array,
    decimal,
    map_of,
    struct,
    timestamp,
)
from connect_py.columns import arrow

ROW = struct(
    ("a", OPTIONAL_STRING),
    ("l", array(INT32)),
    ("m", map_of(STRING, INT32)),
    ("d", decimal(2)),
    ("t", timestamp()),
)


def record(offset: int, **sides: object) -> SinkRecord:
    rest = {"key_schema": None, "key": None, "value_schema": None, "value": None, **sides}
    return SinkRecord("t", 0, timestamp=5, origin=RecordOrigin("t", 0, offset), **rest)  # type: ignore[arg-type]


def test_rows_become_batches_and_the_same_rows_again() -> None:
    value = Struct(ROW, ["x", [1, 2], {"k": 1}, Decimal("-1.25"), 1 << 40])
    rows = [
        record(0, value_schema=ROW, value=value),
        record(1),
        record(2, value={"a": 1}),
        record(3, value={"b": None}),
        record(4, value_schema=ROW, value=value),
    ]
    batches = Batch.of(rows)
    assert [len(b) for b in batches] == [2, 2, 1]  # a tombstone joins either side
    again = [r for b in batches for r in b.records()]
    assert again == rows
    assert all(same(a.value, b.value) for a, b in zip(again, rows, strict=True))


def test_a_list_of_mixed_types_is_no_column() -> None:
    with pytest.raises(NotColumnar):
        Batch.of([record(0, value=[1, "x"])])


def test_decimal_array_keeps_sign_and_scale_and_refuses_excess_digits() -> None:
    made = arrow.decimal_array(decimal(2), [b"\xff", None, b"\x01\x00"])
    assert made.to_pylist() == [Decimal("-0.01"), None, Decimal("2.56")]
    with pytest.raises(NotColumnar):
        arrow.decimal_array(decimal(0), [b"\x7f" * 17])


def test_rows_that_are_there_are_spread_over_all_rows() -> None:
    assert pa.array([7, 8]).take(arrow.spread_indices([False, True, False, True])).to_pylist() == [
        None,
        7,
        None,
        8,
    ]


def test_member_column_is_null_with_its_struct_and_marks_gaps() -> None:
    column = schemaless_column([{"a": {"x": 1}}, None, {"a": {}}, {}, {"a": None}])
    inner = column.member("a")
    assert inner is not None
    assert inner.is_null() is not None
    assert inner.data.to_pylist() == [{"x": 1}, None, {"x": None}, None, None]
    assert inner.missing is not None
    assert inner.missing.to_pylist() == [False, False, False, True, False]
    leaf = inner.member("x")
    assert leaf is not None
    assert leaf.missing is not None
    assert leaf.missing.to_pylist() == [False, False, True, False, False]
    assert column.member("b") is None
    assert leaf.member("a") is None


def test_mixed_rows_of_two_columns_keep_members_of_only_one() -> None:
    own = schemaless_column(
        [{"a": 1, "in": {"x": 1}}, {"a": 2, "in": {"x": 2}}, None, {"a": 4, "in": None}]
    )
    other = schemaless_column([{"b": "p"}, {"b": "q", "in": {"y": 3}}, {"b": "r"}, {}])
    mixed = own.mixed(other, pa.array([False, True, True, False]))
    values = [
        {"a": 1, "in": {"x": 1}},
        {"b": "q", "in": {"y": 3}},
        {"b": "r"},
        {"a": 4, "in": None},
    ]
    assert [row.value for row in mixed.rows()] == values
    kept = own.mixed(
        other, pa.array([False, True, True, False]), pa.array([False, True, False, True])
    )
    assert [row.value for row in kept.rows()] == [values[1], values[3]]


def test_rows_do_not_mix_where_a_member_changes_its_type() -> None:
    own, other = schemaless_column([{"a": 1}] * 2), schemaless_column([{"a": "x"}] * 2)
    with pytest.raises(NotColumnar):
        own.mixed(other, pa.array([True, False]))
