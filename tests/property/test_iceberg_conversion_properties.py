"""Staging of generated rows: columns equal rows, and merging equals a dictionary."""

from __future__ import annotations

import tempfile
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_conversion_oracle import REFUSED, expected
from iceberg_staging_rows import ORDERS_0, changes, read, record, stager, table

from connect_py.api.batch import Batch, Column
from connect_py.api.record import SinkRecord
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
from connect_py.columns.arrow import storage_type, to_array
from connect_py.java.strings import double_text
from connectors.iceberg.config.sink_options import OutOfRange
from connectors.iceberg.conversion.kernel import ConversionOptions
from connectors.iceberg.conversion.row_converter import RowConverter
from connectors.iceberg.staging.staged_changes import CHANGE

NUMBER_TEXTS = st.one_of(
    st.decimals(-(10**39), 10**39, allow_nan=False).map(str),
    st.floats().map(repr),
    st.from_regex(r"[+-]?[0-9]{0,20}\.?[0-9]{1,20}([eE][+-]?[0-9]{1,2})?", fullmatch=True),
)
MOMENT_TEXTS = st.builds(
    "{}-{:02}-{:02}{}{}{}".format,
    st.sampled_from(
        ["0001", "1677", "1970", "2024", "2262", "9999", "+20000", "-0043", "-290000", "+300000"]
    ),
    st.integers(0, 13),
    st.integers(1, 31),
    st.sampled_from(["T", " ", "T", "t"]),
    st.sampled_from(
        [
            "00",
            "23:59",
            "24:00",
            "10:11:12",
            "23:59:59.9",
            "00:00:60",
            "10:11:12.123456",
            "01:02:03.987654321",
        ]
    ),
    st.sampled_from(
        ["", "Z", "Z", "+01:00", "-0530", "+18", "-18:00", "+18:01", "-23:00", "+05:30:15"]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=6),
    NUMBER_TEXTS,
    MOMENT_TEXTS,
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        [
            "1",
            "-5",
            "+7",
            "1.5",
            "1e3",
            "NaN",
            "true",
            "FALSE",
            "AQI=",
            "2020-02-29",
            "2021-02-29",
            "10:15",
            "24:00:00",
            "2020-01-01T00:00:00Z",
            "2020-01-01T00:00:00.123+01:00",
            "infinity",
            "-0043-03-15T00:00:00Z",
            "00000000-0000-0000-0000-00000000000a",
            "9223372036854775808",
            "3.4e38",
            "1e39",
            "-1e400",
            "8300e-44",
        ]
    ),
)
INT64S = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 90_000_000),
    st.integers(-(2**63), -(2**63) + 999),
)
DOUBLES = st.one_of(
    st.floats(),
    st.integers(-(2**70), 2**70).map(float),
    st.integers(-(10**9), 10**9).map(lambda n: n / 100),
)


def decimals(digits: int, scale: int) -> tuple[Schema, st.SearchStrategy[Decimal]]:
    """A schema of this precision and scale, and its values: of few digits as often as of many."""
    context = Context(prec=100)
    numbers = st.integers(1, digits).flatmap(lambda n: st.integers(-(10**n) + 1, 10**n - 1))
    return (
        decimal(scale, parameters={"scale": str(scale), "connect.decimal.precision": str(digits)}),
        numbers.map(lambda n: Decimal(n).scaleb(-scale, context)),
    )


SOURCES: dict[str, tuple[Schema, st.SearchStrategy[Any]]] = {
    "int8": (INT8, st.integers(-128, 127)),
    "int32": (INT32, st.integers(-(2**31), 2**31 - 1)),
    "int64": (INT64, INT64S),
    "float": (FLOAT32, st.floats(width=32)),
    "double": (FLOAT64, DOUBLES),
    "boolean": (BOOLEAN, st.booleans()),
    "string": (STRING, TEXTS),
    "bytes": (BYTES, st.binary(max_size=4)),
    "decimal(12, 3)": decimals(12, 3),
    "decimal(38, 4)": decimals(38, 4),
    "decimal(38, 29)": decimals(38, 29),
    "decimal(60, 20)": decimals(60, 20),
    "decimal(76, 76)": decimals(76, 76),
    "decimal(20, -18)": decimals(20, -18),
    "date": (date(), st.integers(-(2**31), 2**31 - 1)),
    "time": (time(), st.integers(0, 86_400_000)),
    "timestamp": (timestamp(), INT64S),
    "micros": (Schema(Type.INT64, name="io.debezium.time.MicroTimestamp"), INT64S),
    "nanos": (Schema(Type.INT64, name="io.debezium.time.NanoTimestamp"), INT64S),
    "nanotime": (Schema(Type.INT64, name="io.debezium.time.NanoTime"), INT64S),
    "list": (array(Schema(Type.INT64, optional=True)), st.lists(st.none() | INT64S, max_size=3)),
    "map": (map_of(STRING, INT64), st.dictionaries(st.text(max_size=2), INT64S, max_size=3)),
}
TARGETS: list[Any] = [
    "int",
    "long",
    "float",
    "double",
    "decimal(9, 2)",
    "decimal(38, 0)",
    "decimal(38, 10)",
    "decimal(38, 22)",
    "decimal(38, 37)",
    "boolean",
    "string",
    "uuid",
    "binary",
    "fixed[2]",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    {"type": "list", "element-id": 2, "element-required": False, "element": "int"},
    {
        "type": "map",
        "key-id": 2,
        "key": "string",
        "value-id": 3,
        "value": "int",
        "value-required": False,
    },
]
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
    }
    return [repr(v) for v in data.to_pylist()], failed


