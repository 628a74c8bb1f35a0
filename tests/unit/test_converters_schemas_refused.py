"""Schemas that are absurd, or none, make bad records: in both forms, at once, and for one
reason."""

from __future__ import annotations

import base64
import json
import struct as binary
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from fixtures.converter_rows import by_columns, by_reference
from fixtures.native_decoder import reading_by, with_and_without
from fixtures.schema_registry_stub import Stub, schema_registry

from connect_py.api.converter import Converter
from connect_py.api.errors import NotColumnar, SchemaBuilderError
from connect_py.api.schema import (
    INT32,
    MAX_SCHEMA_SIZE,
    PRECISION,
    Field,
    Schema,
    Type,
    decimal,
    struct,
)
from connect_py.columns import arrow
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter
from connect_py.converters.protobuf import protobuf_converter
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter

LEVELS = 40  # 2^40 types


@pytest.fixture(scope="module")
def registry() -> Iterator[Stub]:
    with schema_registry({}) as stub:
        yield stub


def registered(made: Any, registry: Stub, kind: str, schema: str) -> bytes:
    """Configure the converter, and return what messages of this schema begin with."""
    number = len(registry.schemas) + 1
    registry.schemas[number] = {"schema": schema, "schemaType": kind}
    made.configure({"schema.registry.url": registry.url}, is_key=False)
    return binary.pack(">bI", 0, number)


def refused(made: Converter, message: bytes, text: str) -> None:
    """Check that both forms reject the message quickly, and accept the tombstone."""
    data = [message, None, message]
    rows = by_reference(made, data)
    assert [isinstance(row, str) for row in rows] == [True, False, True]
    assert by_columns(made, data) == rows
    with pytest.raises(Exception, match="Failed to deserialize") as caught:
        made.to_connect("t", message)
    assert text in str(caught.value.__cause__)
    began = time.process_time()
    by_reference(made, [message] * 100)
    assert time.process_time() - began < 1.0


@with_and_without
def test_avro_types_that_hold_each_other_twice_are_bad_records(
    decoder: str, registry: Stub
) -> None:
    tree: Any = "int"
    for level in range(LEVELS):
        again = f"D{level - 1}" if level else "int"
        tree = {
            "type": "record",
            "name": f"D{level}",
            "fields": [{"name": "a", "type": tree}, {"name": "b", "type": again}],
        }
    with reading_by(decoder):
        made = AvroConverter()
        refused(
            made,
            registered(made, registry, "AVRO", json.dumps(tree)) + b"\0",
            f"{MAX_SCHEMA_SIZE} types",
        )
        made.close()


@with_and_without
@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (
            {"type": "record", "name": "R", "fields": [{"name": 5, "type": "int"}]},
            "name of a field",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "connect.name": 7,
                "fields": [{"name": "a", "type": "int"}],
            },
            "strings",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "\ud800", "type": "int"}]},
            "name of a field",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": []}]},
            "must have at least one type",
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "\ud800"]}, "symbols of the enum E"),
        ({"type": "enum", "name": "E", "symbols": ["A", 5]}, "symbols of the enum E"),
        (["null", ["null", "float"]], "directly contain another union"),
        ([{"type": [["null", "int"]]}], "directly contain another union"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "connect.name": "a.b"},
            "connect.name is a.b",
        ),
        ({"type": "int", "logicalType": "date", "connect.name": "a.b"}, "connect.name is a.b"),
    ],
)
def test_avro_schemas_of_no_sense_are_bad_records(
    decoder: str, tree: Any, text: str, registry: Stub
) -> None:
    with reading_by(decoder):
        made = AvroConverter()
        refused(made, registered(made, registry, "AVRO", json.dumps(tree)) + b"\0", text)
        made.close()


