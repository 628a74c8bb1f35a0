"""JSON change events that are transformed before their columns are built: rows equal the row
forms'.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixtures.converter_rows import same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
from transforms_chain import configured

from connect_py.api.batch import Batch, Origin
from connect_py.api.errors import BadRows, NotColumnar
from connect_py.api.record import RecordOrigin, SinkRecord, TimestampType
from connect_py.converters.json.json_converter import JsonConverter

ICEBERG = {"type": "org.apache.iceberg.connect.transforms.DebeziumTransform"}
DEBEZIUM = {"type": "io.debezium.transforms.ExtractNewRecordState"}
MODES = ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]

FIELDS: list[tuple[str, dict[str, Any], st.SearchStrategy[Any]]] = [
    ("id", {"type": "int64"}, st.integers(0, 5)),
    ("name", {"type": "string", "optional": True}, st.sampled_from(["a", "b", None])),
    (
        "price",
        {"type": "double", "optional": True, "default": 1.5},
        st.sampled_from([0.5, 2.0, None]),
    ),
    (
        "day",
        {"type": "int32", "optional": True, "name": "org.apache.kafka.connect.data.Date"},
        st.integers(0, 9),
    ),
]
ROW = {
    "type": "struct",
    "optional": True,
    "name": "Value",
    "fields": [{"field": n, **s} for n, s, _ in FIELDS],
}
TEXT, LONG = {"type": "string", "optional": True}, {"type": "int64", "optional": True}
SOURCE = {"type": "struct", "fields": [{"field": n, **TEXT} for n in ("db", "schema", "table")]}
ENVELOPE = {
    "type": "struct",
    "name": "s.t.Envelope",
    "fields": [
        {"field": "before", **ROW},
        {"field": "after", **ROW},
        {"field": "source", **SOURCE},
        {"field": "op", "type": "string"},
        {"field": "ts_ms", **LONG},
    ],
}

rows = st.fixed_dictionaries({name: values for name, _, values in FIELDS})
odd_rows = rows | st.fixed_dictionaries(
    {"id": st.integers(0, 5)},
    optional={
        "name": st.sampled_from(["a", 7, None]),
        "price": st.sampled_from([1, 0.5, None]),
        "inside": st.fixed_dictionaries({}, optional={"x": st.integers(0, 2), "y": st.just("z")}),
    },
)


def events(row: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    source = {
        "db": st.just("d"),
        "schema": st.sampled_from(["s", "s", "other"]),
        "table": st.just("t"),
    }
    return st.fixed_dictionaries(
        {
            "before": st.none() | row,
            "after": st.none() | row,
            "source": st.fixed_dictionaries(source),
            "op": st.sampled_from("cudrt"),
            "ts_ms": st.integers(0, 9),
        }
    )


def polls(row: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any] | None]]:
    return st.lists(st.none() | events(row) | events(row) | events(row), min_size=1, max_size=12)


def converted(
    values: list[Any], *, schema: dict[str, Any] | None
) -> tuple[list[SinkRecord], list[Batch]]:
    """The rows and the batches of these messages."""
    made = [
        None if v is None else json.dumps(v if schema is None else {"schema": schema, "payload": v})
        for v in values
    ]
    data = [None if text is None else text.encode() for text in made]
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false" if schema is None else "true"}, is_key=False)
    keys = JsonConverter()
    keys.configure({"schemas.enable": "false"}, is_key=True)
    records = [
        SinkRecord(
            "t",
            0,
            None,
            {"id": i},
            value.schema,
            value.value,
            i,
            origin=RecordOrigin("t", 0, i, b"k", m),
        )
        for i, (m, value) in enumerate((m, converter.to_connect("t", m)) for m in data)
    ]
    (key,) = keys.to_batch("t", [b'{"id":%d}' % i for i in range(len(data))])
    batches = []
    for run in converter.to_batch("t", data):
        assert not run.failures
        places = range(run.start, run.stop)
        kept = data[run.start : run.stop]
        origin = Origin(
            "t",
            pa.array([0] * len(kept), pa.int32()),
            pa.array(places, pa.int64()),
            TimestampType.CREATE_TIME,
            [b"k"] * len(kept),
            kept,
        )
        timestamps = pa.array(places, pa.int64())
        batches.append(
            Batch("t", key.column.slice(run.start, run.stop), run.column, timestamps, None, origin)
        )
    return records, batches


def assert_rows_are_those_of_the_row_form(
    props: dict[str, str], values: list[Any], *, schema: dict[str, Any] | None
) -> None:
    transformation = configured(props)
    try:
        records, batches = converted(values, schema=schema)
    except NotColumnar:
        return
    for batch in batches:
        ours = records[batch.origin.offsets[0].as_py() : batch.origin.offsets[-1].as_py() + 1]
        try:
            made = [
                record for part in transformation.apply_batch(batch) for record in part.records()
            ]
        except NotColumnar:  # continues with rows, which must still exist
            assert all(same(a.value, b.value) for a, b in zip(batch.records(), ours, strict=True))
            continue
        except BadRows as bad:
            for index, record in enumerate(ours):
                if index in bad.errors:
                    with pytest.raises(type(bad.errors[index])):
                        transformation.apply(record)
                else:
                    transformation.apply(record)
            continue
        expected = [record for record in map(transformation.apply, ours) if record is not None]
        assert len(made) == len(expected)
        for one, other in zip(made, expected, strict=True):
            assert one.value_schema == other.value_schema
            assert same(one.value, other.value), (one.value, other.value)
            assert (one.kafka_offset, one.topic, one.headers) == (
                other.kafka_offset,
                other.topic,
                other.headers,
            )


SETTINGS = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@given(polls(odd_rows))
@SETTINGS
def test_events_without_schema_give_the_rows_of_the_row_form(values: list[Any]) -> None:
    assert_rows_are_those_of_the_row_form(ICEBERG, values, schema=None)


@given(polls(rows), st.sampled_from(MODES), st.sampled_from(["", "op,source.table", "ts_ms"]))
@SETTINGS
def test_events_with_schema_give_the_rows_of_the_row_form(
    values: list[Any], mode: str, added: str
) -> None:
    props = {
        **DEBEZIUM,
        "delete.tombstone.handling.mode": mode,
        "add.fields": added,
        "add.headers": added,
    }
    assert_rows_are_those_of_the_row_form(props, values, schema=ENVELOPE)
    assert_rows_are_those_of_the_row_form(ICEBERG, values, schema=ENVELOPE)
