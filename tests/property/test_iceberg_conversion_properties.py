"""Staging on generated rows: columns give what rows alone give, and merging gives what a dictionary gives."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_staging_rows import ORDERS_0, read, record, stager, table

from connect_py.api.arrow import storage_type, to_array
from connect_py.api.batch import Batch, Column
from connect_py.api.java_text import double_text
from connect_py.api.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    Schema,
    Struct,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from connectors.iceberg.config import OutOfRange
from connectors.iceberg.staging.conversion import RowConverter
from connectors.iceberg.staging.kernels.kernel import ConversionOptions

TEXTS = st.one_of(
    st.text(max_size=6),
    st.sampled_from([
        "1", "-5", "+7", "1.5", "1e3", "NaN", "true", "FALSE", "AQI=", "2020-02-29", "2021-02-29", "10:15",
        "24:00:00", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.123+01:00", "infinity", "-0043-03-15T00:00:00Z",
        "00000000-0000-0000-0000-00000000000a", "9223372036854775808",
    ]),
)  # fmt: skip
INT64S = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 90_000_000))
SOURCES: dict[str, tuple[Schema, st.SearchStrategy[Any]]] = {
    "int8": (INT8, st.integers(-128, 127)),
    "int32": (INT32, st.integers(-(2**31), 2**31 - 1)),
    "int64": (INT64, INT64S),
    "float": (FLOAT32, st.floats(width=32)),
    "double": (FLOAT64, st.floats()),
    "boolean": (BOOLEAN, st.booleans()),
    "string": (STRING, TEXTS),
    "bytes": (BYTES, st.binary(max_size=4)),
    "decimal": (decimal(3), st.decimals(-(10**9), 10**9, places=3)),
    "date": (date(), st.integers(-(2**31), 2**31 - 1)),
    "time": (time(), st.integers(0, 86_400_000)),
    "timestamp": (timestamp(), INT64S),
    "micros": (Schema(Type.INT64, name="io.debezium.time.MicroTimestamp"), INT64S),
    "nanotime": (Schema(Type.INT64, name="io.debezium.time.NanoTime"), INT64S),
    "list": (array(Schema(Type.INT64, optional=True)), st.lists(st.none() | INT64S, max_size=3)),
    "map": (map_of(STRING, INT64), st.dictionaries(st.text(max_size=2), INT64S, max_size=3)),
}
TARGETS: list[Any] = [
    "int", "long", "float", "double", "decimal(9, 2)", "boolean", "string", "uuid", "binary", "fixed[2]", "date",
    "time", "timestamp", "timestamptz", "timestamp_ns",
    {"type": "list", "element-id": 2, "element-required": False, "element": "int"},
    {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "int", "value-required": False},
]  # fmt: skip
OPTIONS = [
    ConversionOptions(),
    ConversionOptions(lenient=True),
    ConversionOptions(out_of_range=OutOfRange.NULL),
    ConversionOptions(out_of_range=OutOfRange.CLAMP),
]


def outcome(converter: RowConverter, column: Column) -> tuple[list[str], set[tuple[int, str]]]:
    """Values as text (NaN equals itself), and (row, column) of each failure."""
    made = converter.convert(column)
    (data,) = made.columns
    data.validate(full=True)
    if isinstance(data, pa.ExtensionArray):
        data = data.storage
    if pa.types.is_temporal(data.type):
        data = data.view(storage_type(data.type))
    failed = {
        (row, failure.column)
        for failure in made.failures
        for row, bad in enumerate(failure.rows.to_pylist())
        if bad
    }  # fmt: skip
    return [repr(v) for v in data.to_pylist()], failed


@settings(max_examples=400, deadline=None)
@given(st.data(), st.sampled_from(sorted(SOURCES)), st.sampled_from(TARGETS), st.sampled_from(OPTIONS))
def test_a_column_converts_as_its_rows_do_alone(
    data: st.DataObject, source: str, target: Any, options: ConversionOptions
) -> None:
    schema, values = SOURCES[source]
    row = struct(("c", schema.replace(optional=True)))
    given_values = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    whole = to_array(row, [Struct(row, [v]) for v in given_values])
    converter = RowConverter(table([("c", target)]), row, whole.type, options)
    texts, failed = outcome(converter, Column(row, whole))
    for at in range(len(whole)):
        alone, failed_alone = outcome(converter, Column(row, whole.slice(at, 1)))
        if (0, "c") not in failed_alone and not failed_alone:
            assert alone == [texts[at]]
        assert {(at, column) for _, column in failed_alone} == {f for f in failed if f[0] == at}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(["c", "u", "d", "tombstone"]), st.sampled_from(["x", "y", None, "?"])
        ),
        max_size=20,
    ),
    st.integers(1, 7),
    st.sampled_from([1 << 30, 1]),
)
def test_merging_leaves_the_last_change_of_each_key(
    events: list[tuple[int, str, str | None]], cut: int, memory: int
) -> None:
    gone = "__debezium_unavailable_value"
    row = struct(("id", INT64), ("v", Schema(Type.STRING, optional=True)), ("__op", STRING))
    key = struct(("id", INT64))
    rows, expected = [], {}
    for offset, (id_, op, v) in enumerate(events):
        if op == "tombstone":
            rows.append(record(None, offset, key=Struct(key, [id_])))
        else:
            text = gone if v == "?" else v
            rows.append(record(Struct(row, [id_, text, op]), offset, key=Struct(key, [id_])))
        if op in ("d", "tombstone"):
            expected[id_] = ("deletes", None)
        elif v == "?":
            before = expected.get(id_)
            expected[id_] = before if before is not None and before[0] == "rows" else ("patches", None)
        else:
            expected[id_] = ("rows", v)
    with tempfile.TemporaryDirectory() as folder:
        columns = [("id", "long"), ("v", "string")]
        made = stager(table(columns, keys=["id"], folder=Path(folder)), memory=memory, tables__cdc_field="__op")
        for at in range(0, len(rows), cut):
            for one in Batch.of(rows[at : at + cut]):
                made.add(made.prepare(one))
        files = made.close_cycle(1, ORDERS_0)
        found = {
            r["id"]: (kind, r.get("v")) for kind in ("rows", "patches", "deletes") for r in read(files, kind)
        }  # fmt: skip
        assert sum(f.rows for f in files) == len(found)
        made.discard()
    assert found == expected


@given(st.lists(st.floats() | st.integers(-(10**8), 10**8).map(lambda n: n / 1000), min_size=1))
def test_doubles_become_the_text_that_java_prints(values: list[float]) -> None:
    row = struct(("c", FLOAT64))
    column = Column(row, to_array(row, [Struct(row, [v]) for v in values]))
    made = RowConverter(table([("c", "string")]), row, column.data.type, ConversionOptions()).convert(column)
    assert made.columns[0].to_pylist() == [double_text(v) for v in values]


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**20), max_value=10**20))
def test_a_decimal_is_never_rounded_silently(value: Decimal) -> None:
    row = struct(("c", decimal(5)))
    column = Column(row, to_array(row, [Struct(row, [value])]))
    made = RowConverter(table([("c", "decimal(18, 2)")]), row, column.data.type, ConversionOptions()).convert(column)
    if not made.failures:
        assert made.columns[0].to_pylist() == [value]
