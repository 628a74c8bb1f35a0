"""Values in the types of a table: conversions, refusals, and values that never change."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from iceberg_staging_rows import batch, record, table

from connect_py.api.batch import Column, column_of
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
from connect_py.columns.arrow import arrow_type, storage_type, to_array
from connect_py.java.civil_days import days_of
from connect_py.java.strings import double_text, float_text
from connectors.iceberg.config.sink_options import OutOfRange
from connectors.iceberg.conversion.column_names import HISTORY
from connectors.iceberg.conversion.kernel import ConversionOptions
from connectors.iceberg.conversion.row_converter import RowConverter
from connectors.iceberg.conversion.temporal import parse_timestamp
from connectors.iceberg.table.table import TableDescription

STRICT = ConversionOptions()
LENIENT = ConversionOptions(lenient=True)
NULLING = ConversionOptions(out_of_range=OutOfRange.NULL)
CLAMPING = ConversionOptions(out_of_range=OutOfRange.CLAMP)
DAY = 86_400_000_000
TENTH = 0.10000000149011612  # the 32-bit number
INNER_FLOATS = struct(("f", FLOAT32), ("d", FLOAT64))


def named(type_: Type, name: str) -> Schema:
    return Schema(type_, name=name, optional=True)


def plain(data: pa.Array) -> list[Any]:
    """Values as the integers, texts and bytes that they are."""
    if isinstance(data, pa.ExtensionArray):
        data = data.storage
    storage = storage_type(data.type)
    return list((data if storage == data.type else data.view(storage)).to_pylist())


def convert(
    target: Any,
    schema: Schema | None,
    values: list[Any],
    options: ConversionOptions = STRICT,
    **more: Any,
) -> tuple[list[Any], dict[int, str]]:
    """The values in a column `c` of this Iceberg type, and the reason for each row that does not
    fit."""
    if schema is None:
        column = column_of(None, [{"c": v} for v in values])
    else:
        row = struct(("c", schema))
        column = Column(row, to_array(row, [Struct(row, [v]) for v in values]))
    converter = RowConverter(
        table([("c", target)], **more), column.schema, column.data.type, options
    )
    made = converter.convert(column)
    (data,) = made.columns
    assert data.type == converter.arrow_schema.field(0).type
    data.validate(full=True)
    failed = {}
    for failure in made.failures:
        for row_number, bad in enumerate(failure.rows.to_pylist()):
            if bad:
                failed[row_number] = f"{failure.column}: {failure.reason}"
    return plain(data), failed


@pytest.mark.parametrize(
    ("target", "schema", "values", "expected"),
    [
        ("int", INT8, [-128, None], [-128, None]),
        ("int", INT64, [2**31 - 1], [2**31 - 1]),
        ("int", FLOAT64, [3.0], [3]),
        ("long", STRING, ["+7", "-9223372036854775808"], [7, -(2**63)]),
        ("long", decimal(2), [Decimal("12.00")], [12]),
        ("long", timestamp(), [5], [5]),
        ("int", date(), [5], [5]),
        ("double", INT32, [1], [1.0]),
        ("double", STRING, [" 1e3f ", "-Infinity"], [1000.0, float("-inf")]),
        (
            "double",
            STRING,
            ["+1", "-.5e1", "1.", "+Infinity", "1e-400"],
            [1.0, -5.0, 1.0, float("inf"), 0.0],
        ),
        (
            "float",
            STRING,
            ["1.00000005960464477539062500001", "-Infinity"],
            [1.0000001192092896, float("-inf")],
        ),
        ("float", FLOAT64, [1.5], [1.5]),
        ("double", decimal(1), [Decimal("1.5")], [1.5]),
        (
            "double",
            decimal(1),
            [Decimal("381258441726.3"), None, Decimal("-251324210.2")],
            [381258441726.3, None, -251324210.2],
        ),
        ("double", decimal(3), [Decimal("98765432109876543210.123")], [98765432109876543210.123]),
        ("double", decimal(-2), [Decimal("1.23E+5")], [123000.0]),
        ("float", decimal(1), [Decimal("945393.4"), Decimal("837123.4")], [945393.375, 837123.375]),
        ("float", decimal(29), [Decimal("1.00000005960464477539062500001")], [1.0000001192092896]),
        (
            "float",
            decimal(8),
            [Decimal("1.00000006"), Decimal("0.10000000")],
            [1.0000001192092896, 0.10000000149011612],
        ),
        ("float", INT32, [16_777_217], [16_777_216.0]),
        ("double", INT64, [2**53 + 1], [2.0**53]),
        ("decimal(10, 2)", decimal(3), [Decimal("1.250")], [Decimal("1.25")]),
        ("decimal(10, 2)", INT64, [5], [Decimal("5.00")]),
        ("decimal(10, 2)", FLOAT64, [0.1, 1e3], [Decimal("0.10"), Decimal("1000.00")]),
        ("decimal(10, 2)", STRING, ["1E+2"], [Decimal("100.00")]),
        (
            "decimal(38, 30)",
            STRING,
            ["12345678.25", None, "1e-30"],
            [Decimal("12345678.25"), None, Decimal("1e-30")],
        ),
        ("decimal(38, 37)", INT64, [9, None], [Decimal(9), None]),
        ("decimal(38, 37)", decimal(1), [Decimal("-9.9")], [Decimal("-9.9")]),
        ("boolean", STRING, ["TRUE", "false", None], [True, False, None]),
        ("string", INT64, [5], ["5"]),
        ("string", BOOLEAN, [True], ["true"]),
        ("string", FLOAT64, [1e10, 0.001, 1.0], ["1.0E10", "0.001", "1.0"]),
        ("string", FLOAT32, [1.100000023841858], ["1.1"]),
        ("string", decimal(2), [Decimal("1.50")], ["1.50"]),
        ("string", array(INT32), [[1, 2]], ["[1,2]"]),
        ("string", map_of(STRING, INT32), [{"a": 1}], ['{"a":1}']),
        ("string", map_of(BOOLEAN, INT32), [{True: 1}], ['{"true":1}']),
        ("string", map_of(FLOAT32, FLOAT32), [{TENTH: TENTH}], ['{"0.1":0.1}']),
        (
            "string",
            array(FLOAT32),
            [[TENTH, 16_777_216.0, float("nan")]],
            ['[0.1,16777216.0,"NaN"]'],
        ),
        (
            "string",
            INNER_FLOATS,
            [Struct(INNER_FLOATS, [TENTH, TENTH])],
            ['{"f":0.1,"d":0.10000000149011612}'],
        ),
        ("string", array(decimal(0)), [[Decimal(10**37 + 1)]], ['["B4XuENXaRtkA9DagAAAAAQ=="]']),
        ("uuid", STRING, ["00000000-0000-0000-0000-00000000000A", None], [bytes(15) + b"\n", None]),
        ("binary", STRING, ["AQI=", None], [b"\x01\x02", None]),
        ("fixed[2]", BYTES, [b"ab"], [b"ab"]),
        ("date", INT32, [19_000], [19_000]),
        ("date", STRING, ["1970-01-02", None], [1, None]),
        (
            "date",
            named(Type.STRING, "io.debezium.time.IsoDate"),
            ["2017-09-15Z"],
            [days_of(2017, 9, 15)],
        ),
        ("date", named(Type.INT32, "io.debezium.time.Date"), [-2_440_550], [-2_440_550]),
        ("date", timestamp(), [86_400_000, -1], [1, -1]),
        ("time", INT32, [1], [1000]),
        ("time", time(), [1], [1000]),
        ("time", named(Type.INT64, "io.debezium.time.MicroTime"), [5], [5]),
        ("time", named(Type.INT64, "io.debezium.time.NanoTime"), [5999], [5]),
        ("time", STRING, ["00:00:01.5", "10:15"], [1_500_000, 36_900_000_000]),
        ("timestamptz", INT64, [1], [1000]),
        ("timestamptz", timestamp(), [-1], [-1000]),
        ("timestamp", named(Type.INT64, "io.debezium.time.Timestamp"), [1], [1000]),
        ("timestamp", named(Type.INT64, "io.debezium.time.MicroTimestamp"), [7], [7]),
        ("timestamp", named(Type.INT64, "io.debezium.time.NanoTimestamp"), [-1], [-1]),
        (
            "timestamptz",
            Schema(Type.INT64, parameters={"logicalType": "timestamp-micros"}),
            [9],
            [9],
        ),
        ("timestamp", named(Type.INT32, "io.debezium.time.Date"), [1], [DAY]),
        (
            "timestamptz",
            STRING,
            ["1970-01-01T00:00:01.5Z", "1970-01-01T01:00:00+01:00"],
            [1_500_000, 0],
        ),
        (
            "timestamptz",
            STRING,
            ["1970-01-01 00:00", "1970-01-01T00:00:00.1234567-0100"],
            [0, 3_600_123_456],
        ),
        ("timestamp", STRING, ["1970-01-01T10:00:00+02:00"], [36_000_000_000]),
        (
            "timestamp",
            named(Type.INT64, "io.debezium.time.NanoTimestamp"),
            [-(2**63), -(2**63) + 808, -1000, None],
            [-9223372036854776, -9223372036854775, -1, None],
        ),
        (
            "date",
            named(Type.INT64, "io.debezium.time.NanoTimestamp"),
            [-(2**63), 2**63 - 1],
            [-106_752, 106_751],
        ),
        ("timestamp_ns", named(Type.INT64, "io.debezium.time.NanoTimestamp"), [1], [1]),
        ("timestamp_ns", INT64, [1], [1_000_000]),
        (
            "timestamp_ns",
            STRING,
            ["1970-01-01T00:00:00.123456789", None, "1969-12-31 23:59:59.9999999", "1970-01-01T00"],
            [123_456_789, None, -100, 0],
        ),
        (
            "timestamptz_ns",
            STRING,
            ["1970-01-01T00:00:00.000000001+01:00", "1970-01-01T00:00:00.1Z"],
            [1 - 3_600_000_000_000, 100_000_000],
        ),
        (
            "timestamptz",
            STRING,
            ["1970-01-01T18:00:00+18:00", "1970-01-01T00:00:00-1800"],
            [0, 64_800_000_000],
        ),
    ],
)
def test_fitting_values_are_converted_to_the_column_type(
    target: str, schema: Schema, values: list[Any], expected: list[Any]
) -> None:
    assert convert(target, schema, values) == (expected, {})


@pytest.mark.parametrize(
    ("target", "schema", "value", "reason"),
    [
        ("int", INT64, 3_000_000_000, "does not fit column type int"),
        ("int", FLOAT64, 1.9, "not an integer"),
        ("long", FLOAT64, 1e19, "not an integer that fits"),
        ("long", FLOAT64, float("nan"), "not an integer"),
        ("int", STRING, " 1", "not an integer"),
        ("int", STRING, "1.0", "not an integer"),
        ("int", STRING, "3000000000", "does not fit column type int"),
        ("int", BOOLEAN, True, "do not fit column type int"),
        ("double", BOOLEAN, True, "do not fit column type double"),
        ("double", STRING, "1_0", "not a number"),
        ("float", FLOAT64, 1e300, "does not fit column type float"),
        ("float", STRING, "1e39", "does not fit column type float"),
        ("double", STRING, "-1e400", "does not fit column type double"),
        (
            "float",
            decimal(0, parameters={"scale": "0", "connect.decimal.precision": "60"}),
            Decimal(10**50),
            "does not fit column type float",
        ),
        (
            "decimal(4, 2)",
            decimal(3),
            Decimal("1.255"),
            "more than 2 digits after the decimal point",
        ),
        ("decimal(4, 2)", INT64, 100, "more digits than decimal(4, 2)"),
        ("decimal(4, 2)", STRING, "abc", "not a decimal number"),
        ("decimal(4, 2)", FLOAT64, float("inf"), "not a decimal number"),
        (
            "decimal(38, 22)",
            decimal(4),
            Decimal("8883753949273323871.2600"),
            "more digits than decimal(38, 22)",
        ),
        ("decimal(38, 37)", INT64, 143, "more digits than decimal(38, 37)"),
        ("decimal(38, 10)", STRING, "3.4e38", "more digits than decimal(38, 10)"),
        ("decimal(38, 10)", FLOAT64, 3.4e38, "more digits than decimal(38, 10)"),
        ("decimal(38, 30)", STRING, "123456789.25", "more digits than decimal(38, 30)"),
        ("decimal(28, 5)", STRING, "8300e-44", "more than 5 digits after the decimal point"),
        ("boolean", STRING, "yes", "neither true nor false"),
        ("boolean", INT32, 1, "do not fit column type boolean"),
        ("string", BYTES, b"x", "do not fit column type string"),
        ("string", date(), 1, "do not fit column type string"),
        ("uuid", STRING, "1-1-1-1-1", "not a UUID"),
        ("binary", STRING, "a_-=", "not valid Base64"),
        ("fixed[3]", BYTES, b"ab", "not 3 bytes long"),
        ("date", STRING, "20200101", "expected yyyy-MM-dd"),
        ("date", STRING, "2021-02-29", "invalid day"),
        ("time", INT64, 86_400_000, "out of range"),
        ("time", named(Type.INT64, "io.debezium.time.MicroTime"), 86_400_000_000, "out of range"),
        ("time", timestamp(), 1, "do not fit column type time"),
        ("timestamptz", STRING, "2020-01-01", "expected yyyy-MM-ddTHH:mm:ss"),
        ("timestamptz", STRING, "2020-01-01T00:00:00 Europe/Paris", "expected an offset"),
        ("timestamptz", STRING, "2020-01-01T00:00:00+19:00", "expected an offset"),
        ("timestamptz", STRING, "2020-01-01T00:00:00-18:01", "expected an offset"),
        ("timestamp", STRING, "2020-01-01T00:00:00+18:00:01", "expected an offset"),
        ("timestamp_ns", STRING, "2020-01-01T00:00:00.123456789+23", "expected an offset"),
        ("timestamp_ns", STRING, "2263-01-01T00:00:00.123456789", "out of range"),
        ("timestamp_ns", STRING, "2263-01-01T00:00:00", "out of range"),
        (
            "timestamp",
            named(Type.INT64, "io.debezium.time.MicroTimestamp"),
            2**63 - 1,
            "out of range",
        ),
        ("timestamp", timestamp(), 9223372036825200000, "out of range"),
        (
            "timestamptz",
            named(Type.STRING, "io.debezium.time.ZonedTimestamp"),
            "infinity",
            "out of range",
        ),
        ("timestamp", named(Type.INT64, "io.debezium.time.MicroDuration"), 1, "do not fit"),
        ("date", named(Type.INT32, "io.debezium.time.Date"), 2_146_033_979, "out of range"),
        (
            "date",
            named(Type.INT64, "io.debezium.time.MicroTimestamp"),
            -(2**63) + 1,
            "out of range",
        ),
        ("date", named(Type.INT32, "io.debezium.time.Year"), 2020, "do not fit"),
    ],
)
def test_values_that_do_not_fit_fail_only_their_rows(
    target: str, schema: Schema, value: Any, reason: str
) -> None:
    made, failed = convert(target, schema, [None, value])
    assert made == [None, None]
    assert list(failed) == [1]
    assert failed[1].startswith("c: ")
    assert reason in failed[1]
    # contents stay out of messages
    assert str(value) not in failed[1].removeprefix("c: ") or len(str(value)) < 5


@pytest.mark.parametrize(
    ("target", "schema", "values", "expected"),
    [
        ("int", INT64, [3_000_000_000], [3_000_000_000 - 2**32]),
        ("int", FLOAT64, [1.9, -1.9, None, float("nan")], [1, -1, None, 0]),
        (
            "int",
            FLOAT64,
            [1e10, float("-inf"), 2.0**31, -(2.0**31) - 0.5],
            [2**31 - 1, -(2**31), 2**31 - 1, -(2**31)],
        ),
        (
            "long",
            FLOAT64,
            [None, 1e19, -1e19, 2.0**63, 2.0**62],
            [None, 2**63 - 1, -(2**63), 2**63 - 1, 2**62],
        ),
        ("long", FLOAT32, [None, float("nan"), float("inf"), 1.5], [None, 0, 2**63 - 1, 1]),
        ("decimal(10, 2)", decimal(3), [Decimal("1.255")], [Decimal("1.26")]),
        ("boolean", STRING, ["yes"], [False]),
        ("float", STRING, ["1e39", "-1e400"], [float("inf"), float("-inf")]),
        ("int", decimal(1), [Decimal("1.9")], [1]),
    ],
)
def test_lenient_conversion_loses_what_java_loses(
    target: str, schema: Schema, values: list[Any], expected: list[Any]
) -> None:
    assert convert(target, schema, values, LENIENT) == (expected, {})


def test_out_of_range_timestamps_become_null_or_clamped_as_configured() -> None:
    micro = named(Type.INT64, "io.debezium.time.MicroTimestamp")
    ends = [-(2**63), 5, 2**63 - 1]
    assert convert("timestamp", micro, ends, NULLING) == ([None, 5, None], {})
    first, last = (
        parse_timestamp("0001-01-01T00:00:00", zoned=True),
        parse_timestamp("9999-12-31T23:59:59.999999", zoned=True),
    )
    assert convert("timestamp", micro, ends, CLAMPING) == ([first, 5, last], {})
    zoned = named(Type.STRING, "io.debezium.time.ZonedTimestamp")
    assert convert("timestamptz", zoned, ["-infinity", "infinity"], CLAMPING) == ([first, last], {})
    ends = [-(2**63 // 1000) * 1000, 2**63 // 1000 * 1000]  # nanoseconds: the years 1677 and 2262
    assert convert("timestamptz_ns", zoned, ["-infinity", "infinity"], CLAMPING) == (ends, {})
    texts = ["0001-01-01T00:00:00.000000001Z", "9999-12-31T00:00:00.000000001Z"]
    assert convert("timestamptz_ns", zoned, texts, CLAMPING) == (ends, {})
    midnight = named(Type.INT64, "io.debezium.time.MicroTime")
    assert convert("time", midnight, [DAY], CLAMPING) == ([DAY - 1], {})
    assert convert("date", named(Type.INT32, "io.debezium.time.Date"), [-622_191_234], NULLING) == (
        [None],
        {},
    )


def test_years_that_no_datetime_can_hold_are_kept() -> None:
    zoned = named(Type.STRING, "io.debezium.time.ZonedTimestamp")
    texts = ["+20000-01-01T00:00:00Z", "-0043-03-15T00:00:00Z", "2020-02-29T12:00:00.000001Z"]
    made, failed = convert("timestamptz", zoned, texts)
    assert failed == {}
    assert made == [
        days_of(20000, 1, 1) * DAY,
        days_of(-43, 3, 15) * DAY,
        days_of(2020, 2, 29) * DAY + DAY // 2 + 1,
    ]


def test_variable_scale_decimals_fit_decimals_and_strings() -> None:
    schema = struct(
        ("scale", INT32), ("value", BYTES), name="io.debezium.data.VariableScaleDecimal"
    )
    values = [
        Struct.of(schema, scale=2, value=b"\x01\x00"),
        Struct.of(schema, scale=0, value=b"\xff"),
    ]
    assert convert("decimal(38, 4)", schema, values) == (
        [Decimal("2.5600"), Decimal("-1.0000")],
        {},
    )
    assert convert("string", schema, values) == (["2.56", "-1"], {})
    long = Struct.of(schema, scale=0, value=b"\x7f" * 20)
    assert list(convert("decimal(38, 4)", schema, [values[0], long])[1]) == [1]


def test_schemaless_values_fit_the_types_of_a_table_made_beforehand() -> None:
    assert convert("timestamptz", None, [1_000, None]) == ([1_000_000, None], {})
    assert convert("date", None, [3]) == ([3], {})
    assert convert("decimal(10, 2)", None, ["1.25"]) == ([Decimal("1.25")], {})
    assert convert("binary", None, [base64.b64encode(b"xyz").decode()]) == ([b"xyz"], {})
    assert convert("double", None, [1]) == ([1.0], {})
    assert convert("string", None, [{"b": [{"c": None}]}]) == (['{"b":[{"c":null}]}'], {})
    assert convert("string", None, [{"a": 1}, {"b": 2}]) == (['{"a":1}', '{"b":2}'], {})
    assert convert("long", None, [None, None]) == ([None, None], {})


NESTED = {
    "type": "struct",
    "fields": [
        {"id": 10, "name": "a", "required": True, "type": "int"},
        {"id": 11, "name": "b", "required": False, "type": "string"},
    ],
}
LIST = {"type": "list", "element-id": 20, "element-required": True, "element": NESTED}
MAP = {
    "type": "map",
    "key-id": 30,
    "key": "string",
    "value-id": 31,
    "value": "long",
    "value-required": False,
}


def test_structs_lists_and_maps_are_rebuilt_with_table_fields() -> None:
    inner = struct(("extra", INT32), ("a", INT64))
    values = [[Struct.of(inner, extra=1, a=2), Struct.of(inner, extra=3, a=4)], [], None]
    assert convert(LIST, array(inner, optional=True), values) == (
        [[{"a": 2, "b": None}, {"a": 4, "b": None}], [], None],
        {},
    )
    assert convert(MAP, map_of(STRING, INT32, optional=True), [{"x": 1, "y": 2}, {}, None]) == (
        [[("x", 1), ("y", 2)], [], None],
        {},
    )
    assert convert(NESTED, map_of(STRING, INT32), [{"a": 5}]) == ([{"a": 5, "b": None}], {})


def test_a_map_becomes_a_struct_by_its_keys() -> None:
    target = {
        "type": "struct",
        "fields": [{"id": 10, "name": "a", "required": False, "type": "long"}],
    }
    assert convert(target, map_of(STRING, INT32), [{"a": 5}, {"z": 1}]) == (
        [{"a": 5}, {"a": None}],
        {},
    )


def with_write_defaults(
    columns: list[tuple[str, Any]], defaults: dict[str, Any], **more: Any
) -> TableDescription:
    made = table(columns, **more)
    schema = json.loads(made.schema)
    for field in schema["fields"]:
        if field["name"] in defaults:
            field["write-default"] = defaults[field["name"]]
    return replace(made, schema=json.dumps(schema))


@pytest.mark.parametrize("required", [[], ["c"]])
def test_schemaless_row_without_a_member_gets_its_write_default(
    required: list[str],
) -> None:
    text = "00000000-0000-0000-0000-00000000000a"
    inner = {
        "type": "struct",
        "fields": [
            {"id": 10, "name": "x", "required": False, "type": "long"},
            {"id": 11, "name": "y", "required": False, "type": "long", "write-default": 9},
        ],
    }
    columns = [("a", "long"), ("c", "long"), ("u", "uuid"), ("s", inner)]
    description = with_write_defaults(columns, {"c": 7, "u": text}, required=required)
    lone = {"a": 1, "s": {"x": 1}}
    for rows in (
        [lone],
        [lone, {"a": 2, "c": 5, "u": text[:-1] + "b", "s": {"x": 2, "y": 3}}, {"c": 1, "s": None}],
    ):
        column = column_of(None, rows)
        made = RowConverter(description, None, column.data.type, STRICT).convert(column)
        assert made.failures == []
        assert [plain(c)[0] for c in made.columns] == [1, 7, bytes(15) + b"\n", {"x": 1, "y": 9}]
    assert [plain(c)[1:] for c in made.columns] == [
        [2, None],
        [5, 1],
        [bytes(15) + b"\x0b", bytes(15) + b"\n"],
        [{"x": 2, "y": 3}, None],
    ]


def test_former_column_name_in_schemaless_row_prevents_the_write_default() -> None:
    former = {HISTORY: '{"names":{"2":["old"]}}'}
    description = with_write_defaults(
        [("a", "long"), ("new", "long")], {"new": 7}, properties=former
    )
    column = column_of(None, [{"old": 1}, {"new": 2}, {"a": 3}, {"old": None}])
    made = RowConverter(description, None, column.data.type, STRICT).convert(column)
    assert made.columns[1].to_pylist() == [1, 2, 7, None]


def test_write_defaults_of_binary_columns_are_parsed_as_hexadecimal() -> None:
    columns = [("a", "long"), ("b", "binary"), ("f", "fixed[2]"), ("w", "fixed[2]")]
    description = with_write_defaults(columns, {"b": "00FF", "f": "0a0b", "w": "0a"})
    column = column_of(None, [{"a": 1}])
    made = RowConverter(description, None, column.data.type, STRICT).convert(column)
    assert [c.to_pylist() for c in made.columns] == [[1], [b"\x00\xff"], [b"\n\x0b"], [None]]


def test_a_schemaless_null_is_not_the_write_default() -> None:
    column = column_of(None, [{"a": 1}, {"a": 2, "c": None}])
    description = with_write_defaults([("a", "long"), ("c", "long")], {"c": 7})
    made = RowConverter(description, None, column.data.type, STRICT).convert(column)
    assert made.columns[1].to_pylist() == [7, None]


def test_schemaless_object_fills_a_map_with_its_present_members() -> None:
    made, failed = convert(MAP, None, [{"x": 1}, {"y": None}, {}, None])
    assert failed == {}
    assert made == [[("x", 1)], [("y", None)], [], None]


def test_structs_never_fit_map_columns_and_lists_never_fit_structs() -> None:
    row = struct(("a", INT32))
    assert 0 in convert(MAP, row, [Struct.of(row, a=1)])[1]
    assert 0 in convert(NESTED, array(INT32), [[1]])[1]


def test_values_inside_containers_fail_the_row_that_holds_them() -> None:
    inner = struct(("a", Schema(Type.INT64, optional=True)))
    values = [
        [Struct.of(inner, a=1)],
        [],
        [Struct.of(inner, a=2), Struct.of(inner, a=2**40)],
        [Struct(inner)],
    ]
    made, failed = convert(LIST, array(inner), values)
    assert failed == {
        2: "c.element.a: does not fit column type int",
        3: "c.element.a: null, but the column is required",
    }
    assert made[0] == [{"a": 1, "b": None}]


def test_values_below_a_null_struct_do_not_fail() -> None:
    inner = struct(("a", INT64), optional=True)
    data = pa.StructArray.from_arrays(
        [
            pa.StructArray.from_arrays(
                [pa.array([2**40, 1])], names=["a"], mask=pa.array([True, False])
            )
        ],
        names=["c"],
    )
    row = struct(("c", inner))
    made = RowConverter(table([("c", NESTED)]), row, data.type, STRICT).convert(Column(row, data))
    assert made.failures == []
    assert made.columns[0].to_pylist() == [None, {"a": 1, "b": None}]


def test_slice_of_a_column_converts_like_the_whole_column() -> None:
    inner = array(struct(("a", INT32)))
    row = struct(("c", inner), ("m", map_of(STRING, INT64)), ("s", STRING))
    values = [
        Struct(row, [[Struct(inner.value_schema, [i])] * i, {str(i): i}, f"{i}"]) for i in range(6)
    ]
    target = table([("c", LIST), ("m", MAP), ("s", "long")])
    whole = to_array(row, values)
    converter = RowConverter(target, row, arrow_type(row), STRICT)
    expected = [c.slice(2, 3).to_pylist() for c in converter.convert(Column(row, whole)).columns]
    assert [
        c.to_pylist() for c in converter.convert(Column(row, whole.slice(2, 3))).columns
    ] == expected


def test_required_column_without_a_value_fails_except_for_tombstones() -> None:
    row = struct(("c", Schema(Type.INT64, optional=True)), optional=True)
    column = Column(row, to_array(row, [Struct(row, [1]), Struct(row, [None]), None]))
    made = RowConverter(
        table([("c", "long")], required=["c"]), row, column.data.type, STRICT
    ).convert(column)
    (failure,) = made.failures
    assert failure.rows.to_pylist() == [False, True, False]
    missing = RowConverter(
        table([("c", "long"), ("d", "int")], required=["d"]), row, column.data.type, STRICT
    ).convert(column)
    assert [(f.column, f.rows.to_pylist()) for f in missing.failures] == [
        ("d", [True, True, False])
    ]


def test_columns_are_found_by_name_mapping_or_without_case() -> None:
    mapping = {"schema.name-mapping.default": '[{"field-id":1,"names":["renamed","C"]}]'}
    row = struct(("C", INT64))
    column = Column(row, to_array(row, [Struct(row, [1])]))
    for target, options in (
        (table([("c", "long")], properties=mapping), STRICT),
        (table([("c", "long")]), ConversionOptions(case_insensitive=True)),
    ):
        assert RowConverter(target, row, column.data.type, options).convert(column).columns[
            0
        ].to_pylist() == [1]
    lost = RowConverter(table([("c", "long")]), row, column.data.type, STRICT).convert(column)
    assert lost.columns[0].to_pylist() == [None]


def test_columns_that_fit_are_passed_on_without_a_copy() -> None:
    row = struct(("c", INT64), ("s", STRING))
    data = to_array(row, [Struct(row, [i, "x"]) for i in range(10)])
    made = RowConverter(table([("c", "long"), ("s", "string")]), row, data.type, STRICT).convert(
        Column(row, data)
    )
    for index, column in enumerate(made.columns):
        assert column.buffers()[-1].address == data.field(index).buffers()[-1].address


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (-0.0, "-0.0"),
        (123456789.125, "1.23456789125E8"),
        (1e21, "1.0E21"),
        (100.0, "100.0"),
    ],
)
def test_floating_point_numbers_print_the_same_as_in_java(value: float, text: str) -> None:
    assert double_text(value) == text
    assert float_text(1.5) == "1.5"


def test_a_null_stays_null_though_its_field_has_a_default() -> None:
    row = struct(("n", Schema(Type.INT32, optional=True, default=7)))
    rows = batch([record(Struct(row, [None]), 0), record(Struct(row, [1]), 1)])
    made = RowConverter(
        table([("n", "int")]), row, rows.value.data.type, ConversionOptions()
    ).convert(rows.value)
    assert made.columns[0].to_pylist() == [None, 1]
