"""Texts of values as Java prints them. Standard library only."""

from __future__ import annotations

import struct
from decimal import Decimal

from connect_py.api.schema import Struct, Value


def double_text(value: float) -> str:
    """`Double.toString`: `1.0`, `1.0E10`, `NaN`, `Infinity`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return _java_digits(repr(value), value)


def float_text(value: float) -> str:
    """`Float.toString` of a value that a 32-bit float holds: the shortest digits that name it among 32-bit floats."""
    if value != value or value in (float("inf"), float("-inf")):
        return double_text(value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        try:
            if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
                break
        except OverflowError:
            continue
    return _java_digits(text, value)


def _java_digits(text: str, value: float) -> str:
    """Decimal digits of a finite number, set as Java sets them."""
    sign, digits, exponent = Decimal(text).as_tuple()
    minus = "-" if sign else ""
    if value == 0:
        return minus + "0.0"
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # digits before the decimal point
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{shown}"
        whole = shown[:point].ljust(point, "0")
        return f"{minus}{whole}.{shown[point:] or '0'}"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"


def value_text(value: Value) -> str:
    """`Object.toString` of a Connect value, as routing sees it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, list):
        return "[" + ", ".join("null" if v is None else value_text(v) for v in value) + "]"
    if isinstance(value, dict):
        inside = ", ".join(f"{value_text(k)}={'null' if v is None else value_text(v)}" for k, v in value.items())
        return "{" + inside + "}"
    if isinstance(value, Struct):
        return "Struct{" + ",".join(f"{f.name}={value_text(v)}" for f, v in value if v is not None) + "}"
    return str(value)
