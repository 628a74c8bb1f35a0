"""Parses and narrows numbers as Java does."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from connect_py.java.strings import to_float32, wrap

_INTEGER = re.compile(r"[+-]?\d+")  # accepts digits in any script
_FLOAT = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?)",
    re.ASCII,
)
_BLANKS: Final = "".join(map(chr, range(33)))  # characters that Java's trim removes


def parse_integer(text: str, bits: int) -> int:
    """Parse a signed integer with the specified number of bits.

    Raises:
        ValueError: The string is not an integer, or the integer is out of range.
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
        ValueError: The string is not a number in Java's format.
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
    """Truncate a float and limit it to the range of an integer type.

    As in Java, types with fewer than 32 bits are narrowed from 32 bits.
    """
    if math.isnan(number):
        return 0
    width = max(bits, 32)
    half = 1 << width - 1
    if not math.isfinite(number):
        return wrap(half - 1 if number > 0 else -half, bits)
    return wrap(max(-half, min(int(number), half - 1)), bits)


def to_integer(number: float | Decimal, bits: int) -> int:
    """Narrow a number to an integer with the specified number of bits."""
    if isinstance(number, float):
        return float_to_integer(number, bits)
    return wrap(int(number), bits)


def to_double(number: float | Decimal, bits: int) -> float:
    """Convert a number to a 32-bit or 64-bit float. Numbers out of range become infinite."""
    try:
        double = float(number)
    except OverflowError:
        double = math.inf if number > 0 else -math.inf
    return double if bits == 64 else to_float32(double)
