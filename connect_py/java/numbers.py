"""Number parsing and narrowing as in Java."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from connect_py.java.strings import to_float32, wrap

_INTEGER = re.compile(r"[+-]?\d+")  # digits of any script
_FLOAT = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?)",
    re.ASCII,
)
_BLANKS: Final = "".join(map(chr, range(33)))  # characters that Java's trim removes


def parse_integer(text: str, bits: int) -> int:
    """Parse an integer of `bits` bits.

    Raises:
        ValueError: It is invalid or out of range.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    number = int(text)
    if wrap(number, bits) != number:
        raise ValueError(text)
    return number


def parse_float(text: str) -> float:
    """Parse a double.

    Raises:
        ValueError: It is invalid.
    """
    match = _FLOAT.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise ValueError(text)
    sign, special, plain, hexadecimal = match.groups()
    try:
        number = float.fromhex(hexadecimal) if hexadecimal else float(plain or special)
    except OverflowError:
        number = math.inf
    return -number if sign == "-" else number


def float_to_integer(number: float, bits: int) -> int:
    """Narrow a float: truncate it, and limit it to the range of the type.

    Types of less than 32 bits are narrowed from 32 bits, as in Java.
    """
    if math.isnan(number):
        return 0
    width = max(bits, 32)
    half = 1 << width - 1
    if not math.isfinite(number):
        return wrap(half - 1 if number > 0 else -half, bits)
    return wrap(max(-half, min(int(number), half - 1)), bits)


def to_integer(number: float | Decimal, bits: int) -> int:
    """Narrow a number of any type."""
    if isinstance(number, float):
        return float_to_integer(number, bits)
    return wrap(int(number), bits)


def to_double(number: float | Decimal, bits: int) -> float:
    """Convert a number to a float of 32 or 64 bits; numbers out of range become infinite."""
    try:
        double = float(number)
    except OverflowError:
        double = math.inf if number > 0 else -math.inf
    return double if bits == 64 else to_float32(double)
