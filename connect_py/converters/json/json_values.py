"""Conversion between parsed JSON and Connect values: the row form of JsonConverter.

The row form converts one message at a time; the columnar form converts batches of messages.

A tree is the result of `read_json(..., exact=True)`: None, bool, int, Decimal, str, list, or dict.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    MAX_DECIMAL_SCALE,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    Value,
    check_decimal_scale,
    decimal_scale,
    java_class_name,
    validate_value,
)
from connect_py.converters.json.json_text import write_double, write_json, write_string
from connect_py.java.strings import float_text, to_float32, wrap

Tree: TypeAlias = Any

MILLIS_PER_DAY: Final = 86_400_000
INTEGER_BITS: Final[Mapping[Type, int]] = {
    Type.INT8: 8,
    Type.INT16: 16,
    Type.INT32: 32,
    Type.INT64: 64,
}
NOT_FINITE: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
TIME_RANGE: Final = (
    "Time values must use number of milliseconds greater than 0 and less than 86400000"
)


def node_type(tree: Tree) -> str:
    """Return Jackson's name for the type of a node."""
    if tree is None:
        return "NULL"
    if isinstance(tree, bool):
        return "BOOLEAN"
    if isinstance(tree, str):
        return "STRING"
    if isinstance(tree, list):
        return "ARRAY"
    return "OBJECT" if isinstance(tree, dict) else "NUMBER"


def without_schema(tree: Tree) -> Value:
    """Convert a tree without a schema. Numbers are converted to 64 bits."""
    if isinstance(tree, Decimal):
        return float(tree)
    if isinstance(tree, list):
        return [without_schema(t) for t in tree]
    if isinstance(tree, dict):
        return {name: without_schema(t) for name, t in tree.items()}
    if type(tree) is int:
        return wrap(tree, 64)
    return tree


def unscaled(value: Decimal, scale: int) -> int:
    """Return the unscaled integer of a decimal.

    Raises:
        DataError: The decimal cannot be represented with the scale.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"{value} is not a decimal")
    shift = exponent + scale
    # computing a larger power of ten could take minutes and exhaust memory
    if abs(shift) > 2 * MAX_DECIMAL_SCALE:
        raise DataError(f"A decimal with scale {-exponent} cannot be converted to scale {scale}")
    number: int = int("".join(map(str, digits)))
    if shift >= 0:
        number *= 10**shift
    else:
        number, remainder = divmod(number, 10**-shift)
        if remainder:
            raise DataError(f"{value} cannot be represented with scale {scale}")
    return -number if sign else number


def unscaled_bytes(number: int) -> bytes:
    """Encode an integer as minimal big-endian two's complement, like `BigInteger.toByteArray`."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)


def decimal_of(number: int, scale: int) -> Decimal:
    """Return a decimal with exactly this scale.

    Raises:
        DataError: Arrow does not support the scale.
    """
    check_decimal_scale(scale)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))


