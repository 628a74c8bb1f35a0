"""Numbers as Java reads them from text and narrows them."""

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
_BLANKS: Final = "".join(map(chr, range(33)))  # what Java's trim takes off


def parse_integer(text: str, bits: int) -> int:
    """Read a whole number of so many bits. ValueError: it is none, or too large."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    number = int(text)
    if wrap(number, bits) != number:
        raise ValueError(text)
    return number


def parse_float(text: str) -> float:
    """Read a double. ValueError: it is none."""
    found = _FLOAT.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise ValueError(text)
    sign, named, plain, hexadecimal = found.groups()
    try:
        number = float.fromhex(hexadecimal) if hexadecimal else float(plain or named)
    except OverflowError:
        number = math.inf
    return -number if sign == "-" else number


def float_to_integer(number: float, bits: int) -> int:
    """Narrow: toward zero, to the ends of the range; for less than 32 bits by way of 32, as Java
    does."""
    if math.isnan(number):
        return 0
    width = max(bits, 32)
    half = 1 << width - 1
    if not math.isfinite(number):
        return wrap(half - 1 if number > 0 else -half, bits)
    return wrap(max(-half, min(int(number), half - 1)), bits)


def to_integer(number: float | Decimal, bits: int) -> int:
    """Narrow a number of any kind."""
    if isinstance(number, float):
        return float_to_integer(number, bits)
    return wrap(int(number), bits)


def to_double(number: float | Decimal, bits: int) -> float:
    """Make a floating number of 32 or 64 bits; what is too large becomes infinite."""
    try:
        made = float(number)
    except OverflowError:
        made = math.inf if number > 0 else -math.inf
    return made if bits == 64 else to_float32(made)
