"""Kernels into int, long, float, double and decimal columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import are_between_floats, storage_type
from connect_py.api.java_text import double_text, float_text
from connect_py.api.schema import Schema
from connectors.iceberg.staging.columns import any_true, as_array, characters_of, member
from connectors.iceberg.staging.kernels.incoming_moment import Moment
from connectors.iceberg.staging.kernels.kernel import (
    ConversionOptions,
    Kernel,
    Run,
    Unfit,
    convert_each,
    each,
    is_text,
    keep,
    try_cast,
    within,
)
from connectors.iceberg.staging.timestamps import INT64_MAX, INT64_MIN
from connectors.iceberg.staging.types import VARIABLE_SCALE_DECIMAL

_DIGITS = 37  # what always has room in Arrow's decimals, whatever the sign
LIMITS = {"int": (-(2**31), 2**31 - 1), "long": (INT64_MIN, INT64_MAX)}
_INTEGER_TEXT = r"^[+-]?[0-9]+$"
_FLOAT_TEXT = re.compile(
    r"[\x00-\x20]*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?[\x00-\x20]*", re.ASCII
)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class NumberKernels:
    """Makes kernels. Each method answers for one kind of target type."""

    def __init__(self, options: ConversionOptions) -> None:
        self._options = options

    def integer(self, target: str, wanted: pa.DataType, type_: pa.DataType, column: str) -> Kernel | None:
        if type_ == wanted:
            return None
        low, high = LIMITS[target]
        lenient = self._options.lenient
        if pa.types.is_temporal(type_):
            inner = self.integer(target, wanted, storage_type(type_), column)
            storage = storage_type(type_)
            return lambda data, run: (
                data.view(storage) if inner is None else inner(data.view(storage), run)
            )  # fmt: skip
        if pa.types.is_integer(type_):
            if type_.bit_width < wanted.bit_width:
                return lambda data, _: data.cast(wanted)

            def narrow(data: pa.Array, run: Run) -> pa.Array:
                if not lenient:
                    data = within(data, low, high, column, f"does not fit a {target} column", run)
                return data.cast(wanted, safe=False)

            return narrow
        if pa.types.is_floating(type_):

            def whole(data: pa.Array, run: Run) -> pa.Array:
                data = data.cast(pa.float64())
                if lenient:
                    return _saturated(data, low, high, wanted)
                fits = pc.and_(pc.equal(data, pc.trunc(data)), pc.is_finite(data))
                fits = pc.and_(fits, pc.and_(pc.greater_equal(data, float(low)), pc.less(data, float(high + 1))))
                data = keep(data, fits, column, f"is no whole number that fits a {target} column", run)
                return data.cast(wanted, safe=False)

            return whole
        if pa.types.is_decimal(type_):
            return each(wanted, column, lambda v: _whole(v, low, high, lenient=lenient))
        if is_text(type_):

            def from_text(data: pa.Array, run: Run) -> pa.Array:
                data = data.cast(pa.string())
                try:
                    made = data.cast(wanted)
                    if not any_true(pc.match_substring(data, "x", ignore_case=True)):  # Arrow reads hexadecimal digits
                        return made
                except pa.ArrowInvalid:
                    pass
                data = keep(data, pc.match_substring_regex(data, _INTEGER_TEXT), column, "is no whole number", run)
                return slow_text(data, run)

            slow_text = each(wanted, column, lambda v: _in_limits(int(v), low, high))
            return from_text
        raise Unfit

    def floating(self, wanted: pa.DataType, type_: pa.DataType, column: str) -> Kernel | None:
        if type_ == wanted:
            return None
        if pa.types.is_floating(type_):
            if wanted == pa.float64():
                return lambda data, _: data.cast(wanted)

            def narrow(data: pa.Array, run: Run) -> pa.Array:
                made = data.cast(wanted, safe=False)
                return self._finite(made, pc.is_inf(data), column, run)

            return narrow
        if pa.types.is_integer(type_):  # rounds, as Java does: a long has more digits than a double
            return lambda data, _: data.cast(wanted, safe=False)
        if pa.types.is_decimal(type_):
            nearest = _nearest_double if wanted == pa.float64() else _nearest_float

            def from_decimal(data: pa.Array, run: Run) -> pa.Array:
                made = nearest(data)
                if made is None:
                    made = data.cast(pa.string()).cast(wanted)
                return self._finite(made, None, column, run)

            return from_decimal
        if is_text(type_):
            plain = each(pa.string(), column, _plain_float)  # Arrow's cast of these rounds once, also into floats

            def from_text(data: pa.Array, run: Run) -> pa.Array:
                texts = plain(data, run)
                return self._finite(texts.cast(wanted), pc.ends_with(texts, "Infinity"), column, run)

            return from_text
        raise Unfit

    def _finite(self, made: pa.Array, infinite: pa.BooleanArray | None, column: str, run: Run) -> pa.Array:
        """Refuse numbers that became infinite; `infinite`: those that were so before, None: none."""
        if self._options.lenient:
            return made
        lost = pc.is_inf(made)
        if infinite is not None:
            lost = pc.and_not(lost, infinite)
        if not any_true(lost):
            return made
        name = "double" if made.type == pa.float64() else "float"
        return keep(made, pc.invert(lost), column, f"does not fit a {name} column", run)

    def decimal(
        self,
        precision: int,
        scale: int,
        schema: Schema | None,
        type_: pa.DataType,
        moment: Moment | None,
        column: str,
    ) -> Kernel | None:
        wanted = pa.decimal128(precision, scale)
        if type_ == wanted:
            return None
        lenient = self._options.lenient

        def rescale(value: Decimal) -> Decimal:
            return _rescaled(value, precision, scale, lenient=lenient)

        if pa.types.is_decimal(type_):
            slow = each(wanted, column, rescale)
            room = 38 if pa.types.is_decimal128(type_) else 76
            if type_.precision + scale - type_.scale <= room:
                return lambda data, run: try_cast(data, wanted, run, slow)
            return lambda data, run: (
                try_cast(data, wanted, run, slow) if _have_digits(data, wanted) else slow(data, run)
            )  # fmt: skip
        if pa.types.is_integer(type_) and moment is None:
            slow_int = each(wanted, column, lambda v: rescale(Decimal(v)))

            def from_integer(data: pa.Array, run: Run) -> pa.Array:
                if scale > 38 - 19 and not _have_digits(data, wanted):
                    return slow_int(data, run)
                return try_cast(data.cast(pa.decimal128(19, 0)), wanted, run, slow_int)

            return from_integer
        if pa.types.is_floating(type_):
            text = float_text if type_ == pa.float32() else double_text
            slow_float = each(wanted, column, lambda v: rescale(_decimal_of_text(text(v))))
            return lambda data, run: _text_decimals(data.cast(pa.string()), wanted, run, slow_float, data)
        if is_text(type_):
            slow_text = each(wanted, column, lambda v: rescale(_decimal_of_text(v)))
            return lambda data, run: _text_decimals(data.cast(pa.string()), wanted, run, slow_text, data)
        if schema is not None and schema.name == VARIABLE_SCALE_DECIMAL and pa.types.is_struct(type_):
            return each_variable_scale(wanted, column, rescale)
        raise Unfit


def _saturated(data: pa.DoubleArray, low: int, high: int, wanted: pa.DataType) -> pa.Array:
    """Java's narrowing: toward zero, no number is 0, and what is too large or small the end of the range."""
    numbers = as_array(pc.if_else(pc.is_nan(data), 0.0, data))
    late = pc.greater_equal(numbers, float(high + 1))  # the last long is no double, the number after it is one
    early = pc.less_equal(numbers, float(low))
    inside = as_array(pc.if_else(pc.or_(late, early), 0.0, numbers)).cast(wanted, safe=False)
    made = pc.if_else(late, pa.scalar(high, wanted), inside)
    return as_array(pc.if_else(early, pa.scalar(low, wanted), made))


