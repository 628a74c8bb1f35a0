"""Parses and formats values of unknown type, like `org.apache.kafka.connect.data.Values`."""

from __future__ import annotations

import base64
import math
import re
from decimal import Decimal
from typing import Any

from connect_py.api.schema import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAX_DECIMAL_SCALE,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    SchemaAndValue,
    Struct,
    Type,
    Value,
    array,
    date,
    decimal,
    map_of,
    time,
    timestamp,
)
from connect_py.java.civil_days import date_of, days_of
from connect_py.java.strings import java_text, to_float32

# a number must not start with a decimal point
_NUMBER = re.compile(r"(?!\.)[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)\.(\d{3})Z", re.ASCII)
_TOKEN = re.compile(
    r'\s*((?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d\.\d{3}Z|"(?:[^"\\]|\\.)*"|[\[\]{},:]|(?:[^"\[\]{},:\\]|\\.)+)',
    re.DOTALL,
)
_INTEGERS = ((8, INT8), (16, INT16), (32, INT32), (64, INT64))
_WIDTHS = [INT8, INT16, INT32, INT64, FLOAT32, FLOAT64]
# Larger numbers are not expanded to test whether they are integers.
_LARGEST_INTEGRAL = Decimal("1e19")
_MILLIS_PER_DAY = 86_400_000


class _NoValueError(ValueError):
    """The string is not an array or a map."""


def parse_string(text: str) -> SchemaAndValue:
    """Parse a value and infer its type. Anything unrecognized is a STRING, including its quotes.

    Empty arrays and maps, and arrays whose items have no common type, have no schema.
    """
    if not text:
        return SchemaAndValue(STRING, "")
    scalar = _scalar(text.strip())
    if scalar is not None:
        return scalar
    if text.strip()[:1] in ("[", "{"):
        try:
            return _Parser(text).whole()
        except (_NoValueError, RecursionError):
            pass
    return SchemaAndValue(STRING, text)


def _scalar(text: str) -> SchemaAndValue | None:
    if text == "null":
        return NULL
    if text in ("true", "false"):
        return SchemaAndValue(BOOLEAN, text == "true")
    if _NUMBER.fullmatch(text):
        return _number(text)
    return _temporal(text)


def _number(text: str) -> SchemaAndValue:
    number = Decimal(text)
    size = abs(number)
    if (size == 0 or 1 <= size <= _LARGEST_INTEGRAL) and number == number.to_integral_value():
        value = int(number)
        for bits, schema in _INTEGERS:
            if -(1 << bits - 1) <= value < 1 << bits - 1:
                return SchemaAndValue(schema, value)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent:
        double = float(number)
        single = to_float32(double)
        if math.isfinite(single):
            return SchemaAndValue(FLOAT32, single)
        if math.isfinite(double):
            return SchemaAndValue(FLOAT64, double)
    if abs(exponent) > MAX_DECIMAL_SCALE:
        return SchemaAndValue(STRING, text)
    return SchemaAndValue(decimal(-exponent), number)


def _temporal(text: str) -> SchemaAndValue | None:
    if len(text) == 10 and (match := _DATE.fullmatch(text)):
        return SchemaAndValue(date(), _days(match))
    if len(text) == 13 and (match := _TIME.fullmatch(text)) and _millis(match) <= _MILLIS_PER_DAY:
        return SchemaAndValue(time(), _millis(match))
    if len(text) == 24 and text[10] == "T":
        day, clock = _DATE.fullmatch(text[:10]), _TIME.fullmatch(text[11:])
        if day and clock:
            return SchemaAndValue(timestamp(), _days(day) * _MILLIS_PER_DAY + _millis(clock))
    return None


def _days(match: re.Match[str]) -> int:
    """Return the days since the epoch. Months and days overflow, as in a lenient calendar."""
    year, month, day = map(int, match.groups())
    years, month = divmod(month - 1, 12)
    return days_of(year + years, month + 1, 1) + day - 1