@dataclass(frozen=True, slots=True)
class JsonValueReader:
    """Converts trees to values that match a schema.

    Like the Java JsonConverter, it converts most values of the wrong type to zero, false, or null.
    """

    replace_null_with_default: bool = True

    def read(self, schema: Schema | None, tree: Tree) -> Value:
        """Convert a tree.

        Raises:
            DataError: A required value is missing, or a value has a type that the Java
                JsonConverter rejects.
        """
        if schema is None:
            return without_schema(tree)
        if tree is None:
            if schema.default is not None and self.replace_null_with_default:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"Invalid null value for required {schema.type.name} field")
        if schema.name is not None:
            logical = _LOGICAL_READERS.get((schema.name, schema.type))
            if logical is not None:
                return logical(schema, tree)
        if schema.type is Type.STRUCT:
            return self._struct(schema, tree)
        if schema.type is Type.ARRAY:
            items = (
                tree
                if isinstance(tree, list)
                else list(tree.values())
                if isinstance(tree, dict)
                else []
            )
            return [self.read(schema.value_schema, item) for item in items]
        if schema.type is Type.MAP:
            return self._map(schema, tree)
        return _PRIMITIVE_READERS[schema.type](schema, tree)

    def _struct(self, schema: Schema, tree: Tree) -> Struct:
        if not isinstance(tree, dict):
            raise DataError(
                f"Structs should be encoded as JSON objects, but found {node_type(tree)}"
            )
        values = []
        for field in schema.fields:
            value = self.read(field.schema, tree.get(field.name))
            if value is None or field.schema.type in (Type.ARRAY, Type.MAP):
                # a value of the wrong type may have been converted to null
                validate_value(field.schema, value, field.name)
            values.append(value)
        return Struct(schema, values)

    def _map(self, schema: Schema, tree: Tree) -> dict[Value, Value]:
        assert schema.key_schema is not None
        if schema.key_schema.type is Type.STRING:
            if not isinstance(tree, dict):
                raise DataError(
                    f"Maps with string fields should be encoded as JSON objects, but found "
                    f"{node_type(tree)}"
                )
            return {name: self.read(schema.value_schema, item) for name, item in tree.items()}
        if not isinstance(tree, list):
            raise DataError(
                f"Maps with non-string fields should be encoded as JSON array of tuples, but found "
                f"{node_type(tree)}"
            )
        result: dict[Value, Value] = {}
        for entry in tree:
            if not isinstance(entry, list):
                raise DataError(
                    f"Found invalid map entry instead of array tuple: {node_type(entry)}"
                )
            if len(entry) != 2:
                raise DataError(
                    f"Found invalid map entry, expected length 2 but found :{len(entry)}"
                )
            key = self.read(schema.key_schema, entry[0])
            try:
                result[key] = self.read(schema.value_schema, entry[1])
            except TypeError as error:
                raise DataError("map keys must be primitive") from error
        return result


def _read_integer(schema: Schema, tree: Tree) -> int:
    if isinstance(tree, Decimal):
        exponent = tree.as_tuple().exponent
        if not isinstance(exponent, int) or exponent >= 64 or tree.adjusted() < 0:
            return 0  # a multiple of 2^64, which wraps to 0, or a fraction below 1
        tree = int(tree)
    elif isinstance(tree, bool) or not isinstance(tree, int):
        return 0
    return wrap(tree, INTEGER_BITS[schema.type])


def _as_double(tree: Tree) -> float:
    if isinstance(tree, str):
        return NOT_FINITE.get(tree, 0.0)
    if isinstance(tree, bool) or not isinstance(tree, int | float | Decimal):
        return 0.0
    try:
        return float(tree)
    except OverflowError:
        return math.inf if tree > 0 else -math.inf


def _as_float(tree: Tree) -> float:
    """Return the 32-bit float that is nearest to an exact number.

    If the nearest double is halfway between two 32-bit floats, the exact number determines the
    result.
    """
    double = _as_double(tree)
    if (
        isinstance(tree, bool)
        or not isinstance(tree, int | Decimal)
        or not math.isfinite(double)
        or tree == double
    ):
        return to_float32(double)
    below, above = (to_float32(math.nextafter(double, end)) for end in (-math.inf, math.inf))
    ends = [max(-_BEYOND_FLOATS, min(_BEYOND_FLOATS, end)) for end in (below, above)]
    if sum(ends) != 2 * double:
        return to_float32(double)
    return above if tree > double else below


# used in place of infinity: the number that would follow the largest 32-bit float
_BEYOND_FLOATS: Final = 2.0**128