def _nearest_double(data: pa.Array) -> pa.DoubleArray | None:
    """As `BigDecimal.doubleValue`; None: too many digits for one division of exact numbers, which rounds once."""
    precision, scale = data.type.precision, data.type.scale
    if not pa.types.is_decimal128(data.type) or abs(scale) > 22:  # 10**22 is the last power of ten that is a double
        return None
    unscaled = pa.Array.from_buffers(pa.decimal128(precision, 0), len(data), data.buffers(), offset=data.offset)
    if precision > 15:
        ends = pc.min_max(unscaled).as_py()
        if ends["min"] is not None and not -(2**53) <= ends["min"] <= ends["max"] <= 2**53:
            return None
    numbers, power = unscaled.cast(pa.float64()), float(10 ** abs(scale))
    return pc.multiply(numbers, power) if scale < 0 else pc.divide(numbers, power)


def _nearest_float(data: pa.Array) -> pa.FloatArray | None:
    """As `BigDecimal.floatValue`; None: a double lies halfway between two floats and does not tell which."""
    doubles = _nearest_double(data)
    return None if doubles is None or are_between_floats(doubles) else doubles.cast(pa.float32(), safe=False)


def _have_digits(data: pa.Array, wanted: pa.Decimal128Type) -> bool:
    """Whether no number has more digits before the point than the column; Arrow's casts do not notice all of these."""
    ends = pc.min_max(data).as_py()
    limit = 10 ** (wanted.precision - wanted.scale)
    return ends["min"] is None or -limit < ends["min"] <= ends["max"] < limit


