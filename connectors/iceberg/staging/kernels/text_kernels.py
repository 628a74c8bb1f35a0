"""Kernels into boolean, string, uuid, binary and fixed columns."""

from __future__ import annotations

import base64
import binascii
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Path
from connect_py.api.errors import DataError
from connect_py.api.java_text import double_text, float_text
from connect_py.api.schema import Schema, Struct, Type, Value
from connectors.iceberg.staging.columns import as_array
from connectors.iceberg.staging.kernels.kernel import (
    ConversionOptions,
    Kernel,
    Run,
    Unfit,
    each,
    is_bytes,
    is_text,
    keep,
    values_of,
)
from connectors.iceberg.staging.kernels.number_kernels import each_variable_scale
from connectors.iceberg.staging.types import VARIABLE_SCALE_DECIMAL

_UUID_TEXT = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


class TextKernels:
    """Makes kernels. Each method answers for one kind of target type."""

    def __init__(self, options: ConversionOptions) -> None:
        self._options = options

    def boolean(self, type_: pa.DataType, column: str) -> Kernel | None:
        if pa.types.is_boolean(type_):
            return None
        if not is_text(type_):
            raise Unfit
        lenient = self._options.lenient

        def from_text(data: pa.Array, run: Run) -> pa.Array:
            lower = pc.ascii_lower(data.cast(pa.string()))
            true = pc.equal(lower, "true")
            if lenient:
                return true
            return keep(true, pc.or_(true, pc.equal(lower, "false")), column, "is neither true nor false", run)

        return from_text

    def string(self, schema: Schema | None, type_: pa.DataType, path: Path, column: str) -> Kernel | None:
        if pa.types.is_string(type_):
            return None
        if pa.types.is_large_string(type_):
            return lambda data, _: data.cast(pa.string())
        if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
            return lambda data, _: data.cast(pa.string())
        if pa.types.is_floating(type_):
            if type_ == pa.float64():
                slow_double = each(pa.string(), column, double_text)
                return lambda data, run: _double_texts(data, run, slow_double)
            return each(pa.string(), column, float_text)
        if pa.types.is_decimal(type_):
            return each(pa.string(), column, str)
        if schema is not None and schema.name == VARIABLE_SCALE_DECIMAL and pa.types.is_struct(type_):
            return each_variable_scale(pa.string(), column, lambda v: format(v, "f"))
        if pa.types.is_nested(type_):

            def to_json(data: pa.Array, run: Run) -> pa.Array:
                values = values_of(schema, data, path, run)
                return pa.array([None if v is None else _json_text(v, schema) for v in values], pa.string())

            return to_json
        raise Unfit

    def uuid(self, type_: pa.DataType, column: str) -> Kernel | None:
        wanted = pa.uuid()
        if type_ == wanted:
            return None
        if pa.types.is_fixed_size_binary(type_) and type_.byte_width == 16:
            return lambda data, _: pa.ExtensionArray.from_storage(wanted, data)
        if not is_text(type_):
            raise Unfit

        def from_text(data: pa.Array, run: Run) -> pa.Array:
            data = data.cast(pa.string())
            made = _uuid_bytes(data)
            if made is None:
                data = keep(data, pc.match_substring_regex(data, _UUID_TEXT), column, "is no UUID", run)
                made = _uuid_bytes(data)
            if made is None:
                raise DataError(f"column {column}: UUIDs that match their pattern are not read")
            raw = pa.py_buffer(made)
            storage = pa.Array.from_buffers(pa.binary(16), len(data), [None, raw])
            if data.null_count:
                storage = as_array(pc.if_else(data.is_valid(), storage, pa.scalar(None, pa.binary(16))))
            return pa.ExtensionArray.from_storage(wanted, storage)

        return from_text

    def binary(self, wanted: pa.DataType, type_: pa.DataType, column: str) -> Kernel | None:
        if type_ == wanted:
            return None
        fixed = wanted.byte_width if pa.types.is_fixed_size_binary(wanted) else None

        def sized(data: pa.Array, run: Run) -> pa.Array:
            if fixed is None:
                return data if data.type == wanted else data.cast(wanted)
            data = data.cast(pa.binary())
            data = keep(data, pc.equal(pc.binary_length(data), fixed), column, f"is not {fixed} bytes long", run)
            return data.cast(wanted)

        if is_bytes(type_):
            return sized
        if is_text(type_):
            decode = each(pa.binary(), column, _from_base64)
            return lambda data, run: sized(decode(data, run), run)
        raise Unfit


def _double_texts(data: pa.Array, run: Run, slow: Kernel) -> pa.Array:
    """Java's text: in its plain range the shortest digits, as Arrow's, but always with a point."""
    size = pc.abs(data)
    plain = pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7))
    text = data.cast(pa.string())
    text = as_array(pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, ".0", "")))
    if pc.all(plain).as_py() is not False:
        return text
    nothing = pa.scalar(None, pa.float64())
    return as_array(pc.if_else(plain, text, slow(as_array(pc.if_else(plain, nothing, data)), run)))


def _uuid_bytes(data: pa.Array) -> bytes | None:
    """16 bytes per row, zeros for a null; None when a text is no UUID."""
    lengths = pc.min_max(pc.binary_length(data)).as_py()
    if lengths["min"] is not None:
        if lengths["min"] != 36 or lengths["max"] != 36:
            return None
        characters = data.cast(pa.binary())
        hyphens = (pc.equal(pc.binary_slice(characters, at, at + 1), b"-") for at in (8, 13, 18, 23))
        if not all(pc.all(there).as_py() for there in hyphens):
            return None
    digits = pc.replace_substring(data.fill_null("0" * 32), "-", "")
    text = digits.buffers()[2].to_pybytes()[: 32 * len(digits)] if len(digits) else b""
    try:
        made = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    return made if len(made) == 16 * len(data) else None  # blanks among the digits are skipped


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("is no base64 text") from error


def _json_text(value: Value, schema: Schema | None) -> str:
    return json.dumps(_plain(value, schema), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Value, schema: Schema | None) -> Any:
    """A value as `json` writes it right; `schema` tells 32-bit floats, whose digits are fewer than those of doubles."""
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
        return float(float_text(value)) if schema is not None and schema.type is Type.FLOAT32 else value
    return value


def _key_text(key: Value, schema: Schema | None) -> str:
    plain = _plain(key, schema)
    return plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