def _read_base64(tree: Tree) -> bytes | None:
    """Decode base64 like Jackson.

    Any group of four characters may be padded and preceded by whitespace.
    """
    if not isinstance(tree, str):
        return None
    if len(tree) % 4 == 0 and _BASE64_GROUP.fullmatch(tree, len(tree) - 4):
        with contextlib.suppress(binascii.Error):
            return binascii.a2b_base64(tree, strict_mode=True)
    if not _BASE64.fullmatch(tree):
        raise ValueError("invalid base64")
    return b"".join([binascii.a2b_base64(group[0]) for group in _BASE64_GROUP.finditer(tree)])


_GROUP: Final = "[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)"
_BASE64: Final = re.compile(rf"(?:[\0-\x20]*{_GROUP})*[\0-\x20]*")
_BASE64_GROUP: Final = re.compile(_GROUP)


def _read_bytes(schema: Schema, tree: Tree) -> bytes | None:
    try:
        return _read_base64(tree)
    except (binascii.Error, ValueError) as error:
        raise DataError("Invalid bytes field") from error


_PRIMITIVE_READERS: Mapping[Type, Callable[[Schema, Tree], Value]] = {
    **dict.fromkeys(INTEGER_BITS, _read_integer),
    Type.FLOAT32: lambda _, tree: _as_float(tree),
    Type.FLOAT64: lambda _, tree: _as_double(tree),
    Type.BOOLEAN: lambda _, tree: tree is True,
    Type.STRING: lambda _, tree: tree if isinstance(tree, str) else None,
    Type.BYTES: _read_bytes,
}


def _read_decimal(schema: Schema, tree: Tree) -> Decimal:
    if isinstance(tree, int) and not isinstance(tree, bool):
        return Decimal(tree)
    if isinstance(tree, Decimal):
        exponent = tree.as_tuple().exponent
        check_decimal_scale(-exponent if isinstance(exponent, int) else 0)
        return tree if tree else tree.copy_abs()  # BigDecimal has no negative zero
    if not isinstance(tree, str):
        raise DataError(
            f"Invalid type for Decimal, underlying representation should be numeric or bytes but "
            f"was {node_type(tree)}"
        )
    try:
        data = _read_base64(tree) or b""
        if not data:
            raise ValueError("Zero length BigInteger")
        return decimal_of(int.from_bytes(data, "big", signed=True), decimal_scale(schema))
    except (binascii.Error, ValueError, DataError) as error:
        raise DataError("Invalid bytes for Decimal field") from error


def _read_int32(name: str, tree: Tree) -> int:
    if isinstance(tree, bool) or not isinstance(tree, int) or wrap(tree, 32) != tree:
        raise DataError(
            f"Invalid type for {name}, underlying representation should be integer but was "
            f"{node_type(tree)}"
        )
    return tree


def _read_date(schema: Schema, tree: Tree) -> int:
    return _read_int32("Date", tree)


def _read_time(schema: Schema, tree: Tree) -> int:
    value = _read_int32("Time", tree)
    if not 0 <= value <= MILLIS_PER_DAY:
        raise DataError(TIME_RANGE)
    return value


def _read_timestamp(schema: Schema, tree: Tree) -> int:
    if isinstance(tree, bool) or not isinstance(tree, int):
        raise DataError(
            f"Invalid type for Timestamp, underlying representation should be integral but was "
            f"{node_type(tree)}"
        )
    return wrap(tree, 64)


_LOGICAL_READERS: Mapping[tuple[str, Type], Callable[[Schema, Tree], Value]] = {
    (DECIMAL, Type.BYTES): _read_decimal,
    (DATE, Type.INT32): _read_date,
    (TIME, Type.INT32): _read_time,
    (TIMESTAMP, Type.INT64): _read_timestamp,
}