@with_and_without
@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_avro_fields_may_have_any_name(decoder: str, name: str, registry: Stub) -> None:
    tree = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]}
    with reading_by(decoder):
        made = AvroConverter()
        data = [registered(made, registry, "AVRO", json.dumps(tree)) + b"\2"] * 40
        assert by_columns(made, data) == by_reference(made, data)
        made.close()


@pytest.mark.parametrize(
    ("word", "levels"),
    [("allOf", LEVELS), ("oneOf", LEVELS), ("oneOf", 12), ("properties", LEVELS)],
)
def test_json_schema_references_that_grow_exponentially_make_bad_records(
    word: str, levels: int, registry: Stub
) -> None:
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, levels):
        below = {"$ref": f"#/definitions/d{level - 1}"}
        both = {"a": below, "b": below} if word == "properties" else [below, below]
        definitions[f"d{level}"] = (
            {"type": "object", word: both} if word == "properties" else {word: both}
        )
    made = JsonSchemaConverter()
    tree = {"$ref": f"#/definitions/d{levels - 1}", "definitions": definitions}
    refused(made, registered(made, registry, "JSON", json.dumps(tree)) + b"{}", "more")
    made.close()


def test_protobuf_messages_that_hold_each_other_twice_are_bad_records(registry: Stub) -> None:
    inside = " ".join(f"message D{n} {{ D{n + 1} a = 1; D{n + 1} b = 2; }}" for n in range(LEVELS))
    text = f'syntax = "proto3"; {inside} message D{LEVELS} {{ int32 a = 1; }}'
    made = ProtobufConverter()
    refused(made, registered(made, registry, "PROTOBUF", text) + b"\0", f"{MAX_SCHEMA_SIZE} types")
    made.close()


@pytest.mark.parametrize(
    "text", ["no schema", 'syntax = "proto3"; message \udcff {}', 'import "a\n\xff";']
)
def test_refused_protobuf_schema_is_passed_to_the_compiler_once(text: str, registry: Stub) -> None:
    made = ProtobufConverter()
    prefix = registered(made, registry, "PROTOBUF", text)
    with patch.object(
        protobuf_converter, "compile_proto", wraps=protobuf_converter.compile_proto
    ) as asked:
        rows = by_reference(
            made,
            [prefix + head for head in (b"\0", b"\0", b"\2\2")],
            told=lambda e: str(e.__cause__),
        )
        assert asked.call_count == 1
    assert rows[0] == rows[1] == rows[2]
    assert str(rows[0]).startswith("Not a Protobuf schema: schema.proto:1:")
    assert "/tmp" not in str(rows[0])
    made.close()


@pytest.mark.parametrize("name", ["../x.proto", "", "x\0.proto", "x" * 300, "\ud800"])
def test_protobuf_import_without_a_file_name_is_a_bad_record(name: str, registry: Stub) -> None:
    made = ProtobufConverter()
    prefix = registered(made, registry, "PROTOBUF", 'syntax = "proto3"; message A { int32 a = 1; }')
    registry.schemas[10_000] = {
        "schema": "",
        "schemaType": "PROTOBUF",
        "subjects": [{"subject": "o", "version": 1}],
    }
    latest = max(number for number in registry.schemas if number < 10_000)
    references = [{"name": name, "subject": "o", "version": 1}]
    registry.schemas[latest] = {**registry.schemas[latest], "references": references}
    (row,) = by_reference(made, [prefix + b"\0"], told=lambda e: str(e.__cause__))
    assert "not a valid file name" in str(row)
    made.close()


def test_compiler_message_with_invalid_utf_8_makes_a_bad_record(registry: Stub) -> None:
    descriptor = b'\n\x0cschema.proto"\x0b\n\x01A\x12\x06\n\x04a\xef\xefb'
    made = ProtobufConverter()
    prefix = registered(made, registry, "PROTOBUF", base64.b64encode(descriptor).decode())
    assert isinstance(by_reference(made, [prefix + b"\0"])[0], str)
    made.close()


