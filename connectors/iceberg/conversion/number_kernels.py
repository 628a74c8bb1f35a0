"""Kernels that convert values to int, long, float, double, and decimal columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.columns.arrow import storage_type
from connect_py.java.strings import double_text, float_text
from connect_py.plurals import pluralize
from connectors.iceberg.conversion.columns import any_true, member
from connectors.iceberg.conversion.kernel import (
    Conversion,
    Kernel,
    Run,
    Unfit,
    convert_each,
    each,
    is_text,
    keep,
)
from connectors.iceberg.conversion.temporal import INT64_MAX, INT64_MIN, temporal_type_of
from connectors.iceberg.conversion.types import VARIABLE_SCALE_DECIMAL

_DIGITS = 37  # numbers with this many digits fit into Arrow decimals, regardless of their sign
_LIMITS = {"int": (-(2**31), 2**31 - 1), "long": (INT64_MIN, INT64_MAX)}
_LONGS = pa.decimal128(19, 0)
_INTEGER_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT_TEXT = re.compile(
    r"[\x00-\x20]*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?[\x00-\x20]*",
    re.ASCII,
)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def integer(at: Conversion) -> Kernel | None:
    """Return the kernel for int and long columns, or None if no conversion is required."""
    type_, arrow_type, target, lenient = at.type, at.arrow_type, str(at.target), at.options.lenient
    if type_ == arrow_type:
        return None
    low, high = _LIMITS[target]
    if pa.types.is_temporal(type_):
        storage = storage_type(type_)
        inner = integer(replace(at, type=storage))
        return lambda data, run: (
            data.view(storage) if inner is None else inner(data.view(storage), run)
        )
    if pa.types.is_integer(type_):
        if type_.bit_width < arrow_type.bit_width:
            return lambda data, _: data.cast(arrow_type)

        def narrow(data: pa.Array, run: Run) -> pa.Array:
            if not lenient:
                fits = pc.and_(pc.greater_equal(data, low), pc.less_equal(data, high))
                data = keep(data, fits, at.column, f"does not fit column type {target}", run)
            return data.cast(arrow_type, safe=False)

        return narrow
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return each(arrow_type, at.column, lambda number: _whole(number, target, lenient=lenient))
    if is_text(type_):
        return each(arrow_type, at.column, lambda text: _whole_of_text(text, target))
    raise Unfit


def floating(at: Conversion) -> Kernel | None:
    """Return the kernel for float and double columns, or None if no conversion is required."""
    type_, arrow_type = at.type, at.arrow_type
    if type_ == arrow_type:
        return None
    if pa.types.is_floating(type_):
        if arrow_type == pa.float64():
            return lambda data, _: data.cast(arrow_type)
        return lambda data, run: _finite(
            data.cast(arrow_type, safe=False), pc.is_inf(data), at, run
        )
    if pa.types.is_integer(type_):  # longs with too many digits are rounded, as in Java
        return lambda data, _: data.cast(arrow_type, safe=False)
    if pa.types.is_decimal(type_):  # cast through a string, which rounds only once
        return lambda data, run: _finite(
            data.cast(pa.string()).cast(arrow_type), pa.scalar(False), at, run
        )
    if is_text(type_):
        plain = each(
            pa.string(), at.column, lambda text: _matched(_FLOAT_TEXT, text, "is not a number")[1]
        )

        def from_text(data: pa.Array, run: Run) -> pa.Array:
            numbers = plain(data, run)  # Arrow rounds these strings only once, even to floats
            return _finite(numbers.cast(arrow_type), pc.ends_with(numbers, "Infinity"), at, run)

        return from_text
    raise Unfit


def _finite(
    result: pa.Array, infinite: pa.BooleanArray | pa.BooleanScalar, at: Conversion, run: Run
) -> pa.Array:
    """Report numbers that overflowed. `infinite` marks numbers that were already infinite."""
    if at.options.lenient:
        return result
    lost = pc.and_not(pc.is_inf(result), infinite)
    return keep(result, pc.invert(lost), at.column, f"does not fit column type {at.target}", run)


def decimal(at: Conversion) -> Kernel | None:
    """Return the kernel for decimal columns, or None if no conversion is required."""
    type_, arrow_type, lenient = at.type, at.arrow_type, at.options.lenient
    if type_ == arrow_type:
        return None

    def rescale(value: Decimal) -> Decimal:
        return _rescaled(value, arrow_type, lenient=lenient)

    if pa.types.is_decimal(type_):
        slow = each(arrow_type, at.column, rescale)
        room = type_.precision + arrow_type.scale - type_.scale <= (
            38 if pa.types.is_decimal128(type_) else 76
        )

        def rescaled(data: pa.Array, run: Run) -> pa.Array:
            try:
                return (
                    data.cast(arrow_type)
                    if room or _have_digits(data, arrow_type)
                    else slow(data, run)
                )
            except pa.ArrowInvalid:
                return slow(data, run)

        return rescaled
    if pa.types.is_integer(type_) and temporal_type_of(at.schema, type_) is None:
        inner = decimal(replace(at, type=_LONGS))
        return lambda data, run: (
            data.cast(_LONGS) if inner is None else inner(data.cast(_LONGS), run)
        )
    if pa.types.is_floating(type_) or is_text(type_):
        text = {pa.float32(): float_text, pa.float64(): double_text}.get(type_, str)
        matched = partial(_matched, _DECIMAL_TEXT, otherwise="is not a decimal number")
        exact = each(arrow_type, at.column, lambda value: rescale(Decimal(matched(text(value))[0])))
        return lambda data, run: _text_decimals(data, arrow_type, run, exact)
    if is_variable_scale(at):
        return each_variable_scale(arrow_type, at.column, rescale)
    raise Unfit


def _have_digits(data: pa.Array, arrow_type: pa.Decimal128Type) -> bool:
    """Return True if no number has too many digits before the decimal point.

    Arrow's casts do not detect all such numbers.
    """
    ends = pc.min_max(data).as_py()
    limit = 10 ** (arrow_type.precision - arrow_type.scale)
    return ends["min"] is None or -limit < ends["min"] <= ends["max"] < limit


def _text_decimals(
    data: pa.Array, arrow_type: pa.Decimal128Type, run: Run, slow: Kernel
) -> pa.Array:
    """Parse strings or floats with Arrow, or with `slow` if a value may overflow.

    Arrow does not detect overflows.
    """
    text = data.cast(pa.string())
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    if longest + arrow_type.scale <= _DIGITS and not any_true(
        pc.match_substring(pc.ascii_lower(text), "e")
    ):
        try:
            return text.cast(arrow_type)
        except pa.ArrowInvalid:
            pass
    return slow(data, run)


def _whole(number: float | Decimal, target: str, *, lenient: bool) -> int:
    low, high = _LIMITS[target]
    # Java's narrowing conversion returns the nearest value that fits, or 0 for NaN.
    if lenient and isinstance(number, float):
        return 0 if math.isnan(number) else int(max(low, min(high, number)))
    if lenient:
        width = (high - low + 1).bit_length() - 1
        return (int(number) - low) % (1 << width) + low
    if not math.isfinite(number) or number != int(number) or not low <= number <= high:
        raise ValueError(f"is not an integer that fits column type {target}")
    return int(number)


def _whole_of_text(text: str, target: str) -> int:
    low, high = _LIMITS[target]
    _matched(_INTEGER_TEXT, text, "is not an integer")
    if not low <= int(text) <= high:
        raise ValueError(f"does not fit column type {target}")
    return int(text)


def _matched(pattern: re.Pattern[str], text: str, otherwise: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(otherwise)
    return match


_MANY_DIGITS = Context(prec=20_000)  # PostgreSQL's numeric values may have thousands of digits


def _rescaled(value: Decimal, arrow_type: pa.Decimal128Type, *, lenient: bool) -> Decimal:
    precision, scale = arrow_type.precision, arrow_type.scale
    try:
        result = value.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _MANY_DIGITS)
    except InvalidOperation as error:
        raise ValueError(f"has more digits than decimal({precision}, {scale})") from error
    if not lenient and result != value:
        raise ValueError(f"has more than {pluralize(scale, 'digit')} after the decimal point")
    if result and result.adjusted() + scale >= precision:
        raise ValueError(f"has more digits than decimal({precision}, {scale})")
    return result


def is_variable_scale(at: Conversion) -> bool:
    """Return True if the values are Debezium's `VariableScaleDecimal` structs."""
    return (
        at.schema is not None
        and at.schema.name == VARIABLE_SCALE_DECIMAL
        and pa.types.is_struct(at.type)
    )


def each_variable_scale(
    arrow_type: pa.DataType, column: str, convert: Callable[[Decimal], Any]
) -> Kernel:
    """Return a kernel that converts `VariableScaleDecimal` structs one by one."""

    def one(pair: tuple[int, bytes]) -> Any:
        number = Decimal(int.from_bytes(pair[1], "big", signed=True))
        return convert(number.scaleb(-pair[0], _MANY_DIGITS))

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        parts = (member(data, None, name)[0].to_pylist() for name in ("scale", "value"))
        pairs = [None if None in pair else pair for pair in zip(*parts, strict=True)]
        return pa.array(convert_each(pairs, one, None, column, run), arrow_type)

    return kernel
