"""Encoder for Iceberg's variant type, which consists of a dictionary of names and a binary value.

Each value has the smallest possible size. Names are sorted to ensure that equal values have equal
bytes.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from connect_py.api.schema import Schema, Struct, Type, Value
from connectors.iceberg.conversion.temporal import MICRO, NANO, TemporalType, named_temporal_type
from connectors.iceberg.conversion.types import JSON

_OBJECT, _ARRAY = 2, 3  # basic types; 0 is a primitive, and 1 is a short string
_NULL, _TRUE, _FALSE, _DOUBLE, _DATE = 0, 1, 2, 7, 11
_TIMESTAMP, _LOCAL_TIMESTAMP, _FLOAT, _BINARY, _STRING = 12, 13, 14, 15, 16
_TIME, _NANO_TIMESTAMP, _LOCAL_NANO_TIMESTAMP, _UUID = 17, 18, 19, 20
_INTEGERS = ((3, 1), (4, 2), (5, 4), (6, 8))  # type and size in bytes
_DECIMALS = ((8, 9, 4), (9, 18, 8), (10, 38, 16))  # type, digits, and size in bytes
_MAX_DIGITS = 38
_SHORT = 63  # maximum size of a short string, in bytes


def encode_variant(value: Value, schema: Schema | None) -> tuple[bytes, bytes]:
    """Return the metadata and the value of a variant. Debezium's JSON strings are parsed.

    Raises:
        ValueError: The value cannot be encoded, for example because a number has more than 38
            digits, or a string is not valid JSON.
    """
    plain: Any = value
    if value is not None and schema is not None and schema.name == JSON:
        plain = json.loads(plain, parse_float=Decimal)
    names = sorted(set(_names(plain)), key=str.encode)
    return _metadata(names), _value(plain, schema, {name: at for at, name in enumerate(names)})


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Struct):
        for field, inner in value:
            yield field.name
            yield from _names(inner)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


def _metadata(names: list[str]) -> bytes:
    encoded = [name.encode() for name in names]
    total = sum(map(len, encoded))
    size = _size_of(max(total, len(names)))
    head = 1 | 1 << 4 | (size - 1) << 6  # version 1, with sorted names
    return bytes([head]) + _number(len(names), size) + _offsets(encoded, size) + b"".join(encoded)


def _value(value: Any, schema: Schema | None, ids: Mapping[str, int]) -> bytes:
    if value is None:
        return _primitive(_NULL)
    if isinstance(value, Struct):
        return _object(
            {field.name: _value(inner, field.schema, ids) for field, inner in value}, ids
        )
    inner_schema = None if schema is None else schema.value_schema
    if isinstance(value, Mapping):
        return _object(
            {str(key): _value(inner, inner_schema, ids) for key, inner in value.items()}, ids
        )
    if isinstance(value, list):
        return _array([_value(inner, inner_schema, ids) for inner in value])
    return _leaf(value, schema)


def _leaf(value: Any, schema: Schema | None) -> bytes:
    if isinstance(value, bool):
        return _primitive(_TRUE if value else _FALSE)
    if isinstance(value, int):
        temporal = named_temporal_type(schema)
        return _integer(value) if temporal is None else _temporal(value, temporal)
    if isinstance(value, float):
        single = schema is not None and schema.type is Type.FLOAT32
        return (
            _primitive(_FLOAT, struct.pack("<f", value))
            if single
            else _primitive(_DOUBLE, struct.pack("<d", value))
        )
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, str):
        if schema is not None and schema.name in ("uuid", "io.debezium.data.Uuid"):
            return _primitive(_UUID, uuid.UUID(value).bytes)
        return _text(value)
    if isinstance(value, bytes):
        return _primitive(_BINARY, _number(len(value), 4) + value)
    raise ValueError(f"values of type {type(value).__name__} cannot be converted to variants")


def _temporal(value: int, temporal: TemporalType) -> bytes:
    if temporal.kind == "date":
        return _primitive(_DATE, value.to_bytes(4, "little", signed=True))
    if temporal.kind == "timestamp" and temporal.per_second == NANO:
        kind = _LOCAL_NANO_TIMESTAMP if temporal.wall else _NANO_TIMESTAMP
        return _primitive(kind, value.to_bytes(8, "little", signed=True))
    micros = value * MICRO // temporal.per_second
    kind = _TIME if temporal.kind == "time" else _LOCAL_TIMESTAMP if temporal.wall else _TIMESTAMP
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError("is out of range")
    return _primitive(kind, micros.to_bytes(8, "little", signed=True))


def _integer(value: int) -> bytes:
    for kind, size in _INTEGERS:
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return _primitive(kind, value.to_bytes(size, "little", signed=True))
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return _primitive(_DOUBLE, struct.pack("<d", float(value)))  # NaN
    scale = max(0, -exponent)
    if scale <= _MAX_DIGITS and len(digits) + max(0, exponent) <= _MAX_DIGITS:
        number = int("".join(map(str, digits))) * 10 ** max(0, exponent)
        kind, size = next((kind, size) for kind, limit, size in _DECIMALS if number < 10**limit)
        unscaled = -number if sign else number
        return _primitive(kind, bytes([scale]) + unscaled.to_bytes(size, "little", signed=True))
    raise ValueError("has more than 38 digits")


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _SHORT:
        return bytes([1 | len(data) << 2]) + data
    return _primitive(_STRING, _number(len(data), 4) + data)


def _primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


def _object(members: Mapping[str, bytes], ids: Mapping[str, int]) -> bytes:
    names = sorted(members, key=str.encode)
    values = [members[name] for name in names]
    total = sum(map(len, values))
    id_size, size = _size_of(len(ids)), _size_of(total)
    large = len(names) > 255
    head = _OBJECT | (size - 1) << 2 | (id_size - 1) << 4 | large << 6
    numbers = b"".join(_number(ids[name], id_size) for name in names)
    count = _number(len(names), 4 if large else 1)
    return bytes([head]) + count + numbers + _offsets(values, size) + b"".join(values)


def _array(values: list[bytes]) -> bytes:
    size = _size_of(sum(map(len, values)))
    large = len(values) > 255
    head = _ARRAY | (size - 1) << 2 | large << 4
    return (
        bytes([head])
        + _number(len(values), 4 if large else 1)
        + _offsets(values, size)
        + b"".join(values)
    )


def _offsets(values: list[bytes], size: int) -> bytes:
    """Encode the offset of each value, and the end of the last value."""
    offsets, at = [_number(0, size)], 0
    for value in values:
        at += len(value)
        offsets.append(_number(at, size))
    return b"".join(offsets)


def _size_of(number: int) -> int:
    """Return the number of bytes that an offset or ID requires, from 1 to 4."""
    return max(1, (number.bit_length() + 7) // 8)


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")