@pytest.mark.parametrize(
    ("made", "kind"),
    [(AvroConverter(), "AVRO"), (JsonSchemaConverter(), "JSON"), (ProtobufConverter(), "PROTOBUF")],
)
def test_a_schema_without_a_text_makes_bad_records(made: Any, kind: str, registry: Stub) -> None:
    prefix = registered(made, registry, kind, "")
    assert isinstance(by_reference(made, [prefix + b"\0"])[0], str)
    made.close()


def test_unknown_schema_id_is_refused_each_time_with_same_message(registry: Stub) -> None:
    made = AvroConverter()
    made.configure({"schema.registry.url": registry.url}, is_key=False)
    made._registry._grace_seconds = 0.0
    told = [
        by_reference(made, [b"\0\0\1\0\0\2"], told=lambda e: repr(e.__cause__))[0] for _ in range(3)
    ]
    assert len(set(map(str, told))) == 1
    made.close()


def test_a_union_finds_what_its_types_refer_to(registry: Stub) -> None:
    line = {
        "type": "object",
        "properties": {"sku": {"$ref": "#/definitions/sku"}},
        "required": ["sku"],
    }
    tree = {
        "type": "object",
        "properties": {"x": {"oneOf": [{"$ref": "#/definitions/line"}, {"type": "integer"}]}},
        "definitions": {"line": line, "sku": {"type": "string"}},
    }
    made = JsonSchemaConverter()
    prefix = registered(made, registry, "JSON", json.dumps(tree))
    value = made.to_connect("t", prefix + b'{"x":{"sku":"s"}}').value
    assert value["x"].values[0]["sku"] == "s"
    assert made.to_connect("t", prefix + b'{"x":7}').value["x"].values[1] == 7
    assert isinstance(by_reference(made, [prefix + b'{"x":{"sku":1}}'])[0], str)
    made.close()


@pytest.mark.parametrize(
    "inside", [{"$ref": "#/no/such"}, {"type": "string", "pattern": "("}, {"type": "x"}]
)
def test_a_union_whose_types_are_none_makes_bad_records(inside: Any, registry: Stub) -> None:
    branches = [{"type": "array", "items": inside}, {"type": "integer"}]
    made = JsonSchemaConverter()
    prefix = registered(made, registry, "JSON", json.dumps({"oneOf": branches}))
    assert isinstance(by_reference(made, [prefix + b'["a"]'])[0], str)
    made.close()


def test_schema_has_a_size_limit_and_only_text_names() -> None:
    made = INT32
    for _ in range(13):
        made = struct(("a", made), ("b", made))
    with pytest.raises(SchemaBuilderError, match=str(MAX_SCHEMA_SIZE)):
        struct(("a", made), ("b", made))
    with pytest.raises(SchemaBuilderError, match="strings"):
        Schema(Type.INT32, name=5)  # type: ignore[arg-type] # from a damaged schema
    with pytest.raises(SchemaBuilderError, match="valid string"):
        Schema(Type.STRUCT, fields=[(5, INT32)])  # type: ignore[list-item] # the same
    assert isinstance(made.fields[0], Field)


@pytest.mark.parametrize(
    ("scale", "precision", "number"),
    [
        (-2, None, "-8.57829165426E+39"),
        (-2, None, "-8.6705581010510197289135216153476440000E+39"),
        (0, None, "-47985633486333933889297711428452174118.6"),
        (2, None, "-391668551987933350925999490054725848.3172"),
        (2, None, "99999999999999999999999999999999999999"),
        (-2, "60", "1E+75"),
        (-2, None, "1.5E+3"),
    ],
)
def test_decimal_column_keeps_the_exact_value_or_is_not_made(
    scale: int, precision: str | None, number: str
) -> None:
    schema = decimal(scale, parameters={} if precision is None else {PRECISION: precision})
    try:
        column = arrow.to_array(schema, [Decimal(number)])
    except NotColumnar:
        return
    assert column.to_pylist() == [Decimal(number)]
