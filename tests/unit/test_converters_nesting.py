"""Values and schemas that are nested too deep are bad records, in every format and in both
forms."""

from __future__ import annotations

import json
import struct as binary
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from fixtures.converter_rows import by_columns, by_reference
from fixtures.native_decoder import reading_by, with_and_without
from fixtures.schema_registry_stub import Stub, schema_registry

from connect_py.api.batch import schemaless_column
from connect_py.api.converter import Converter
from connect_py.api.errors import NotColumnar, SchemaBuilderError
from connect_py.api.schema import INT32, MAX_NESTING, Schema, array, map_of, struct
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.json.json_converter import JsonConverter
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter

DEPTHS = [MAX_NESTING + 1, 80, 300, 501, 999, 5000]


@pytest.fixture(scope="module")
def registry() -> Iterator[Stub]:
    with schema_registry({}) as stub:
        yield stub


def objects(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def lists(levels: int) -> bytes:
    return b"[" * levels + b"1" + b"]" * levels


def refused(made: Converter, message: bytes) -> None:
    data = [message, None, message]
    rows = by_reference(made, data)
    assert [isinstance(row, str) for row in rows] == [True, False, True]
    assert by_columns(made, data) == rows


def taken(made: Converter, message: bytes) -> None:
    (row,) = by_reference(made, [message])
    assert not isinstance(row, str)
    with suppress(NotColumnar):  # rows are then the only form
        assert by_columns(made, [message]) == [row]


@with_and_without
@pytest.mark.parametrize("nested", [objects, lists])
def test_json_that_is_nested_too_deep_is_a_bad_record(
    decoder: str, nested: Callable[[int], bytes]
) -> None:
    with reading_by(decoder):
        made = JsonConverter()
        made.configure({"schemas.enable": "false"}, is_key=False)
        for levels in DEPTHS:
            refused(made, nested(levels))
        for levels in (1, 40, MAX_NESTING):
            taken(made, nested(levels))
        enveloped = JsonConverter()
        enveloped.configure({}, is_key=False)
        for levels in DEPTHS[:4]:
            (row,) = by_reference(enveloped, [b'{"schema":null,"payload":' + nested(levels) + b"}"])
            assert isinstance(row, str)


def nested_schema(levels: int) -> str:
    text = '{"type":"int32"}'
    for _ in range(levels):
        text = f'{{"type":"array","items":{text}}}'
    return text


@with_and_without
def test_json_schema_nested_too_deep_is_a_bad_record(decoder: str) -> None:
    with reading_by(decoder):
        made = JsonConverter()
        made.configure({}, is_key=False)
        for levels in (MAX_NESTING + 1, 150, 400, 900):
            refused(made, f'{{"schema":{nested_schema(levels)},"payload":[]}}'.encode())
        taken(made, f'{{"schema":{nested_schema(MAX_NESTING)},"payload":[]}}'.encode())


def registered(made: Any, registry: Stub, kind: str, schema: str) -> bytes:
    number = len(registry.schemas) + 1
    registry.schemas[number] = {"schema": schema, "schemaType": kind}
    made.configure({"schema.registry.url": registry.url}, is_key=False)
    return binary.pack(">bI", 0, number)


@with_and_without
@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 300, 900, 5000])
def test_registry_schemas_nested_too_deep_make_bad_records(
    decoder: str, levels: int, registry: Stub
) -> None:
    with reading_by(decoder):
        avro = AvroConverter()
        tree = '{"type":"array","items":' * levels + '"int"' + "}" * levels
        refused(avro, registered(avro, registry, "AVRO", tree) + b"\0")
        avro.close()
        json_schema = JsonSchemaConverter()
        tree = '{"type":"array","items":' * levels + '{"type":"integer"}' + "}" * levels
        refused(json_schema, registered(json_schema, registry, "JSON", tree) + b"[]")
        json_schema.close()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"x": {}}},
        {"oneOf": [{}, {"type": "null"}, {"type": "string"}]},
    ],
)
def test_untyped_json_value_nested_too_deep_is_a_bad_record(schema: Any, registry: Stub) -> None:
    made = JsonSchemaConverter()
    prefix = registered(made, registry, "JSON", json.dumps(schema))
    for levels in (MAX_NESTING + 1, 501, 900):
        refused(made, prefix + b'{"x":' + objects(levels) + b"}")
    taken(made, prefix + b'{"x":' + objects(40) + b"}")
    made.close()


def test_schema_nested_beyond_the_limit_cannot_be_built() -> None:
    def of(levels: int) -> Schema:
        made = INT32
        for level in range(levels):
            made = (array(made), map_of(INT32, made), struct(("a", made)))[level % 3]
        return made

    assert of(MAX_NESTING).replace(optional=True).optional
    with pytest.raises(SchemaBuilderError, match="levels"):
        of(MAX_NESTING + 1)


def test_plugin_rows_nested_too_deep_have_no_column() -> None:
    value: Any = 1
    for _ in range(5000):
        value = {"a": value}
    with pytest.raises(NotColumnar):
        schemaless_column([value])
