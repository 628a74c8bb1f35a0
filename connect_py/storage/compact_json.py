"""JSON in the byte form of Java's schemaless converter: compact, control characters escaped short,
others raw.

Characters beyond U+FFFF are escaped as two halves, as Java writes them. Java finds source offsets
by the bytes of their keys, so each byte counts.
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
    """Return the bytes that Java would store for a value of maps, lists, texts, numbers, booleans
    and null.

    Raises:
        TypeError: Something else is inside.
    """
    return _text(value).encode("utf-8", "replace")


def decode(data: bytes) -> Any:
    """Parse bytes: integers to `int`, fractions to `float`.

    Raises:
        ValueError: Not JSON, or not UTF-8.
    """
    return json.loads(data.decode("utf-8"))


def _text(value: object) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(lambda found: _escape(found[0]), value) + '"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{_text(str(key))}:{_text(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "[" + ",".join(map(_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no JSON form here")


def _escape(character: str) -> str:
    units = character.encode("utf-16-be").hex().upper()
    return _SHORT.get(character) or "".join(
        f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)
    )


def _double(value: float) -> str:
    """Java's text: plain from 0.001 to 10,000,000, else with an exponent; always with a
    fraction."""
    if value != value or value in (float("inf"), float("-inf")):
        raise TypeError(f"{value} has no JSON form here")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"
