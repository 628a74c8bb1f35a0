"""Kernels into date, time and timestamp columns, by integer arithmetic: topics hold moments that no `datetime` can."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import floor_divide, storage_type
from connect_py.api.schema import Schema
from connectors.iceberg.config import OutOfRange
from connectors.iceberg.staging import timestamps
from connectors.iceberg.staging.columns import any_true, as_array
from connectors.iceberg.staging.kernels.incoming_moment import MICRO, MILLI, NANO, Moment, has_other_unit
from connectors.iceberg.staging.kernels.kernel import (
    ConversionOptions,
    Kernel,
    Run,
    Unfit,
    each,
    is_text,
    keep,
)
from connectors.iceberg.staging.kernels.number_kernels import NumberKernels
from connectors.iceberg.staging.timestamps import INT64_MAX, INT64_MIN, MICROS_PER_DAY, MomentOutOfRange

_PLAIN_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"
_PLAIN_LOCAL_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_CLAMPED_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # 0001-01-01 and the end of 9999
_CLAMPED_NANOS = (-(INT64_MAX // 1000) * 1000, INT64_MAX // 1000 * 1000)
_END = 1 << 30  # a slice to the end of each text
_BELOW_MICROS = r"\.[0-9]{7}"
_LARGE_OFFSET = r"[+-](19|2[0-9]|18:?(0[1-9]|[1-5][0-9]))(:?[0-9]{2})?$"


class MomentKernels:
    """Makes kernels. Each method answers for one kind of target type."""

    def __init__(self, options: ConversionOptions, numbers: NumberKernels) -> None:
        self._options = options
        self._numbers = numbers

    def date(self, type_: pa.DataType, schema: Schema | None, moment: Moment | None, column: str) -> Kernel | None:
        wanted = pa.date32()
        if is_text(type_):
            slow = self._each_moment(wanted, column, timestamps.parse_date)
            return lambda data, run: _text_moments(data, wanted, _PLAIN_DATE, run, slow)
        if moment is None:
            if not pa.types.is_integer(type_) or has_other_unit(schema):
                raise Unfit
            moment = Moment("date", 0)
        if moment.kind == "date":
            return self._days(column)
        if moment.kind == "timestamp":
            per_day = 86_400 * moment.per_second
            days = self._days(column)
            return lambda data, run: days(floor_divide(_storage(data, pa.int64()), per_day), run)
        raise Unfit

    def _days(self, column: str) -> Kernel:
        def kernel(data: pa.Array, run: Run) -> pa.Array:
            days = _storage(data, pa.int64() if data.type.bit_width == 64 else pa.int32()).cast(pa.int64())
            days = self._in_range(days, -timestamps.MAX_DAYS, timestamps.MAX_DAYS, (-719_162, 2_932_896), column, run)
            return days.cast(pa.int32()).view(pa.date32())

        return kernel

    def time(self, type_: pa.DataType, schema: Schema | None, moment: Moment | None, column: str) -> Kernel | None:
        wanted = pa.time64("us")
        if is_text(type_):
            return self._each_moment(wanted, column, timestamps.parse_time)
        if moment is None:
            if not pa.types.is_integer(type_) or has_other_unit(schema):
                raise Unfit
            moment = Moment("time", MILLI)
        if moment.kind != "time":
            raise Unfit
        per_second = moment.per_second

        def kernel(data: pa.Array, run: Run) -> pa.Array:
            micros = self._to_micros(_storage(data, pa.int64()), per_second, column, run)
            last = MICROS_PER_DAY - 1
            return self._in_range(micros, 0, last, (0, last), column, run).view(wanted)

        return kernel

    def timestamp(
        self,
        target: str,
        wanted: pa.DataType,
        type_: pa.DataType,
        schema: Schema | None,
        moment: Moment | None,
        column: str,
    ) -> Kernel | None:
        nanos = target.endswith("_ns")
        zoned = "tz" in target
        if type_ == wanted and not nanos:
            return None
        micro_type = pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")
        finish: Kernel
        if nanos:
            finish = lambda data, run: self._nanos(data.view(pa.int64()), column, run).view(wanted)  # noqa: E731 - one of two endings
        else:
            finish = lambda data, _: data.view(wanted)  # noqa: E731 - as above
        if is_text(type_):
            slow = self._each_moment(micro_type, column, lambda text: timestamps.parse_timestamp(text, zoned=zoned))
            plain = _PLAIN_TIMESTAMP if zoned else _PLAIN_LOCAL_TIMESTAMP
            exact = self._each_moment(wanted, column, lambda t: timestamps.parse_timestamp(t, zoned=zoned, nanos=True))

            def from_text(data: pa.Array, run: Run) -> pa.Array:
                if nanos and any_true(pc.match_substring_regex(data, _BELOW_MICROS)):
                    return exact(data, run)
                return finish(_text_moments(data, micro_type, plain, run, slow), run)

            return from_text
        if pa.types.is_floating(type_):
            whole = self._numbers.integer("long", pa.int64(), type_, column)
            if whole is None:
                raise Unfit
            from_long = self.timestamp(target, wanted, pa.int64(), None, None, column)
            if from_long is None:
                raise Unfit
            return lambda data, run: from_long(whole(data, run), run)
        if moment is None:
            if not pa.types.is_integer(type_) or has_other_unit(schema):
                raise Unfit
            moment = Moment("timestamp", MILLI)
        if moment.kind == "date":

            def from_date(data: pa.Array, run: Run) -> pa.Array:
                days = _storage(data, pa.int64() if data.type.bit_width == 64 else pa.int32()).cast(pa.int64())
                return finish(self._scaled(days, MICROS_PER_DAY, column, run), run)

            return from_date
        if moment.kind != "timestamp":
            raise Unfit
        per_second = moment.per_second
        if nanos and per_second == NANO:
            return lambda data, _: _storage(data, pa.int64()).view(wanted)

        def from_number(data: pa.Array, run: Run) -> pa.Array:
            return finish(self._to_micros(_storage(data, pa.int64()), per_second, column, run), run)

        return from_number

    def _to_micros(self, data: pa.Int64Array, per_second: int, column: str, run: Run) -> pa.Int64Array:
        if per_second == NANO:
            return floor_divide(data, 1000)
        if per_second == MICRO:  # the ends of the range mean infinity
            return self._in_range(data, INT64_MIN + 1, INT64_MAX - 1, _CLAMPED_MICROS, column, run)
        return self._scaled(data, MICRO // per_second, column, run)

    def _scaled(self, data: pa.Int64Array, factor: int, column: str, run: Run) -> pa.Int64Array:
        limit = INT64_MAX // factor
        clamped = (_CLAMPED_MICROS[0] // factor, _CLAMPED_MICROS[1] // factor)
        return pc.multiply(self._in_range(data, -limit, limit, clamped, column, run), factor)

    def _nanos(self, data: pa.Int64Array, column: str, run: Run) -> pa.Int64Array:
        """Microseconds as nanoseconds; these reach from 1677 to 2262 only."""
        limit = INT64_MAX // 1000
        return pc.multiply(self._in_range(data, -limit, limit, (-limit, limit), column, run), 1000)

    def _in_range(
        self, data: pa.Int64Array, low: int, high: int, clamped: tuple[int, int], column: str, run: Run
    ) -> pa.Int64Array:
        """Values outside [low, high] by configuration: a failure, null, or the first or last of `clamped`."""
        ends = pc.min_max(data).as_py()
        if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
            return data
        early, late = pc.less(data, low), pc.greater(data, high)
        policy = self._options.out_of_range
        if policy is OutOfRange.ERROR:
            return keep(data, pc.invert(pc.or_(early, late)), column, "is out of range", run)
        if policy is OutOfRange.NULL:
            return as_array(pc.if_else(pc.or_(early, late), pa.scalar(None, data.type), data))
        first, last = pa.scalar(clamped[0], data.type), pa.scalar(clamped[1], data.type)
        return as_array(pc.if_else(early, first, pc.if_else(late, last, data)))

    def _each_moment(self, wanted: pa.DataType, column: str, parse: Callable[[str], int]) -> Kernel:
        policy = self._options.out_of_range
        ends = {
            "date32[day]": (-719_162, 2_932_896),
            "time64[us]": (0, MICROS_PER_DAY - 1),
            "timestamp[ns]": _CLAMPED_NANOS,
            "timestamp[ns, tz=UTC]": _CLAMPED_NANOS,
        }.get(str(wanted), _CLAMPED_MICROS)  # fmt: skip

        def one(text: str) -> int | None:
            try:
                return parse(text)
            except MomentOutOfRange as out:
                if policy is OutOfRange.NULL:
                    return None
                if policy is OutOfRange.CLAMP:
                    return ends[out.late]
                raise

        storage = storage_type(wanted)
        numbers = each(storage, column, one)
        return lambda data, run: numbers(data, run).view(wanted)


def _text_moments(data: pa.Array, wanted: pa.DataType, pattern: str, run: Run, slow: Kernel) -> pa.Array:
    """Cast text where Arrow reads it as `slow` would; the rest is read value by value."""
    data = data.cast(pa.string())
    for cast in (_cast_moments, _cast_other_moments):
        try:
            made = cast(data, wanted)
        except pa.ArrowInvalid:
            continue
        if made is not None:
            return made
    plain = pc.match_substring_regex(data, pattern)
    nothing = pa.scalar(None, pa.string())
    try:
        made = as_array(pc.if_else(plain, data, nothing)).cast(wanted)
    except pa.ArrowInvalid:  # a day that does not exist, somewhere
        return slow(data, run)
    return as_array(pc.coalesce(made, slow(as_array(pc.if_else(plain, nothing, data)), run)))


def _cast_moments(data: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """Arrow's own reading, unless it would take text that is a date only, or not even that."""
    lengths = pc.min_max(pc.binary_length(data)).as_py()
    if lengths["min"] is None:
        return pa.nulls(len(data), wanted)
    if pa.types.is_date(wanted):
        return data.cast(wanted) if lengths["min"] == lengths["max"] == 10 else None
    if lengths["min"] < 13 or (wanted.tz is not None and _has_large_offset(data)):
        return None
    return data.cast(wanted)


def _has_large_offset(data: pa.StringArray) -> bool:
    """Whether a text has an offset that Arrow takes and Java does not: of more than 18 hours."""
    if pc.all(pc.ends_with(data, "Z")).as_py():
        return False
    ends = pc.unique(pc.binary_slice(data.cast(pa.binary()), -6, _END))  # few, and slow to match
    return any_true(pc.match_substring_regex(ends, _LARGE_OFFSET))


def _cast_other_moments(data: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """Without a zone where one is expected (that is UTC), or all with a `Z` where none is (it is dropped)."""
    if pa.types.is_date(wanted):
        return None
    if wanted.tz is not None:
        made = _cast_moments(data, pa.timestamp("us"))
        return None if made is None else made.view(wanted)
    if pc.all(pc.ends_with(data, "Z")).as_py() is False:
        return None
    return _cast_moments(pc.utf8_slice_codeunits(data, 0, -1), wanted)


def _storage(data: pa.Array, wide: pa.DataType) -> pa.Array:
    """Moments as the integers that they are, in 64 bits."""
    data = data if pa.types.is_integer(data.type) else data.view(storage_type(data.type))
    return data if data.type == wide else data.cast(wide)
