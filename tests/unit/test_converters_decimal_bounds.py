"""Decimal schemas and numbers that no column could hold are bad records, in every format and in
both forms."""

from __future__ import annotations

import io
import json
import struct as binary
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from fixtures.converter_rows import by_columns, by_reference
from fixtures.native_decoder import reading_by, with_and_without
from fixtures.schema_registry_stub import Stub, schema_registry
from google.protobuf.message_factory import GetMessageClass

from connect_py.api.converter import Converter
from connect_py.api.errors import DataError, NotColumnar, SchemaBuilderError
from connect_py.api.schema import (
    DECIMAL,
    MAX_DECIMAL_PRECISION,
    MAX_DECIMAL_SCALE,
    PRECISION,
    Schema,
    Type,
    decimal,
    struct,
)
from connect_py.columns import arrow
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.json.json_converter import JsonConverter
from connect_py.converters.json.json_values import unscaled
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter
from connect_py.converters.protobuf.proto_compiler import compile_proto
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter

SCALES = [2_000_000_000, -2_000_000_000, 6_000, MAX_DECIMAL_SCALE + 1, -MAX_DECIMAL_SCALE - 1]
PRECISIONS = ["2000000000", "-1", "many"]


@pytest.fixture(scope="module")
def registry() -> Iterator[Stub]:
    with schema_registry({}) as stub:
        yield stub


def refused(made: Converter, message: bytes, *more: str) -> None:
    """Check that both forms reject the messages for one reason, and accept the tombstone."""
    data = [message, None, message]
    rows = by_reference(made, data)
    assert rows[1] == (None, None)
    for row in (rows[0], rows[2]):
        assert isinstance(row, str)
        assert all(text in row for text in more), row
    assert by_columns(made, data) == rows


def registered(made: Any, registry: Stub, kind: str, schema: str) -> bytes:
    """Configure the converter, and return what messages of this schema begin with."""
    number = len(registry.schemas) + 1
    registry.schemas[number] = {"schema": schema, "schemaType": kind}
    made.configure({"schema.registry.url": registry.url}, is_key=False)
    return binary.pack(">bI", 0, number)


def json_message(payload: str, **parameters: str) -> bytes:
    field = {
        "field": "d",
        "type": "bytes",
        "optional": True,
        "name": DECIMAL,
        "parameters": parameters,
    }
    schema = json.dumps({"type": "struct", "fields": [field]})
    return f'{{"schema":{schema},"payload":{{"d":{payload}}}}}'.encode()


@with_and_without
@pytest.mark.parametrize("payload", ['"AQ=="', "1.5", "null"])
def test_json_decimal_schema_with_absurd_bounds_is_a_bad_record(decoder: str, payload: str) -> None:
    with reading_by(decoder):
        made = JsonConverter()
        made.configure({}, is_key=False)
        for scale in SCALES:
            refused(made, json_message(payload, scale=str(scale)), "scale", str(scale))
        for precision in PRECISIONS:
            refused(
                made, json_message(payload, **{"scale": "2", PRECISION: precision}), "precision"
            )
        refused(made, json_message(payload), "scale")


@with_and_without
@pytest.mark.parametrize("number", ["1e-999999999", "0e-999999999", "1e999999999", "1e77"])
def test_json_number_with_absurd_exponent_is_a_bad_record(decoder: str, number: str) -> None:
    with reading_by(decoder):
        made = JsonConverter()
        made.configure({}, is_key=False)
        refused(made, json_message(number, scale="2"), "scale")


