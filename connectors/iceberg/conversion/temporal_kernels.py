"""Kernels that convert values to dates, times, and timestamps.

The kernels use integer arithmetic, because topics contain values that `datetime` does not support.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.columns.arrow import floor_divide, storage_type
from connectors.iceberg.config.sink_options import OutOfRange
from connectors.iceberg.conversion.columns import as_array, plain
from connectors.iceberg.conversion.kernel import (
    Conversion,
    Kernel,
    Run,
    Unfit,
    each,
    is_text,
    keep,
)
from connectors.iceberg.conversion.number_kernels import integer
from connectors.iceberg.conversion.temporal import (
    INT64_MAX,
    INT64_MIN,
    MAX_DAYS,
    MICRO,
    MICROS_PER_DAY,
    MILLI,
    NANO,
    TemporalType,
    TimestampOutOfRange,
    has_other_unit,
    parse_date,
    parse_time,
    parse_timestamp,
    temporal_type_of,
)

_CLAMPED_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31
_CLAMPED_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # the same range
_CLAMPED_TIME = (0, MICROS_PER_DAY - 1)
_MOST_MICROS = INT64_MAX // 1000  # limit of 64-bit nanoseconds, in microseconds (year 2262)
_CLAMPED_NANOS = (-_MOST_MICROS * 1000, _MOST_MICROS * 1000)
_CLAMPED = {
    "date": _CLAMPED_DAYS,
    "time": _CLAMPED_TIME,
    "timestamp_ns": _CLAMPED_NANOS,
    "timestamptz_ns": _CLAMPED_NANOS,
}
_OFFSET = r"[+-](0[0-9]|1[0-7]):?[0-5][0-9]$"  # Java rejects offsets above 18 hours; Arrow does not
_LEAST_TIMESTAMP = 13  # characters; Arrow also accepts shorter strings, such as dates


def date(at: Conversion) -> Kernel | None:
    """Return the kernel for date columns."""
    if is_text(at.type):
        return _of_texts(at, parse_date)
    temporal = _temporal(at, TemporalType("date", 0))
    if temporal.kind == "time":
        raise Unfit

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        days = plain(data).cast(pa.int64())
        if temporal.kind == "timestamp":
            days = floor_divide(days, 86_400 * temporal.per_second)
        days = _in_range(days, (-MAX_DAYS, MAX_DAYS), _CLAMPED_DAYS, at, run)
        return days.cast(pa.int32()).view(pa.date32())

    return kernel


def time(at: Conversion) -> Kernel | None:
    """Return the kernel for time columns."""
    if is_text(at.type):
        return _of_texts(at, parse_time)
    temporal = _temporal(at, TemporalType("time", MILLI))
    if temporal.kind != "time":
        raise Unfit

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        micros = _to_micros(plain(data).cast(pa.int64()), temporal, at, run)
        return _in_range(micros, _CLAMPED_TIME, _CLAMPED_TIME, at, run).view(pa.time64("us"))

    return kernel


def timestamp(at: Conversion) -> Kernel | None:
    """Return the kernel for timestamp columns, or None if no conversion is required."""
    target, arrow_type = str(at.target), at.arrow_type
    nanos, zoned = target.endswith("_ns"), "tz" in target
    if at.type == arrow_type:
        return None
    if is_text(at.type):
        return _of_texts(at, lambda text: parse_timestamp(text, zoned=zoned, nanos=nanos))
    whole = integer(replace(at, target="long")) if pa.types.is_floating(at.type) else None
    usual = TemporalType("timestamp", MILLI)
    temporal = usual if whole is not None else _temporal(at, usual)
    if temporal.kind == "time":
        raise Unfit

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        numbers = plain(data).cast(pa.int64()) if whole is None else whole(data, run)
        if nanos and temporal.per_second == NANO:
            return numbers.view(arrow_type)
        micros = _to_micros(numbers, temporal, at, run)
        if nanos:
            limits = (-_MOST_MICROS, _MOST_MICROS)
            micros = pc.multiply(_in_range(micros, limits, limits, at, run), 1000)
        return micros.view(arrow_type)

    return kernel


def _temporal(at: Conversion, usual: TemporalType) -> TemporalType:
    """Return the temporal type of the incoming numbers, or `usual` if their schema has none."""
    temporal = temporal_type_of(at.schema, at.type)
    if temporal is None and (not pa.types.is_integer(at.type) or has_other_unit(at.schema)):
        raise Unfit
    return temporal or usual


def _to_micros(
    data: pa.Int64Array, temporal: TemporalType, at: Conversion, run: Run
) -> pa.Int64Array:
    if temporal.per_second == NANO:
        return floor_divide(data, 1000)
    if temporal.per_second == MICRO:  # the smallest and largest values represent infinity
        return _in_range(data, (INT64_MIN + 1, INT64_MAX - 1), _CLAMPED_MICROS, at, run)
    factor = MICROS_PER_DAY if temporal.kind == "date" else MICRO // temporal.per_second
    limit, (first, last) = INT64_MAX // factor, _CLAMPED_MICROS
    return pc.multiply(
        _in_range(data, (-limit, limit), (first // factor, last // factor), at, run), factor
    )


def _in_range(
    data: pa.Int64Array, limits: tuple[int, int], clamped: tuple[int, int], at: Conversion, run: Run
) -> pa.Int64Array:
    """Report out-of-range values, or replace them with null or the nearest `clamped` value."""
    ends = pc.min_max(data).as_py()
    if ends["min"] is None or limits[0] <= ends["min"] <= ends["max"] <= limits[1]:
        return data
    early, late = pc.less(data, limits[0]), pc.greater(data, limits[1])
    policy = at.options.out_of_range
    if policy is OutOfRange.ERROR:
        return keep(data, pc.invert(pc.or_(early, late)), at.column, "is out of range", run)
    if policy is OutOfRange.NULL:
        return as_array(pc.if_else(pc.or_(early, late), pa.scalar(None, data.type), data))
    first, last = pa.scalar(clamped[0], data.type), pa.scalar(clamped[1], data.type)
    return as_array(pc.if_else(early, first, pc.if_else(late, last, data)))


def _of_texts(at: Conversion, parse: Callable[[str], int]) -> Kernel:
    """Return a kernel that parses strings with Arrow if possible, or with `parse` otherwise."""
    policy, arrow_type = at.options.out_of_range, at.arrow_type
    ends = _CLAMPED.get(str(at.target), _CLAMPED_MICROS)

    def one(text: str) -> int | None:
        try:
            return parse(text)
        except TimestampOutOfRange as out:
            if policy is OutOfRange.NULL:
                return None
            if policy is OutOfRange.CLAMP:
                return ends[out.late]
            raise

    slow = each(storage_type(arrow_type), at.column, one)

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        data = data.cast(pa.string())
        result = _cast(data, arrow_type)
        return slow(data, run).view(arrow_type) if result is None else result

    return kernel


def _cast(data: pa.StringArray, arrow_type: pa.DataType) -> pa.Array | None:
    """Parse strings with Arrow, or return None if Arrow might parse some of them incorrectly.

    Arrow is used only if the zones are uniform: all strings end with Z, all have an offset, or none
    has a zone.
    """
    lengths = pc.min_max(pc.binary_length(data)).as_py()
    if lengths["min"] is None:
        return pa.nulls(len(data), arrow_type)
    try:
        if pa.types.is_date(arrow_type):
            return data.cast(arrow_type) if lengths["min"] == lengths["max"] == 10 else None
        if (
            not pa.types.is_timestamp(arrow_type)
            or arrow_type.unit != "us"
            or lengths["min"] < _LEAST_TIMESTAMP
        ):
            return None
        utc = pc.all(pc.ends_with(data, "Z")).as_py()
        if utc and arrow_type.tz is None:
            data = pc.utf8_slice_codeunits(data, 0, -1)
        elif not utc and arrow_type.tz is not None:
            # offsets have few distinct values
            ends = pc.unique(pc.utf8_slice_codeunits(data, -6))
            if not pc.all(pc.match_substring_regex(ends, _OFFSET)).as_py():
                return data.cast(pa.timestamp("us")).view(arrow_type)
        return data.cast(arrow_type)
    except pa.ArrowInvalid:
        return None
