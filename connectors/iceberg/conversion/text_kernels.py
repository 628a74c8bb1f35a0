"""Kernels that convert values to boolean, string, uuid, binary, fixed, and variant columns."""

from __future__ import annotations

import base64
import binascii
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.schema import Schema, Struct, Type, Value
from connect_py.java.strings import double_text, float_text
from connect_py.plurals import pluralize
from connectors.iceberg.conversion.columns import as_array
from connectors.iceberg.conversion.kernel import (
    Conversion,
    Kernel,
    Run,
    Unfit,
    convert_each,
    each,
    is_bytes,
    is_text,
    keep,
    values_of,
)
from connectors.iceberg.conversion.number_kernels import each_variable_scale, is_variable_scale
from connectors.iceberg.conversion.variant import encode_variant

_UUID_TEXT = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def boolean(at: Conversion) -> Kernel | None:
    """Return the kernel for boolean columns, or None if no conversion is required."""
    if pa.types.is_boolean(at.type):
        return None
    if not is_text(at.type):
        raise Unfit

    def from_text(data: pa.Array, run: Run) -> pa.Array:
        lower = pc.ascii_lower(data.cast(pa.string()))
        true = pc.equal(lower, "true")
        if at.options.lenient:
            return true
        return keep(
            true,
            pc.or_(true, pc.equal(lower, "false")),
            at.column,
            "is neither true nor false",
            run,
        )

    return from_text


def string(at: Conversion) -> Kernel | None:
    """Return the kernel for string columns, or None if no conversion is required.

    Nested values are converted to JSON.
    """
    type_, schema = at.type, at.schema
    if pa.types.is_string(type_):
        return None
    if is_text(type_) or pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return lambda data, _: data.cast(pa.string())
    if pa.types.is_floating(type_):
        return each(pa.string(), at.column, double_text if type_ == pa.float64() else float_text)
    if pa.types.is_decimal(type_):
        return each(pa.string(), at.column, str)
    if is_variable_scale(at):
        return each_variable_scale(pa.string(), at.column, lambda v: format(v, "f"))
    if pa.types.is_nested(type_):

        def to_json(data: pa.Array, run: Run) -> pa.Array:
            values = values_of(schema, data, at.path, run)
            return pa.array(
                [None if v is None else _json_text(v, schema) for v in values], pa.string()
            )

        return to_json
    raise Unfit


def uuid(at: Conversion) -> Kernel | None:
    """Return the kernel for UUID columns, or None if no conversion is required."""
    arrow_type = at.arrow_type
    if at.type == arrow_type:
        return None
    if pa.types.is_fixed_size_binary(at.type) and at.type.byte_width == 16:
        return lambda data, _: pa.ExtensionArray.from_storage(arrow_type, data)
    if not is_text(at.type):
        raise Unfit

    def from_text(data: pa.Array, run: Run) -> pa.Array:
        data = data.cast(pa.string())
        is_uuid = pc.match_substring_regex(data, _UUID_TEXT)
        data = keep(data, is_uuid, at.column, "is not a UUID", run)
        digits = pc.replace_substring(data.fill_null("0" * 32), "-", "")
        text = digits.buffers()[2].to_pybytes()[: 32 * len(digits)] if len(digits) else b""
        raw = pa.py_buffer(bytes.fromhex(text.decode("ascii")))
        storage = pa.Array.from_buffers(arrow_type.storage_type, len(data), [None, raw])
        if data.null_count:
            storage = as_array(pc.if_else(data.is_valid(), storage, pa.scalar(None, storage.type)))
        return pa.ExtensionArray.from_storage(arrow_type, storage)

    return from_text


def binary(at: Conversion) -> Kernel | None:
    """Return the kernel for binary and fixed columns, or None if no conversion is required."""
    arrow_type = at.arrow_type
    if at.type == arrow_type:
        return None

    def sized(data: pa.Array, run: Run) -> pa.Array:
        if pa.types.is_fixed_size_binary(arrow_type):
            data, width = data.cast(pa.binary()), arrow_type.byte_width
            data = keep(
                data,
                pc.equal(pc.binary_length(data), width),
                at.column,
                f"is not {pluralize(width, 'byte')} long",
                run,
            )
        return data.cast(arrow_type)

    if is_bytes(at.type):
        return sized
    if is_text(at.type):
        decode = each(pa.binary(), at.column, _from_base64)
        return lambda data, run: sized(decode(data, run), run)
    raise Unfit


def variant(at: Conversion) -> Kernel:
    """Return the kernel for variant columns, which converts values one by one."""

    def one(value: Any) -> dict[str, bytes]:
        metadata, encoded = encode_variant(value, at.schema)
        return {"metadata": metadata, "value": encoded}

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        return pa.array(
            convert_each(values_of(at.schema, data, at.path, run), one, None, at.column, run),
            at.arrow_type,
        )

    return kernel


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("is not valid Base64") from error


def _json_text(value: Value, schema: Schema | None) -> str:
    return json.dumps(_plain(value, schema), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Value, schema: Schema | None) -> Any:
    """Convert a value to a form that `json` writes correctly.

    For example, a 32-bit float is written with fewer digits than a double.
    """
    if isinstance(value, Struct):
        return {f.name: _plain(v, f.schema) for f, v in value}
    if isinstance(value, dict):
        keys, items = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return {_key_text(k, keys): _plain(v, items) for k, v in value.items()}
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return [_plain(v, items) for v in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int(Decimal((sign, digits, 0)))
        length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            return double_text(value)
        return (
            float(float_text(value))
            if schema is not None and schema.type is Type.FLOAT32
            else value
        )
    return value


def _key_text(key: Value, schema: Schema | None) -> str:
    plain = _plain(key, schema)
    return (
        plain
        if isinstance(plain, str)
        else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    )