def _millis(match: re.Match[str]) -> int:
    hours, minutes, seconds, millis = map(int, match.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis


class _Parser:
    """Parses one array or map."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise _NoValueError(text)
            self._tokens.append(match[1].strip())
            at = match.end()
        self._at = 0

    def whole(self) -> SchemaAndValue:
        value = self._value()
        if self._at < len(self._tokens):
            raise _NoValueError("unexpected content after the value")
        return value

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise _NoValueError("unexpected end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, token: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == token:
            self._at += 1
            return True
        return False

    def _value(self) -> SchemaAndValue:
        token = self._next()
        if token == "[":
            return self._array()
        if token == "{":
            return self._map()
        if not token or token in "]},:":
            raise _NoValueError(token)
        if token[0] == '"':
            return _temporal(token[1:-1]) or SchemaAndValue(STRING, token[1:-1])
        scalar = _scalar(token)
        if scalar is None:
            raise _NoValueError(token)  # strings must be quoted inside arrays and maps
        return scalar

    def _array(self) -> SchemaAndValue:
        items: list[SchemaAndValue] = []
        if not self._skip("]"):
            while True:
                items.append(self._value())
                if self._skip("]"):
                    break
                if not self._skip(","):
                    raise _NoValueError("items without a comma")
                if self._skip("]"):
                    break
        common, values = _aligned(items)
        return SchemaAndValue(None if common is None else array(common), values)

    def _map(self) -> SchemaAndValue:
        keys: list[SchemaAndValue] = []
        values: list[SchemaAndValue] = []
        while not self._skip("}"):
            key = self._value()
            if not self._skip(":") or isinstance(key.value, list | dict):
                raise _NoValueError("an entry without a value")
            keys.append(key)
            values.append(self._value())
            if not self._skip(","):
                if self._skip("}"):
                    break
                raise _NoValueError("entries without a comma")
        key_schema, plain_keys = _aligned(keys)
        value_schema, plain_values = _aligned(values)
        schema = (
            None if key_schema is None or value_schema is None else map_of(key_schema, value_schema)
        )
        return SchemaAndValue(schema, dict(zip(plain_keys, plain_values, strict=True)))


def _aligned(items: list[SchemaAndValue]) -> tuple[Schema | None, list[Value]]:
    """Return the common schema of all items, and the values with widened numbers.

    The schema is None if the items have no common schema. As in Java, nulls are rejected if all
    other items have the same type.
    """
    values = [item.value for item in items]
    schemas = {item.schema for item in items if item.value is not None}
    if not schemas or None in schemas:
        return None, values
    if len(schemas) == 1:
        common = schemas.pop()
    elif all(s in _WIDTHS for s in schemas):
        common = max((s for s in schemas if s is not None), key=_WIDTHS.index)
    else:
        return None, values
    assert common is not None
    if None in values:
        raise _NoValueError("null among values of one type")
    return common, [float(v) for v in values] if common in (FLOAT32, FLOAT64) else values


def to_text(schema: Schema | None, value: Value) -> str:
    """Format a value for `parse_string`. Strings are quoted only inside arrays and maps."""
    return value if isinstance(value, str) else _embedded(schema, value)


def _embedded(schema: Schema | None, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        return "{" + ",".join(f'"{f.name}":{_embedded(f.schema, v)}' for f, v in value) + "}"
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return "[" + ",".join(_embedded(items, v) for v in value) + "]"
    if isinstance(value, dict):
        keys, items = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return (
            "{"
            + ",".join(f"{_embedded(keys, k)}:{_embedded(items, v)}" for k, v in value.items())
            + "}"
        )
    if schema is not None and isinstance(value, int):
        if schema.name == DATE and schema.type is Type.INT32:
            return _iso_timestamp(value * _MILLIS_PER_DAY)[:-14]
        if schema.name == TIME and schema.type is Type.INT32:
            return _iso_timestamp(value)[-13:]
        if schema.name == TIMESTAMP and schema.type is Type.INT64:
            return _iso_timestamp(value)
    return java_text(schema, value)


def _iso_timestamp(millis: int) -> str:
    """Format milliseconds since the epoch as an ISO 8601 timestamp in UTC, for any year."""
    days, rest = divmod(millis, _MILLIS_PER_DAY)
    year, month, day = date_of(days)
    seconds, millis = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{millis:03d}Z"