def check_column(data: st.DataObject, source: str, target: Any, options: ConversionOptions) -> None:
    """Convert a column at once and row by row; both must give what plain Python says."""
    schema, values = SOURCES[source]
    schema = schema.replace(optional=True)
    row = struct(("c", schema))
    given_values = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    whole = to_array(row, [Struct(row, [v]) for v in given_values])
    converter = RowConverter(table([("c", target)]), row, whole.type, options)
    wanted = [expected(schema, value, target, options) for value in given_values]
    refused = {at for at, value in enumerate(wanted) if value is REFUSED}
    texts, failed = outcome(converter, Column(row, whole))
    assert {at for at, _ in failed} == refused, given_values
    for at, value in enumerate(wanted):
        alone, failed_alone = outcome(converter, Column(row, whole.slice(at, 1)))
        assert bool(failed_alone) == (at in refused), given_values[at]
        if at not in refused:
            assert (texts[at], alone) == (repr(value), [repr(value)]), given_values[at]


COLUMNS = (
    st.data(),
    st.sampled_from(sorted(SOURCES)),
    st.sampled_from(TARGETS),
    st.sampled_from(OPTIONS),
)


@settings(max_examples=220, deadline=None)
@given(*COLUMNS)
def test_column_conversion_equals_row_conversion_and_plain_python(
    data: st.DataObject, source: str, target: Any, options: ConversionOptions
) -> None:
    check_column(data, source, target, options)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=2_000, deadline=None)
@given(*COLUMNS)
def test_many_columns_convert_as_plain_python_does(
    data: st.DataObject, source: str, target: Any, options: ConversionOptions
) -> None:
    check_column(data, source, target, options)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["c", "u", "d", "tombstone"]),
            st.sampled_from(["x", "y", None, "?"]),
        ),
        max_size=20,
    ),
    st.integers(1, 7),
    st.sampled_from([1 << 30, 1]),
)
def test_merging_leaves_the_last_change_of_each_key(
    events: list[tuple[int, str, str | None]], cut: int, memory: int
) -> None:
    gone, unsent = "__debezium_unavailable_value", ("?", False)
    row = struct(("id", INT64), ("v", Schema(Type.STRING, optional=True)), ("__op", STRING))
    key = struct(("id", INT64))
    rows: list[SinkRecord] = []
    history: dict[
        int, list[tuple[str | None, bool]]
    ] = {}  # by id: value, and whether it is a delete
    for offset, (id_, op, v) in enumerate(events):
        if op == "tombstone":
            rows.append(record(None, offset, key=Struct(key, [id_])))
        else:
            rows.append(
                record(
                    Struct(row, [id_, gone if v == "?" else v, op]), offset, key=Struct(key, [id_])
                )
            )
        history.setdefault(id_, []).append((None, True) if op in ("d", "tombstone") else (v, False))
    lasts = {id_: each[-1] for id_, each in history.items()}
    # the earlier changes of a row that lacks a value, and the last one where it is the one that
    # lacks it
    completed = [
        (
            id_,
            None if change == unsent else change[0],
            change[1],
            change == unsent and at == len(each),
        )
        for id_, each in history.items()
        if unsent in each
        for at, change in enumerate(each, 1)
        if at < len(each) or change == unsent
    ]
    if unsent not in lasts.values():
        completed = []
    with tempfile.TemporaryDirectory() as folder:
        columns = [("id", "long"), ("v", "string")]
        made = stager(
            table(columns, keys=["id"], folder=Path(folder)),
            memory=memory,
            tables__cdc_field="__op",
        )
        for at in range(0, len(rows), cut):
            for one in Batch.of(rows[at : at + cut]):
                made.add(made.prepare(one))
        files = made.close_cycle(1, ORDERS_0)
        assert sum(f.rows for f in files) == sum(
            len(read(files, kind)) for kind in ("rows", "deletes", "changes")
        )
        upserts = {r["id"]: r["v"] for r in read(files)}
        deletes = {r["id"] for r in read(files, "deletes")}
        staged = changes(files, "id", "v", CHANGE, "partial")
        made.discard()
    assert upserts == {id_: v for id_, (v, deleted) in lasts.items() if not deleted and v != "?"}
    assert deletes == {id_ for id_, (_, deleted) in lasts.items() if deleted}
    found = [(id_, None if is_delete else v, is_delete, last) for id_, v, is_delete, last in staged]
    assert sorted(found, key=lambda each: each[0]) == sorted(completed, key=lambda each: each[0])


@given(st.lists(st.floats() | st.integers(-(10**8), 10**8).map(lambda n: n / 1000), min_size=1))
def test_doubles_become_the_text_that_java_prints(values: list[float]) -> None:
    row = struct(("c", FLOAT64))
    column = Column(row, to_array(row, [Struct(row, [v]) for v in values]))
    made = RowConverter(
        table([("c", "string")]), row, column.data.type, ConversionOptions()
    ).convert(column)
    assert made.columns[0].to_pylist() == [double_text(v) for v in values]
