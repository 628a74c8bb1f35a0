"""Formats values as Java's `toString` methods do, and narrows numbers."""

from __future__ import annotations

import base64
import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from connect_py.api.schema import DATE, TIME, TIMESTAMP, Schema, Struct, Type, Value

# Java prints doubles in this range without an exponent
_PLAIN_LOW, _PLAIN_HIGH = (Decimal("0.001"), Decimal(10_000_000))
_FLOAT32 = struct.Struct("<f")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def java_text(schema: Schema | None, value: Value) -> str:
    """Return the result of `Object.toString` for a value.

    The schema, if known, identifies 32-bit floats, dates, and times. Dates and times are formatted
    in UTC. Bytes are encoded in base64. Java would return an identity hash instead.
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return (
            float_text(value)
            if schema is not None and schema.type is Type.FLOAT32
            else double_text(value)
        )
    if isinstance(value, Struct):
        return (
            "Struct{"
            + ",".join(f"{f.name}={java_text(f.schema, v)}" for f, v in value if v is not None)
            + "}"
        )
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return "[" + ", ".join(java_text(items, v) for v in value) + "]"
    if isinstance(value, dict):
        keys, items = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return (
            "{"
            + ", ".join(f"{java_text(keys, k)}={java_text(items, v)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int) and schema is not None and schema.name in (DATE, TIME, TIMESTAMP):
        try:
            return _date_text(
                timedelta(days=value) if schema.name == DATE else timedelta(milliseconds=value)
            )
        except OverflowError:  # before year 1 or after year 9999
            return str(value)
    return str(value)


def _date_text(since: timedelta) -> str:
    """Return the result of Java's `Date.toString` in UTC."""
    moment = _EPOCH + since
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day} {month} {moment:%d %H:%M:%S} UTC {moment.year:04}"


def decimal_text(value: Decimal) -> str:
    """Return the result of Java's `BigDecimal.toString`."""
    # Python uses the same rules: it writes an exponent for negative scales and tiny numbers
    return str(value)


def double_text(value: float) -> str:
    """Return the result of Java's `Double.toString`.

    It contains the fewest digits that identify the number. Absolute values that are less than
    10^-3, or at least 10^7, are written with an exponent.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return _java_number(repr(value))


def float_text(value: float) -> str:
    """Return the result of Java's `Float.toString`, with the fewest digits that identify it."""
    if not math.isfinite(value):
        return double_text(value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if to_float32(float(text)) == value:
            return _java_number(repr(float(text)))
    return _java_number(repr(value))


def _java_number(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    number = Decimal(text.lstrip("-"))
    if number == 0:
        return sign + "0.0"
    _, digit_tuple, exponent = number.as_tuple()
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    assert isinstance(exponent, int)
    point = len(digit_tuple) + exponent  # number of digits before the decimal point
    if _PLAIN_LOW <= number < _PLAIN_HIGH:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def to_float32(value: float) -> float:
    """Round to the nearest 32-bit float. As in Java, numbers out of range become infinite."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def wrap(value: int, bits: int) -> int:
    """Return the low bits of an integer, as a signed number of that width."""
    half = 1 << (bits - 1)
    return (value + half & (1 << bits) - 1) - half