def _text_decimals(text: pa.Array, wanted: pa.Decimal128Type, run: Run, slow: Kernel, data: pa.Array) -> pa.Array:
    """Decimals from text that Arrow reads without loss; the rest by `slow` from the values themselves."""
    if _is_exact(text, wanted.scale):
        try:
            return text.cast(wanted)
        except pa.ArrowInvalid:
            return slow(data, run)
    exact = _exact_rows(text, wanted.scale)
    try:
        made = as_array(pc.if_else(exact, text, pa.scalar(None, text.type))).cast(wanted)
    except pa.ArrowInvalid:
        return slow(data, run)
    rest = as_array(pc.if_else(exact, pa.scalar(None, data.type), data))
    return as_array(pc.coalesce(made, slow(rest, run)))


def _is_exact(text: pa.StringArray, scale: int) -> bool:
    """Whether Arrow reads all texts without an overflow on their way to this scale, which it would not notice."""
    longest = pc.max(pc.binary_length(text)).as_py()
    if longest is None:
        return True
    if longest + scale > _DIGITS:
        return False
    characters = characters_of(text)
    return b"e" not in characters and b"E" not in characters


def _exact_rows(text: pa.StringArray, scale: int) -> pa.BooleanArray:
    """The same by row, and closer: digits after the point need no room twice."""
    length, point = pc.binary_length(text), pc.find_substring(text, ".")
    before = pc.if_else(pc.less(point, 0), length, point)
    short = pc.and_(pc.less_equal(length, _DIGITS), pc.less_equal(before, _DIGITS - scale))
    return pc.and_not(short, pc.match_substring(pc.ascii_lower(text), "e"))


def _in_limits(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError("is too large for the column")
    return value


def _whole(value: Decimal, low: int, high: int, *, lenient: bool) -> int:
    if lenient:
        width = (high - low + 1).bit_length() - 1
        return (int(value) - low) % (1 << width) + low
    if value != value.to_integral_value():
        raise ValueError("is no whole number")
    return _in_limits(int(value), low, high)


def _plain_float(text: str) -> str:
    match = _FLOAT_TEXT.fullmatch(text)
    if match is None:
        raise ValueError("is no number")
    return match[1]


def _decimal_of_text(text: str) -> Decimal:
    if _DECIMAL_TEXT.fullmatch(text) is None:
        raise ValueError("is no decimal number")
    return Decimal(text)


_MANY_DIGITS = Context(prec=20_000)  # Postgres' numeric may have that many


def _rescaled(value: Decimal, precision: int, scale: int, *, lenient: bool) -> Decimal:
    try:
        made = value.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _MANY_DIGITS)
    except InvalidOperation as error:
        raise ValueError(f"has more digits than decimal({precision}, {scale})") from error
    if not lenient and made != value:
        raise ValueError(f"has more than {scale} digits after the point")
    if made and made.adjusted() + scale >= precision:
        raise ValueError(f"has more digits than decimal({precision}, {scale})")
    return made


def each_variable_scale(wanted: pa.DataType, column: str, convert: Callable[[Decimal], Any]) -> Kernel:
    """Debezium's {scale, value} structs, each distinct one once."""

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        scales, values = member(data, None, "scale")[0].dictionary_encode(), member(data, None, "value")[0]
        encoded = values.dictionary_encode()
        width = max(1, len(scales.dictionary))
        pairs = pc.add(pc.multiply(encoded.indices.cast(pa.int64()), width), scales.indices.cast(pa.int64()))
        distinct = pairs.dictionary_encode()
        powers, numbers = scales.dictionary.to_pylist(), encoded.dictionary.to_pylist()

        def one(pair: int) -> Any:
            number = Decimal(int.from_bytes(numbers[pair // width], "big", signed=True))
            return convert(number.scaleb(-powers[pair % width], _MANY_DIGITS))

        made = convert_each(distinct.dictionary.to_pylist(), one, distinct.indices, column, run)
        return pa.array(made, wanted).take(distinct.indices)

    return kernel