@dataclass(frozen=True, slots=True)
class JsonValueWriter:
    """Writes values as JSON, in the same format as the Java JsonConverter."""

    replace_null_with_default: bool = True
    numeric_decimals: bool = False

    def write(self, schema: Schema | None, value: Value) -> str:
        """Return a value as JSON.

        Raises:
            DataError: The value does not match its schema, or requires a schema.
        """
        if schema is None:
            return self._schemaless(value)
        if value is None:
            if schema.default is not None and self.replace_null_with_default:
                return self.write(schema, schema.default)
            if schema.optional:
                return "null"
            raise DataError(
                "Conversion error: null value for field that is required and has no default value"
            )
        try:
            return self._write(schema, value)
        except (TypeError, AttributeError, ValueError) as error:
            raise DataError(
                f"Invalid type for {schema.type.name}: class {java_class_name(value)}"
            ) from error

    def _write(self, schema: Schema, value: Value) -> str:
        kind = schema.type
        if schema.name == DECIMAL and kind is Type.BYTES:
            return self._decimal(schema, value)
        if schema.name == TIME and kind is Type.INT32 and not 0 <= value <= MILLIS_PER_DAY:
            raise DataError(TIME_RANGE)
        if kind in INTEGER_BITS:
            return _checked(value, int, write_json)
        if kind is Type.STRING:
            return _checked(value, str, write_string)
        if kind is Type.BOOLEAN:
            return _checked(value, bool, write_json)
        if kind is Type.FLOAT64:
            return write_double(value)
        if kind is Type.FLOAT32:
            text = float_text(value)
            return text if math.isfinite(value) else f'"{text}"'
        if kind is Type.BYTES:
            return f'"{base64.b64encode(value).decode()}"'
        if kind is Type.STRUCT:
            if value.schema != schema:
                raise DataError("Mismatching schema.")
            members = [f"{write_string(f.name)}:{self.write(f.schema, v)}" for f, v in value]
            return "{" + ",".join(members) + "}"
        assert schema.value_schema is not None
        if kind is Type.ARRAY:
            return "[" + ",".join([self.write(schema.value_schema, v) for v in value]) + "]"
        assert schema.key_schema is not None
        return self._map(schema.key_schema, schema.value_schema, value)

    def _map(self, keys: Schema, values: Schema, value: Value) -> str:
        if keys.type is Type.STRING:
            members = [f"{write_string(k)}:{self.write(values, v)}" for k, v in value.items()]
            return "{" + ",".join(members) + "}"
        pairs = [f"[{self.write(keys, k)},{self.write(values, v)}]" for k, v in value.items()]
        return "[" + ",".join(pairs) + "]"

    def _decimal(self, schema: Schema, value: Value) -> str:
        exponent = value.as_tuple().exponent
        if self.numeric_decimals:
            return format(value, "f")
        scale = decimal_scale(schema)
        if -exponent != scale:
            raise DataError(
                "Decimal value has mismatching scale for given Decimal schema. "
                f"Schema has scale {scale}, value has scale {-exponent}."
            )
        return f'"{base64.b64encode(unscaled_bytes(unscaled(value, scale))).decode()}"'

    def _schemaless(self, value: Value) -> str:
        if isinstance(value, dict) and not all(isinstance(k, str) for k in value):
            return (
                "["
                + ",".join(
                    [f"[{self._schemaless(k)},{self._schemaless(v)}]" for k, v in value.items()]
                )
                + "]"
            )
        if isinstance(value, dict):
            return (
                "{"
                + ",".join([f"{write_string(k)}:{self._schemaless(v)}" for k, v in value.items()])
                + "}"
            )
        if isinstance(value, list):
            return "[" + ",".join([self._schemaless(v) for v in value]) + "]"
        if isinstance(value, bytes | bytearray | memoryview):
            return f'"{base64.b64encode(value).decode()}"'
        if isinstance(value, Struct):
            return self.write(value.schema, value)
        if value is None or isinstance(value, bool | int | float | str):
            return write_json(value)
        raise DataError(
            f"Java class class {java_class_name(value)} does not have corresponding schema type."
        )


def _checked(value: Value, kind: type, write: Callable[[Any], str]) -> str:
    if type(value) is not kind:
        raise TypeError(kind.__name__)
    return write(value)
