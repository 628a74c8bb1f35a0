"""Columns that only transformations create: nulls with a schema, and incomplete rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transforms_chain import configured
from transforms_records import check_batch

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows
from connect_py.api.record import SinkRecord
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    array,
    decimal,
    map_of,
    struct,
)
from connect_py.columns.arrow import arrow_type
from connect_py.testing import sink_record

FEW = settings(max_examples=30, deadline=None)
KAFKA = "org.apache.kafka.connect.transforms."
DEBEZIUM = "io.debezium.transforms."
ROW = struct(("id", INT32), ("v", OPTIONAL_STRING), name="s.t.Value", optional=True)
ENVELOPE = struct(
    ("before", ROW), ("after", ROW), ("op", STRING), ("ts_ms", INT64), name="s.t.Envelope"
)
ROWLESS = struct(("after", ROW), ("op", STRING), name="s.t.Envelope", optional=True)


def event(op: str, offset: int) -> SinkRecord:
    row = Struct(ROW, [offset, "x"])
    images = [row, None] if op == "d" else [None, row]
    return sink_record(
        value=Struct(ENVELOPE, [*images, op, 1]), value_schema=ENVELOPE, offset=offset
    )


def unwrapped(ops: str, **options: str) -> Batch:
    """Rows of events; a delete is a null with its row's schema."""
    transformation = configured({"type": f"{DEBEZIUM}ExtractNewRecordState", **options})
    (batch,) = Batch.of([event(op, offset) for offset, op in enumerate(ops)])
    (made,) = transformation.apply_batch(batch)
    return made


@FEW
@given(st.text("cd", min_size=1, max_size=4), st.sampled_from(["v", "id", "__op", "nosuch"]))
def test_null_continues_under_the_schema_of_the_extracted_field(ops: str, field: str) -> None:
    check_batch(
        {"type": f"{KAFKA}ExtractField$Value", "field": field},
        unwrapped(ops, **{"add.fields": "op"}),
    )


def test_null_whose_schema_lacks_the_field_is_a_bad_row() -> None:
    transformation = configured({"type": f"{KAFKA}ExtractField$Value", "field": "__op"})
    with pytest.raises(BadRows) as bad:
        transformation.apply_batch(unwrapped("cdc", **{"add.fields": "op"}))
    assert {row: str(error) for row, error in bad.value.errors.items()} == {
        1: "Unknown field: __op"
    }
    [batch] = bad.value.results or []
    assert batch.value.data.to_pylist() == ["c", "c"]


INNER = struct(("a", INT32), ("b", OPTIONAL_STRING))
SHAPES: list[tuple[Schema, Any, Any]] = [
    (INNER, {"a": 1, "b": None}, {"a": None, "b": "x"}),
    (struct(("i", INNER.replace(optional=True))), {"i": None}, {"i": {"a": None, "b": None}}),
    (array(INNER), [{"a": 1, "b": None}], [{"a": 1, "b": None}, {"a": None, "b": None}]),
    (array(INT32), [1, 2], [1, None]),
    (array(Schema(INT32.type, optional=True)), [1, None], []),
    (map_of(STRING, INT32), [("k", 1)], [("k", None)]),
]


@FEW
@given(st.sampled_from(SHAPES))
def test_rows_that_are_not_complete_cannot_be_hoisted(shape: tuple[Schema, Any, Any]) -> None:
    schema, good, bad = shape
    hoist = {"type": f"{KAFKA}HoistField$Value", "field": "f"}
    (batch,) = Batch.of(
        [sink_record(value=None, value_schema=None, offset=offset) for offset in range(4)]
    )
    data = pa.array([good, bad, good, bad], arrow_type(schema))
    check_batch(hoist, batch.replace(value=Column(schema, data)))
    data = pa.array([None, good, bad, bad], arrow_type(schema))[1:3]
    check_batch(hoist, batch.slice(0, 2).replace(value=Column(schema.replace(optional=True), data)))


@FEW
@given(st.integers(0, 2), st.integers(1, 3))
def test_events_without_a_before_field_are_bad_rows(start: int, length: int) -> None:
    changed = {"type": f"{DEBEZIUM}ExtractChangedRecordState", "header.changed.name": "h"}
    values = [Struct(ROWLESS, [Struct(ROW, [1, "x"]), "u"]), None, Struct(ROWLESS, [None, "d"])]
    (batch,) = Batch.of(
        [
            sink_record(value=value, value_schema=ROWLESS, offset=offset)
            for offset, value in enumerate(values)
        ]
    )
    check_batch(changed, batch.slice(start, min(start + length, 3)))
    with pytest.raises(BadRows) as bad:
        configured(changed).apply_batch(batch)
    assert list(bad.value.errors) == [0, 2]


NUMBER = decimal(-2, optional=True, default=Decimal("3E+2"))
MONEY = struct(
    ("id", INT32),
    ("n", NUMBER),
    ("plain", decimal(-2, optional=True)),
    name="s.t.Value",
    optional=True,
)
MONEY_EVENT = struct(("before", MONEY), ("after", MONEY), ("op", STRING), name="s.t.Envelope")
AMOUNTS = st.sampled_from([None, Decimal("1E+2"), Decimal("-9E+2"), Decimal("1E+2")])
MONEY_ROWS = st.builds(
    lambda *values: Struct(MONEY, list(values)), st.integers(0, 2), AMOUNTS, AMOUNTS
)


@FEW
@given(
    st.lists(st.tuples(st.none() | MONEY_ROWS, MONEY_ROWS), min_size=1, max_size=6),
    st.sampled_from(
        [
            {
                "type": f"{DEBEZIUM}ExtractChangedRecordState",
                "header.changed.name": "h",
                "header.unchanged.name": "u",
            },
            {"type": f"{KAFKA}ExtractField$Value", "field": "after"},
            {"type": f"{KAFKA}HoistField$Value", "field": "f"},
        ]
    ),
)
def test_decimals_of_negative_scale_stay_columns_in_events(
    images: list[tuple[Struct | None, Struct]], props: dict[str, str]
) -> None:
    rows = [Struct(MONEY_EVENT, [*pair, "u"]) for pair in images]
    stays_columnar(
        props,
        [sink_record(value=r, value_schema=MONEY_EVENT, offset=n) for n, r in enumerate(rows)],
    )


@FEW
@given(
    st.lists(st.none() | MONEY_ROWS, min_size=1, max_size=6),
    st.sampled_from(
        [
            {"type": f"{KAFKA}ExtractField$Value", "field": "n"},
            {"type": f"{KAFKA}ReplaceField$Value", "exclude": "id"},
            {"type": f"{KAFKA}InsertField$Value", "topic.field": "t"},
            {"type": f"{KAFKA}SetSchemaMetadata$Value", "schema.name": "another"},
            {"type": f"{KAFKA}Flatten$Value"},
        ]
    ),
)
def test_decimals_of_negative_scale_stay_columns_in_rows(
    rows: list[Struct | None], props: dict[str, str]
) -> None:
    stays_columnar(
        props, [sink_record(value=r, value_schema=MONEY, offset=n) for n, r in enumerate(rows)]
    )


def stays_columnar(props: dict[str, str], records: list[SinkRecord]) -> None:
    (batch,) = Batch.of(records)
    check_batch(props, batch)
    configured(props).apply_batch(batch)  # raises nothing