@with_and_without
@pytest.mark.parametrize("kind", ["bytes", {"type": "fixed", "name": "F", "size": 4}])
def test_avro_decimal_schema_with_absurd_bounds_is_a_bad_record(
    decoder: str, kind: Any, registry: Stub
) -> None:
    plain = {"type": kind} if isinstance(kind, str) else kind
    absurd = [{"scale": scale, "precision": 10} for scale in SCALES]
    absurd += [{"scale": 2, "precision": int(p)} for p in PRECISIONS if p != "many"]
    absurd += [{"scale": "x", "precision": 10}, {"scale": float("inf"), "precision": 10}]
    with reading_by(decoder):
        for attributes in absurd:
            tree = {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "d", "type": {**plain, "logicalType": "decimal", **attributes}}
                ],
            }
            made = AvroConverter()
            prefix = registered(made, registry, "AVRO", json.dumps(tree))
            body = io.BytesIO()
            untyped = {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}
            fastavro.schemaless_writer(body, fastavro.parse_schema(untyped), {"d": b"\0\0\0\1"})
            refused(made, prefix + body.getvalue())
            made.close()


@with_and_without
def test_registry_json_schema_with_absurd_decimal_makes_bad_records(
    decoder: str, registry: Stub
) -> None:
    absurd = [{"scale": str(scale)} for scale in SCALES] + [
        {"scale": "2", PRECISION: p} for p in PRECISIONS
    ]
    with reading_by(decoder):
        for parameters in absurd:
            field = {
                "type": "number",
                "title": DECIMAL,
                "connect.type": "bytes",
                "connect.parameters": parameters,
            }
            made = JsonSchemaConverter()
            schema = json.dumps({"type": "object", "properties": {"d": field}})
            prefix = registered(made, registry, "JSON", schema)
            refused(made, prefix + b'{"d":"AQ=="}')
            made.close()


PROTO = """
syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Row { confluent.type.Decimal d = 1 [(confluent.field_meta) = { params: [%s] }]; }
"""


def proto_message(scale: int) -> bytes:
    row = GetMessageClass(compile_proto(PROTO % "").message_types_by_name["Row"])()
    row.d.value, row.d.scale = b"\1", scale
    return bytes(row.SerializeToString())


@pytest.mark.parametrize("scale", [*SCALES, "many"])
def test_protobuf_decimal_with_absurd_scale_is_a_bad_record(
    scale: int | str, registry: Stub
) -> None:
    made = ProtobufConverter()
    prefix = registered(made, registry, "PROTOBUF", PROTO % f'{{key: "scale", value: "{scale}"}}')
    refused(made, prefix + b"\0" + proto_message(2))
    made.close()
    if isinstance(scale, str):
        return
    made = ProtobufConverter()
    prefix = registered(made, registry, "PROTOBUF", PROTO % '{key: "scale", value: "2"}')
    refused(made, prefix + b"\0" + proto_message(scale))
    made.close()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_protobuf_decimal_with_absurd_precision_is_a_bad_record(
    precision: str, registry: Stub
) -> None:
    made = ProtobufConverter()
    prefix = registered(
        made, registry, "PROTOBUF", PROTO % f'{{key: "precision", value: "{precision}"}}'
    )
    refused(made, prefix + b"\0" + proto_message(2))
    made.close()


def test_decimals_at_the_bounds_have_columns() -> None:
    for scale in (MAX_DECIMAL_SCALE, 0, -MAX_DECIMAL_SCALE):
        schema = decimal(scale, parameters={PRECISION: str(MAX_DECIMAL_PRECISION)})
        values = [Decimal((1, (5,), -scale)), None]
        assert arrow.to_values(schema, arrow.to_array(schema, values)) == values


@pytest.mark.parametrize("scale", SCALES)
def test_decimal_schema_with_absurd_scale_cannot_be_built(scale: int) -> None:
    with pytest.raises(SchemaBuilderError, match="scale"):
        struct(("d", decimal(scale)))
    with pytest.raises(SchemaBuilderError, match="scale"):
        Schema(Type.BYTES).replace(name=DECIMAL, parameters={"scale": str(scale)})


@pytest.mark.parametrize("number", ["1E-999999999", "0E-999999999", "1E+999999999"])
def test_plugin_number_with_absurd_exponent_becomes_neither_column_nor_bytes(number: str) -> None:
    with pytest.raises(NotColumnar):
        arrow.to_array(decimal(2), [Decimal("1.00"), Decimal(number)])
    with pytest.raises(DataError):
        unscaled(Decimal(number), 2)
