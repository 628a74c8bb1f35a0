"""JSON encoding that produces the same bytes as Java's schemaless JsonConverter.

The output is compact. Control characters use JSON's short escapes where these exist, and characters
above U+FFFF are escaped as surrogate pairs. Java looks up source offsets by the bytes of their
keys, so the encoding must match byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

_ESCAPED = re.compile(r'["\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def encode(value: object) -> bytes:
    """Return the bytes that Java would store for a value.

    Supported types are maps, lists, strings, numbers, booleans, and null.

    Raises:
        TypeError: The value contains an unsupported type, NaN, or infinity.
    """
    return _encode_value(value).encode("utf-8", "replace")


def decode(data: bytes) -> Any:
    """Parse JSON. Integers are returned as `int`, other numbers as `float`.

    Raises:
        ValueError: The data is not valid JSON or not valid UTF-8.
    """
    return json.loads(data.decode("utf-8"))


def _encode_value(value: object) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(lambda match: _escape(match[0]), value) + '"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, Mapping):
        return (
            "{"
            + ",".join(
                f"{_encode_value(str(key))}:{_encode_value(item)}" for key, item in value.items()
            )
            + "}"
        )
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "[" + ",".join(map(_encode_value, value)) + "]"
    raise TypeError(f"cannot encode {type(value).__name__} as JSON")


def _escape(character: str) -> str:
    units = character.encode("utf-16-be").hex().upper()
    return _SHORT.get(character) or "".join(
        f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)
    )


def _double(value: float) -> str:
    """Format a number as Java's `Double.toString` does.

    Absolute values from 0.001 up to (but excluding) 10,000,000 are written without an exponent.
    Every number has a fractional part.
    """
    if value != value or value in (float("inf"), float("-inf")):
        raise TypeError(f"cannot encode {value} as JSON")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        formatted = format(Decimal(repr(value)), "f")
        return formatted if "." in formatted else f"{formatted}.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    formatted = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{formatted[0]}.{formatted[1:] or '0'}E{power}"
