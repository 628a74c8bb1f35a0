"""Converters of strings, byte arrays, primitives, and headers."""

from __future__ import annotations

import importlib
from decimal import Decimal

import pytest
from fixtures.converter_rows import by_columns, by_reference, same

from connect_py.api.errors import ConfigError, DataError
from connect_py.api.schema import (
    BOOLEAN,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaAndValue,
    Struct,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from connect_py.converters import PLUGINS
from connect_py.converters.simple_converters import (
    BooleanConverter,
    ByteArrayConverter,
    IntegerConverter,
    LongConverter,
    SimpleHeaderConverter,
    StringConverter,
)
from connect_py.java.values import parse_string, to_text


def text(**configs: str) -> StringConverter:
    made = StringConverter()
    made.configure({k.replace("_", "."): v for k, v in configs.items()}, is_key=False)
    return made


def test_every_plugin_names_a_class_that_is_there() -> None:
    for plugin in PLUGINS:
        module, _, name = plugin.python.partition(":")
        assert hasattr(importlib.import_module(module), name), plugin


def test_null_bytes_are_a_null_string_with_a_schema() -> None:
    assert text().to_connect("t", None) == SchemaAndValue(OPTIONAL_STRING, None)
    assert text().to_connect("t", b"") == SchemaAndValue(OPTIONAL_STRING, "")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert text().to_connect("t", b"\xffa").value == "\ufffda"


@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-1"])
def test_columns_of_text_give_the_rows_of_the_reference(encoding: str) -> None:
    data = [b"a", None, b"", "é".encode(), b"\xff"]
    for part in (data, data[:4]):
        made = text(converter_encoding=encoding)
        assert by_columns(made, part) == by_reference(made, part)


def test_an_unknown_character_set_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        text(converter_encoding="nope")


def test_anything_is_written_as_java_prints_it() -> None:
    row = struct(("a", INT32), ("b", OPTIONAL_STRING), ("c", FLOAT32))
    assert (
        text().from_connect("t", row, Struct(row, [1, None, 1.100000023841858]))
        == b"Struct{a=1,c=1.1}"
    )
    assert text().from_connect("t", None, {"a": [1, 1e10]}) == b"{a=[1, 1.0E10]}"
    assert text().from_connect("t", None, None) is None


def test_byte_arrays_pass_and_other_schemas_are_refused() -> None:
    made = ByteArrayConverter()
    made.configure({})
    assert made.to_connect("t", None) == SchemaAndValue(OPTIONAL_BYTES, None)
    assert by_columns(made, [b"", None, b"\xff"]) == by_reference(made, [b"", None, b"\xff"])
    with pytest.raises(DataError, match="Invalid schema type for ByteArrayConverter: STRING"):
        made.from_connect("t", STRING, "x")


def test_integer_converter_accepts_exactly_four_bytes_and_32_bit_values() -> None:
    made = IntegerConverter()
    made.configure({})
    assert made.to_connect("t", b"\0\0\1\0").value == 256
    assert made.from_connect("t", None, -1) == b"\xff\xff\xff\xff"
    with pytest.raises(DataError, match="Failed to deserialize integer: "):
        made.to_connect("t", b"\0\0\0")
    with pytest.raises(
        DataError, match=r"Failed to serialize to integer .was class java.lang.Long.: "
    ):
        made.from_connect("t", None, 1 << 31)
    data = [b"\0\0\1\0", None, b"", b"\xff\xff\xff\xff"]
    assert by_columns(made, data) == by_reference(made, data)


def test_a_boolean_is_zero_or_one() -> None:
    made = BooleanConverter()
    made.configure({})
    assert [made.to_connect("t", b).value for b in (b"\0", b"\1", None)] == [False, True, None]
    with pytest.raises(DataError, match="Failed to deserialize boolean: "):
        made.to_connect("t", b"\2")


def test_long_converter_reads_eight_bytes_as_signed_number() -> None:
    made = LongConverter()
    made.configure({})
    assert made.to_connect("t", b"\xff" * 8).value == -1


HEADERS: list[tuple[str, Schema | None, object]] = [
    ("123", INT8, 123),
    ("1234", INT16, 1234),
    ("70000", INT32, 70000),
    ("5000000000", INT64, 5000000000),
    ("9223372036854775808", decimal(0), Decimal("9223372036854775808")),
    ("1e400", STRING, "1e400"),
    ("1e-400", FLOAT32, 0.0),
    ("1.00", INT8, 1),
    ("1e5", INT32, 100000),
    ("+5", INT8, 5),
    (" 5 ", INT8, 5),
    ("007", INT8, 7),
    ("0", INT8, 0),
    ("1.5", FLOAT32, 1.5),
    ("3.141592653589793", FLOAT32, 3.1415927410125732),
    ("true", BOOLEAN, True),
    ("TRUE", STRING, "TRUE"),
    ("null", None, None),
    ("", STRING, ""),
    ("[1,2,3]", array(INT8), [1, 2, 3]),
    ('[1,"a"]', None, [1, "a"]),
    ("[]", None, []),
    ('{"a":1}', map_of(STRING, INT8), {"a": 1}),
    ('{"a":1,}', map_of(STRING, INT8), {"a": 1}),
    ("{}", None, {}),
    ("[1,1000]", array(INT16), [1, 1000]),
    ("2024-01-15", date(), 19737),
    ("10:00:00.000Z", time(), 36_000_000),
    ("2024-01-15T10:00:00.000Z", timestamp(), 1705312800000),
    ("2024-13-45", date(), 20133),
    *[
        (t, STRING, t)
        for t in (
            "abc",
            "12abc",
            "0x1F",
            "1d",
            "NaN",
            "-",
            "[",
            "{",
            "a,b",
            '"quoted"',
            "[1,,]",
            "[0 1",
            "3b241101-e2bb-4255-8caf-4136c566a962",
        )
    ],
]


@pytest.mark.parametrize(("given", "schema", "value"), HEADERS)
def test_the_type_of_a_header_is_guessed_from_its_text(
    given: str, schema: Schema | None, value: object
) -> None:
    assert same(parse_string(given), SchemaAndValue(schema, value))


def test_headers_that_are_no_text_are_never_an_error() -> None:
    made = SimpleHeaderConverter()
    made.configure({})
    assert made.to_connect_header("t", "h", b"\xff") == SchemaAndValue(STRING, "\ufffd")
    assert made.to_connect_header("t", "h", None) == NULL
    assert made.from_connect_header("t", "h", INT8, 5) == b"5"
    assert made.from_connect_header("t", "h", None, None) is None


@pytest.mark.parametrize(
    "given", ["2024-01-15", "10:00:00.000Z", "2024-01-15T10:00:00.123Z", '["a","b"]', '{"a":1}']
)
def test_what_was_parsed_is_written_again(given: str) -> None:
    assert to_text(*parse_string(given)) == given


def test_moments_of_any_year_have_a_text() -> None:
    assert to_text(timestamp(), 253402300800000) == "10000-01-01T00:00:00.000Z"
    assert to_text(date(), -719163) == "0000-12-31"
