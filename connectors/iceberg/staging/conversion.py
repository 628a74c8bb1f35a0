"""Connect columns become columns of a table. The table's type decides; logical names decide units.

`RowConverter` is compiled once per table schema and incoming schema, then applied to batch after batch. Most columns
pass through untouched; a cast that could lose something looks at the whole column first and at single values only
when it must. Values that do not fit are reported by row, never changed silently.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import schemaless_values, storage_type, to_values
from connect_py.api.batch import Column, Path
from connect_py.api.errors import DataError
from connect_py.api.java_text import double_text, float_text
from connect_py.api.schema import DATE, TIME, TIMESTAMP, Schema, Struct, Type, Value
from connectors.iceberg.config import IcebergSinkConfig, OutOfRange
from connectors.iceberg.staging import moments
from connectors.iceberg.staging.columns import any_true, as_array, member, tombstones
from connectors.iceberg.staging.moments import INT64_MAX, INT64_MIN, MICROS_PER_DAY, MomentOutOfRange
from connectors.iceberg.staging.types import (
    VARIABLE_SCALE_DECIMAL,
    IcebergType,
    arrow_schema,
    arrow_type_of,
    decimal_parts,
    inner_mapping,
    logical_name,
    name_lookup,
    read_name_mapping,
    writable_fields,
)
from connectors.iceberg.table import TableDescription


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """What a value that does not fit becomes."""

    lenient: bool = False  # as Java's sink: wrap, round, any other text is false
    out_of_range: OutOfRange = OutOfRange.ERROR
    case_insensitive: bool = False

    @staticmethod
    def of(config: IcebergSinkConfig) -> ConversionOptions:
        return ConversionOptions(config.lenient, config.out_of_range, config.case_insensitive)


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows whose value does not fit a column."""

    rows: pa.BooleanArray  # no nulls
    column: str  # dotted path in the table
    reason: str


@dataclass(slots=True)
class _Run:
    """One conversion in progress, at one nesting level of lists."""

    absent: Mapping[Path, pa.BooleanArray] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


_Kernel = Callable[[pa.Array, _Run], pa.Array]
"""Takes the incoming array, gives one of the target's Arrow type; what does not fit is null and noted as a failure."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Rows in the table's Arrow types, columns in the table's order."""

    columns: list[pa.Array]
    failures: list[Failure]


class RowConverter:
    """Columns of one incoming schema to the columns of one table. Used by one thread."""

    def __init__(
        self,
        description: TableDescription,
        schema: Schema | None,
        type_: pa.DataType,
        options: ConversionOptions,
        only: Sequence[str] | None = None,
        unchecked: Sequence[str] = (),
    ) -> None:
        """Compile.

        Args:
            description: The table.
            schema: Connect schema of the rows; None: schemaless.
            type_: Arrow type of the rows.
            options: What to do with values that do not fit.
            only: Convert these columns alone, all others come without rows; required columns are then not checked.
            unchecked: Required columns that may be null here, because the caller fills them.

        Raises:
            DataError: The rows are neither struct nor map, or have a value for a column that cannot be written.
        """
        table = json.loads(description.schema)
        self._fields: Sequence[Mapping[str, Any]] = writable_fields(table["fields"])
        self.arrow_schema = arrow_schema(self._fields)
        checked = (f["name"] for f in self._fields if f["required"] and f["name"] not in unchecked)
        self._only = None if only is None else frozenset(only)
        self._required = frozenset(checked) if only is None else frozenset()
        mapping = read_name_mapping(description.properties)
        lookup = name_lookup(table["fields"], mapping, case_insensitive=options.case_insensitive)
        compiler = _Compiler(options)
        self.sources: dict[str, str] = {}  # table column -> incoming member
        self._kernels: dict[str, _Kernel | None] = {}
        for name, inner_schema, inner_type in _members(schema, type_, self._fields, options):
            column = lookup(name)
            if column is None or (only is not None and column["name"] not in only):
                continue
            target = column["name"]
            self.sources[target] = name
            inner = inner_mapping(mapping, column["id"])
            self._kernels[target] = compiler.kernel(column["type"], inner_schema, inner_type, (name,), target, inner)

    def convert(self, column: Column, hidden: Mapping[str, pa.BooleanArray] | None = None) -> Converted:
        """Convert rows.

        Args:
            column: Rows of the schema and type that this converter was made for; rows that are null give null columns.
            hidden: Per table column, rows whose value is to be null, whatever it is.
        """
        run = _Run(column.absent)
        gone = tombstones(column)
        columns = []
        members = _all_members(column.data)
        for index, field_ in enumerate(self._fields):
            name = field_["name"]
            if self._only is not None and name not in self._only:
                columns.append(_NOT_ASKED)
                continue
            target = self.arrow_schema.field(index).type
            source = self.sources.get(name)
            if source is None:
                made = _missing(field_, target, len(column))
            else:
                data = member(column.data, None, source)[0] if members is None else members[source]
                if hidden and name in hidden:
                    data = _hide(data, hidden[name])
                kernel = self._kernels[name]
                made = data if kernel is None else as_array(kernel(data, run))
            if made.null_count and name in self._required:
                self._note_nulls(name, made, gone, (hidden or {}).get(name), run)
            columns.append(made)
        return Converted(columns, run.failures)

    @staticmethod
    def _note_nulls(
        name: str, made: pa.Array, gone: pa.BooleanArray | None, hidden: pa.BooleanArray | None, run: _Run
    ) -> None:
        null = made.is_null()
        for excused in (gone, hidden, *(f.rows for f in run.failures if f.column == name)):
            if excused is not None:
                null = pc.and_not(null, excused)
        if any_true(null):
            run.failures.append(Failure(null, name, "null, but the column is required"))


_NOT_ASKED = pa.nulls(0)


def _all_members(data: pa.Array) -> dict[str, pa.Array] | None:
    """The fields of a struct column, its nulls in each; None for other columns."""
    if not pa.types.is_struct(data.type):
        return None
    fields = data.flatten() if data.null_count else [data.field(i) for i in range(data.type.num_fields)]
    return {f.name: values for f, values in zip(data.type, fields, strict=True)}


def _missing(field_: Mapping[str, Any], target: pa.DataType, length: int) -> pa.Array:
    """The values of a column that the rows lack: its write default, else null."""
    default = field_.get("write-default")
    if default is None or isinstance(default, list | dict):
        return pa.nulls(length, target)
    try:
        return pa.array([default] * length, _default_storage(target, default)).cast(target)
    except pa.ArrowException:
        return pa.nulls(length, target)


def _default_storage(target: pa.DataType, default: object) -> pa.DataType:
    return pa.string() if isinstance(default, str) and not pa.types.is_string(target) else target


def _hide(data: pa.Array, rows: pa.BooleanArray) -> pa.Array:
    return as_array(pc.if_else(rows, pa.nulls(1, data.type)[0], data))


def _members(
    schema: Schema | None, type_: pa.DataType, fields: Sequence[Mapping[str, Any]], options: ConversionOptions
) -> list[tuple[str, Schema | None, pa.DataType]]:
    """The members of a struct, or, of a map, those that the table has."""
    if pa.types.is_struct(type_):
        return [
            (f.name, schema[f.name] if schema is not None and schema.type is Type.STRUCT else None, f.type)
            for f in type_
        ]
    if pa.types.is_map(type_):
        value = None if schema is None else schema.value_schema
        return [(f["name"], value, type_.item_type) for f in fields]
    if pa.types.is_null(type_):
        return []
    raise DataError(f"Cannot convert value of type {type_}: expected a struct or map")


# --- kernels


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Moment:
    """What an incoming number or Arrow moment means."""

    kind: str  # date, time or timestamp
    per_second: int  # units per second; of a date: 0
    wall: bool = False  # timestamp without zone


_MILLI, _MICRO, _NANO = 1_000, 1_000_000, 1_000_000_000
_MOMENTS: Mapping[str, _Moment] = {
    DATE: _Moment("date", 0),
    TIME: _Moment("time", _MILLI),
    TIMESTAMP: _Moment("timestamp", _MILLI),
    "io.debezium.time.Date": _Moment("date", 0),
    "io.debezium.time.Time": _Moment("time", _MILLI),
    "io.debezium.time.MicroTime": _Moment("time", _MICRO),
    "io.debezium.time.NanoTime": _Moment("time", _NANO),
    "io.debezium.time.Timestamp": _Moment("timestamp", _MILLI, wall=True),
    "io.debezium.time.MicroTimestamp": _Moment("timestamp", _MICRO, wall=True),
    "io.debezium.time.NanoTimestamp": _Moment("timestamp", _NANO, wall=True),
    "timestamp-millis": _Moment("timestamp", _MILLI),
    "timestamp-micros": _Moment("timestamp", _MICRO),
    "timestamp-nanos": _Moment("timestamp", _NANO),
    "local-timestamp-millis": _Moment("timestamp", _MILLI, wall=True),
    "local-timestamp-micros": _Moment("timestamp", _MICRO, wall=True),
    "local-timestamp-nanos": _Moment("timestamp", _NANO, wall=True),
    "time-millis": _Moment("time", _MILLI),
    "time-micros": _Moment("time", _MICRO),
}
_UNITS = {"s": 1, "ms": _MILLI, "us": _MICRO, "ns": _NANO}
_OTHER_UNITS = frozenset({
    "io.debezium.time.Year", "io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration",
})  # fmt: skip


def _moment(schema: Schema | None, type_: pa.DataType) -> _Moment | None:
    if schema is not None and (pa.types.is_integer(type_) or pa.types.is_temporal(type_)):
        known = _MOMENTS.get(logical_name(schema) or "")
        if known is not None:
            return known
    if pa.types.is_date(type_):
        return _Moment("date", 0)
    if pa.types.is_time(type_):
        return _Moment("time", _UNITS[type_.unit])
    if pa.types.is_timestamp(type_):
        return _Moment("timestamp", _UNITS[type_.unit], wall=type_.tz is None)
    return None


class _Unfit(Exception):  # noqa: N818 - becomes a failure with the column's name
    """No value of this incoming type fits the column."""


_LIMITS = {"int": (-(2**31), 2**31 - 1), "long": (INT64_MIN, INT64_MAX)}
_INTEGER_TEXT = r"^[+-]?[0-9]+$"
_FLOAT_TEXT = re.compile(
    r"[\x00-\x20]*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?[\x00-\x20]*", re.ASCII
)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_UUID_TEXT = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_PLAIN_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"
_PLAIN_LOCAL_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


class _Compiler:
    """Makes kernels. Each method answers for one target type."""

    def __init__(self, options: ConversionOptions) -> None:
        self._options = options

    def kernel(
        self,
        target: IcebergType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> _Kernel | None:
        """The kernel from an incoming type to a column's; None: values pass as they are.

        `path` is where the incoming member stands, `column` the table's name for the place.
        """
        wanted = arrow_type_of(target)
        if pa.types.is_null(type_):
            return lambda data, _: pa.nulls(len(data), wanted)
        try:
            if isinstance(target, str):
                return self._primitive(target, wanted, schema, type_, path, column)
            if target["type"] == "struct":
                return self._struct(target, wanted, schema, type_, path, column, mapping)
            if target["type"] == "list":
                return self._list(target, wanted, schema, type_, path, column, mapping)
            return self._map(target, wanted, schema, type_, path, column, mapping)
        except _Unfit as unfit:
            shown = target if isinstance(target, str) else target["type"]
            named = f" ({logical_name(schema)})" if schema is not None and logical_name(schema) else ""
            return _refuse(wanted, column, str(unfit) or f"values of type {type_}{named} do not fit a {shown} column")

    def _primitive(
        self, target: str, wanted: pa.DataType, schema: Schema | None, type_: pa.DataType, path: Path, column: str
    ) -> _Kernel | None:
        moment = _moment(schema, type_)
        if target in _LIMITS:
            return self._integer(target, wanted, type_, column)
        if target in ("float", "double"):
            return self._floating(wanted, type_, moment, column)
        if (parts := decimal_parts(target)) is not None:
            return self._decimal(*parts, schema, type_, moment, column)
        if target == "boolean":
            return self._boolean(type_, column)
        if target == "string":
            return self._string(schema, type_, moment, path, column)
        if target == "uuid":
            return self._uuid(type_, column)
        if target == "binary" or target.startswith("fixed["):
            return self._binary(wanted, type_, column)
        if target == "date":
            return self._date(type_, schema, moment, column)
        if target == "time":
            return self._time(type_, schema, moment, column)
        if target.startswith("timestamp"):
            return self._timestamp(target, wanted, type_, schema, moment, column)
        raise _Unfit

    # numbers

    def _integer(self, target: str, wanted: pa.DataType, type_: pa.DataType, column: str) -> _Kernel | None:
        if type_ == wanted:
            return None
        low, high = _LIMITS[target]
        lenient = self._options.lenient
        if pa.types.is_temporal(type_):
            inner = self._integer(target, wanted, storage_type(type_), column)
            storage = storage_type(type_)
            return lambda data, run: (
                data.view(storage) if inner is None else inner(data.view(storage), run)
            )  # fmt: skip
        if pa.types.is_integer(type_):
            if type_.bit_width < wanted.bit_width:
                return lambda data, _: data.cast(wanted)

            def narrow(data: pa.Array, run: _Run) -> pa.Array:
                if not lenient:
                    data = _within(data, low, high, column, f"does not fit a {target} column", run)
                return data.cast(wanted, safe=False)

            return narrow
        if pa.types.is_floating(type_):

            def whole(data: pa.Array, run: _Run) -> pa.Array:
                if lenient:
                    clipped = pc.max_element_wise(
                        pc.min_element_wise(pc.trunc(data.cast(pa.float64())), 2.0**62), -(2.0**62)
                    )
                    return as_array(clipped).cast(pa.int64(), safe=False).cast(wanted, safe=False)
                data = data.cast(pa.float64())
                fits = pc.and_(pc.equal(data, pc.trunc(data)), pc.is_finite(data))
                fits = pc.and_(fits, pc.and_(pc.greater_equal(data, float(low)), pc.less(data, float(high + 1))))
                data = _keep(data, fits, column, f"is no whole number that fits a {target} column", run)
                return data.cast(wanted, safe=False)

            return whole
        if pa.types.is_decimal(type_):
            return _each(wanted, column, lambda v: _whole(v, low, high, lenient=lenient))
        if _is_text(type_):

            def from_text(data: pa.Array, run: _Run) -> pa.Array:
                data = data.cast(pa.string())
                try:
                    made = data.cast(wanted)
                    if not any_true(pc.match_substring(data, "x", ignore_case=True)):  # Arrow reads hexadecimal digits
                        return made
                except pa.ArrowInvalid:
                    pass
                data = _keep(data, pc.match_substring_regex(data, _INTEGER_TEXT), column, "is no whole number", run)
                return slow_text(data, run)

            slow_text = _each(wanted, column, lambda v: _in_limits(int(v), low, high))
            return from_text
        raise _Unfit

    def _floating(self, wanted: pa.DataType, type_: pa.DataType, moment: _Moment | None, column: str) -> _Kernel | None:
        if type_ == wanted:
            return None
        if pa.types.is_floating(type_):
            if wanted == pa.float64():
                return lambda data, _: data.cast(wanted)

            def narrow(data: pa.Array, run: _Run) -> pa.Array:
                made = data.cast(wanted, safe=False)
                if not self._options.lenient:
                    lost = pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(data)))
                    if any_true(lost):
                        made = _keep(made, pc.invert(lost), column, "does not fit a float column", run)
                return made

            return narrow
        if pa.types.is_integer(type_) and (moment is None or self._options.lenient):
            return lambda data, _: data.cast(wanted, safe=False)
        if pa.types.is_integer(type_):  # a moment as a number, as Java's sink gives it
            return lambda data, _: data.cast(wanted, safe=False)
        if pa.types.is_decimal(type_):
            return lambda data, _: data.cast(wanted, safe=False)
        if _is_text(type_):
            return _each(wanted, column, _parse_float)
        raise _Unfit

    def _decimal(
        self,
        precision: int,
        scale: int,
        schema: Schema | None,
        type_: pa.DataType,
        moment: _Moment | None,
        column: str,
    ) -> _Kernel | None:
        wanted = pa.decimal128(precision, scale)
        if type_ == wanted:
            return None
        lenient = self._options.lenient

        def rescale(value: Decimal) -> Decimal:
            return _rescaled(value, precision, scale, lenient=lenient)

        if pa.types.is_decimal(type_):
            slow = _each(wanted, column, rescale)
            return lambda data, run: _try_cast(data, wanted, run, slow)
        if pa.types.is_integer(type_) and moment is None:
            slow_int = _each(wanted, column, lambda v: rescale(Decimal(v)))

            def from_integer(data: pa.Array, run: _Run) -> pa.Array:
                wide = data.cast(pa.decimal128(19, 0))
                return _try_cast(wide, wanted, run, slow_int)

            return from_integer
        if pa.types.is_floating(type_):
            text = float_text if type_ == pa.float32() else double_text
            slow_float = _each(wanted, column, lambda v: rescale(_decimal_of_text(text(v))))
            return lambda data, run: _text_decimals(data.cast(pa.string()), wanted, run, slow_float, data)
        if _is_text(type_):
            slow_text = _each(wanted, column, lambda v: rescale(_decimal_of_text(v)))
            return lambda data, run: _text_decimals(data.cast(pa.string()), wanted, run, slow_text, data)
        if schema is not None and schema.name == VARIABLE_SCALE_DECIMAL and pa.types.is_struct(type_):
            return _each_variable_scale(wanted, column, rescale)
        raise _Unfit

    def _boolean(self, type_: pa.DataType, column: str) -> _Kernel | None:
        if pa.types.is_boolean(type_):
            return None
        if not _is_text(type_):
            raise _Unfit
        lenient = self._options.lenient

        def from_text(data: pa.Array, run: _Run) -> pa.Array:
            lower = pc.ascii_lower(data.cast(pa.string()))
            true = pc.equal(lower, "true")
            if lenient:
                return true
            return _keep(true, pc.or_(true, pc.equal(lower, "false")), column, "is neither true nor false", run)

        return from_text

    # text and bytes

    def _string(
        self, schema: Schema | None, type_: pa.DataType, moment: _Moment | None, path: Path, column: str
    ) -> _Kernel | None:
        if pa.types.is_string(type_):
            return None
        if pa.types.is_large_string(type_):
            return lambda data, _: data.cast(pa.string())
        if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
            return lambda data, _: data.cast(pa.string())
        if pa.types.is_floating(type_):
            if type_ == pa.float64():
                slow_double = _each(pa.string(), column, double_text)
                return lambda data, run: _double_texts(data, run, slow_double)
            return _each(pa.string(), column, float_text)
        if pa.types.is_decimal(type_):
            return _each(pa.string(), column, str)
        if schema is not None and schema.name == VARIABLE_SCALE_DECIMAL and pa.types.is_struct(type_):
            return _each_variable_scale(pa.string(), column, lambda v: format(v, "f"))
        if pa.types.is_nested(type_):

            def to_json(data: pa.Array, run: _Run) -> pa.Array:
                if schema is not None:
                    values = to_values(schema, data)
                else:
                    below = {
                        p[len(path) :]: rows for p, rows in run.absent.items() if p[: len(path)] == path and p != path
                    }
                    values = schemaless_values(data, below)
                return pa.array([None if v is None else _json_text(v) for v in values], pa.string())

            return to_json
        raise _Unfit

    def _uuid(self, type_: pa.DataType, column: str) -> _Kernel | None:
        wanted = pa.uuid()
        if type_ == wanted:
            return None
        if pa.types.is_fixed_size_binary(type_) and type_.byte_width == 16:
            return lambda data, _: pa.ExtensionArray.from_storage(wanted, data)
        if not _is_text(type_):
            raise _Unfit

        def from_text(data: pa.Array, run: _Run) -> pa.Array:
            data = data.cast(pa.string())
            made = _uuid_bytes(data)
            if made is None:
                data = _keep(data, pc.match_substring_regex(data, _UUID_TEXT), column, "is no UUID", run)
                made = _uuid_bytes(data)
            if made is None:
                raise DataError(f"column {column}: UUIDs that match their pattern are not read")
            raw = pa.py_buffer(made)
            storage = pa.Array.from_buffers(pa.binary(16), len(data), [None, raw])
            if data.null_count:
                storage = as_array(pc.if_else(data.is_valid(), storage, pa.scalar(None, pa.binary(16))))
            return pa.ExtensionArray.from_storage(wanted, storage)

        return from_text

    def _binary(self, wanted: pa.DataType, type_: pa.DataType, column: str) -> _Kernel | None:
        if type_ == wanted:
            return None
        fixed = wanted.byte_width if pa.types.is_fixed_size_binary(wanted) else None

        def sized(data: pa.Array, run: _Run) -> pa.Array:
            if fixed is None:
                return data if data.type == wanted else data.cast(wanted)
            data = data.cast(pa.binary())
            data = _keep(data, pc.equal(pc.binary_length(data), fixed), column, f"is not {fixed} bytes long", run)
            return data.cast(wanted)

        if _is_bytes(type_):
            return sized
        if _is_text(type_):
            decode = _each(pa.binary(), column, _from_base64)
            return lambda data, run: sized(decode(data, run), run)
        raise _Unfit

    # moments

    def _date(self, type_: pa.DataType, schema: Schema | None, moment: _Moment | None, column: str) -> _Kernel | None:
        wanted = pa.date32()
        if _is_text(type_):
            slow = self._each_moment(wanted, column, moments.parse_date)
            return lambda data, run: _text_moments(data, wanted, _PLAIN_DATE, run, slow)
        if moment is None:
            if not pa.types.is_integer(type_) or _has_other_unit(schema):
                raise _Unfit
            moment = _Moment("date", 0)
        if moment.kind == "date":
            return self._days(column)
        if moment.kind == "timestamp":
            per_day = 86_400 * moment.per_second
            days = self._days(column)
            return lambda data, run: days(pc.divide(_floored(_storage(data, pa.int64()), per_day), per_day), run)
        raise _Unfit

    def _days(self, column: str) -> _Kernel:
        def kernel(data: pa.Array, run: _Run) -> pa.Array:
            days = _storage(data, pa.int64() if data.type.bit_width == 64 else pa.int32()).cast(pa.int64())
            days = self._in_range(days, -moments.MAX_DAYS, moments.MAX_DAYS, (-719_162, 2_932_896), column, run)
            return days.cast(pa.int32()).view(pa.date32())

        return kernel

    def _time(self, type_: pa.DataType, schema: Schema | None, moment: _Moment | None, column: str) -> _Kernel | None:
        wanted = pa.time64("us")
        if _is_text(type_):
            return self._each_moment(wanted, column, moments.parse_time)
        if moment is None:
            if not pa.types.is_integer(type_) or _has_other_unit(schema):
                raise _Unfit
            moment = _Moment("time", _MILLI)
        if moment.kind != "time":
            raise _Unfit
        per_second = moment.per_second

        def kernel(data: pa.Array, run: _Run) -> pa.Array:
            micros = self._to_micros(_storage(data, pa.int64()), per_second, column, run)
            last = MICROS_PER_DAY - 1
            return self._in_range(micros, 0, last, (0, last), column, run).view(wanted)

        return kernel

    def _timestamp(
        self,
        target: str,
        wanted: pa.DataType,
        type_: pa.DataType,
        schema: Schema | None,
        moment: _Moment | None,
        column: str,
    ) -> _Kernel | None:
        nanos = target.endswith("_ns")
        zoned = "tz" in target
        if type_ == wanted and not nanos:
            return None
        micro_type = pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")
        finish: _Kernel
        if nanos:
            finish = lambda data, run: self._scaled(data.view(pa.int64()), 1000, column, run).view(wanted)  # noqa: E731 - one of two endings
        else:
            finish = lambda data, _: data.view(wanted)  # noqa: E731 - as above
        if _is_text(type_):
            slow = self._each_moment(micro_type, column, lambda text: moments.parse_timestamp(text, zoned=zoned))
            plain = _PLAIN_TIMESTAMP if zoned else _PLAIN_LOCAL_TIMESTAMP
            return lambda data, run: finish(_text_moments(data, micro_type, plain, run, slow), run)
        if pa.types.is_floating(type_):
            whole = self._integer("long", pa.int64(), type_, column)
            if whole is None:
                raise _Unfit
            from_long = self._timestamp(target, wanted, pa.int64(), None, None, column)
            if from_long is None:
                raise _Unfit
            return lambda data, run: from_long(whole(data, run), run)
        if moment is None:
            if not pa.types.is_integer(type_) or _has_other_unit(schema):
                raise _Unfit
            moment = _Moment("timestamp", _MILLI)
        if moment.kind == "date":

            def from_date(data: pa.Array, run: _Run) -> pa.Array:
                days = _storage(data, pa.int64() if data.type.bit_width == 64 else pa.int32()).cast(pa.int64())
                return finish(self._scaled(days, MICROS_PER_DAY, column, run), run)

            return from_date
        if moment.kind != "timestamp":
            raise _Unfit
        per_second = moment.per_second
        if nanos and per_second == _NANO:
            return lambda data, _: _storage(data, pa.int64()).view(wanted)

        def from_number(data: pa.Array, run: _Run) -> pa.Array:
            return finish(self._to_micros(_storage(data, pa.int64()), per_second, column, run), run)

        return from_number

    def _to_micros(self, data: pa.Int64Array, per_second: int, column: str, run: _Run) -> pa.Int64Array:
        if per_second == _NANO:
            return pc.divide(_floored(data, 1000), 1000)
        if per_second == _MICRO:  # the ends of the range mean infinity
            return self._in_range(data, INT64_MIN + 1, INT64_MAX - 1, _CLAMPED_MICROS, column, run)
        return self._scaled(data, _MICRO // per_second, column, run)

    def _scaled(self, data: pa.Int64Array, factor: int, column: str, run: _Run) -> pa.Int64Array:
        limit = INT64_MAX // factor
        clamped = (_CLAMPED_MICROS[0] // factor, _CLAMPED_MICROS[1] // factor)
        return pc.multiply(self._in_range(data, -limit, limit, clamped, column, run), factor)

    def _in_range(
        self, data: pa.Int64Array, low: int, high: int, clamped: tuple[int, int], column: str, run: _Run
    ) -> pa.Int64Array:
        """Values outside [low, high] by configuration: a failure, null, or the first or last of `clamped`."""
        ends = pc.min_max(data).as_py()
        if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
            return data
        early, late = pc.less(data, low), pc.greater(data, high)
        policy = self._options.out_of_range
        if policy is OutOfRange.ERROR:
            return _keep(data, pc.invert(pc.or_(early, late)), column, "is out of range", run)
        if policy is OutOfRange.NULL:
            return as_array(pc.if_else(pc.or_(early, late), pa.scalar(None, data.type), data))
        first, last = pa.scalar(clamped[0], data.type), pa.scalar(clamped[1], data.type)
        return as_array(pc.if_else(early, first, pc.if_else(late, last, data)))

    def _each_moment(self, wanted: pa.DataType, column: str, parse: Callable[[str], int]) -> _Kernel:
        policy = self._options.out_of_range
        ends = {
            "date32[day]": (-719_162, 2_932_896),
            "time64[us]": (0, MICROS_PER_DAY - 1),
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
        numbers = _each(storage, column, one)
        return lambda data, run: numbers(data, run).view(wanted)

    # containers

    def _struct(
        self,
        target: Mapping[str, Any],
        wanted: pa.StructType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> _Kernel | None:
        if not (pa.types.is_struct(type_) or pa.types.is_map(type_)):
            raise _Unfit
        fields = target["fields"]
        lookup = name_lookup(fields, mapping, case_insensitive=self._options.case_insensitive)
        sources: dict[str, tuple[str, _Kernel | None]] = {}
        for name, inner_schema, inner_type in _members(schema, type_, fields, self._options):
            found = lookup(name)
            if found is not None:
                inner = inner_mapping(mapping, found["id"])
                below = f"{column}.{found['name']}"
                kernel = self.kernel(found["type"], inner_schema, inner_type, (*path, name), below, inner)
                sources[found["name"]] = (name, kernel)

        def convert(data: pa.Array, run: _Run) -> pa.Array:
            children = []
            for index, field_ in enumerate(fields):
                name = field_["name"]
                if name in sources:
                    source, kernel = sources[name]
                    child, _ = member(data, None, source)
                    child = child if kernel is None else as_array(kernel(child, run))
                else:
                    child = _missing(field_, wanted.field(index).type, len(data))
                if field_["required"] and child.null_count:
                    nulls = child.is_null()
                    if data.null_count:
                        nulls = pc.and_(nulls, data.is_valid())
                    nulls = _without_failed(nulls, f"{column}.{name}", run)
                    if any_true(nulls):
                        run.failures.append(Failure(nulls, f"{column}.{name}", "null, but the column is required"))
                children.append(child)
            mask = data.is_null() if data.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)

        return convert

    def _list(
        self,
        target: Mapping[str, Any],
        wanted: pa.ListType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> _Kernel | None:
        if not (pa.types.is_list(type_) or pa.types.is_large_list(type_)):
            raise _Unfit
        element_schema = None if schema is None else schema.value_schema
        kernel = self.kernel(
            target["element"], element_schema, type_.value_type, (*path, "element"), f"{column}.element",
            inner_mapping(mapping, target["element-id"]),
        )  # fmt: skip
        required = target["element-required"]

        def convert(data: pa.Array, run: _Run) -> pa.Array:
            items = data.flatten()
            inner = _Run()
            made = items if kernel is None else as_array(kernel(items, inner))
            if required and made.null_count:
                nulls = _without_failed(made.is_null(), f"{column}.element", inner)
                if any_true(nulls):
                    inner.failures.append(Failure(nulls, f"{column}.element", "null, but elements are required"))
            _lift_failures(inner, pc.list_parent_indices(data), len(data), run)
            offsets, mask = _offsets(pc.list_value_length(data), data)
            return pa.ListArray.from_arrays(offsets, made, type=wanted, mask=mask)

        return convert

    def _map(
        self,
        target: Mapping[str, Any],
        wanted: pa.MapType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> _Kernel | None:
        if pa.types.is_struct(type_) and schema is None:
            return self._map_of_object(target, wanted, type_, path, column, mapping)
        if not pa.types.is_map(type_):
            raise _Unfit
        key_schema = None if schema is None else schema.key_schema
        value_schema = None if schema is None else schema.value_schema
        keys = self.kernel(
            target["key"], key_schema, type_.key_type, (*path, "key"), f"{column}.key",
            inner_mapping(mapping, target["key-id"]),
        )  # fmt: skip
        values = self.kernel(
            target["value"], value_schema, type_.item_type, (*path, "value"), f"{column}.value",
            inner_mapping(mapping, target["value-id"]),
        )  # fmt: skip

        def convert(data: pa.Array, run: _Run) -> pa.Array:
            entries = _entries(data)
            inner = _Run()
            flat = entries.flatten()
            made_keys = flat.field(0) if keys is None else as_array(keys(flat.field(0), inner))
            made_values = flat.field(1) if values is None else as_array(values(flat.field(1), inner))
            if made_keys.null_count:  # an Arrow map cannot hold them; the rows fail anyway
                made_keys = made_keys.fill_null(_any_value(made_keys.type))
            _check_map_values(made_values, target, column, inner)
            _lift_failures(inner, pc.list_parent_indices(entries), len(data), run)
            offsets, mask = _offsets(pc.list_value_length(entries), entries)
            return pa.MapArray.from_arrays(offsets, made_keys, made_values, type=wanted, mask=mask)

        return convert

    def _map_of_object(
        self,
        target: Mapping[str, Any],
        wanted: pa.MapType,
        type_: pa.StructType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> _Kernel:
        """A schemaless object into a map column: one entry per member that is there."""
        if target["key"] != "string":
            raise _Unfit
        names = [f.name for f in type_]
        inner_map = inner_mapping(mapping, target["value-id"])
        kernels = [
            self.kernel(target["value"], None, f.type, (*path, f.name), f"{column}.value", inner_map) for f in type_
        ]
        value_type = arrow_type_of(target["value"])

        def convert(data: pa.Array, run: _Run) -> pa.Array:
            rows, width = len(data), len(names)
            children, present = [], []
            for name, kernel in zip(names, kernels, strict=True):
                child, _ = member(data, None, name)
                children.append(child if kernel is None else as_array(kernel(child, run)))
                gone = run.absent.get((*path, name))
                there = data.is_valid()
                present.append(there if gone is None else pc.and_not(there, gone))
            mask = data.is_null() if data.null_count else None
            if not width:
                return pa.MapArray.from_arrays(
                    pa.array([0] * (rows + 1), pa.int32()), pa.array([], pa.string()), pa.array([], value_type),
                    type=wanted, mask=mask,
                )  # fmt: skip
            order = pa.array([at * rows + row for row in range(rows) for at in range(width)], pa.int64())
            kept = pa.concat_arrays(present).take(order)
            values = pa.concat_arrays(children).take(order).filter(kept)
            keys = pa.array(names * rows, pa.string()).filter(kept)
            lengths = present[0].cast(pa.int32())
            for more in present[1:]:
                lengths = pc.add(lengths, more.cast(pa.int32()))
            if target["value-required"] and values.null_count:
                parents = pa.array([row for row in range(rows) for _ in range(width)], pa.int64()).filter(kept)
                inner = _Run()
                _check_map_values(values, target, column, inner)
                _lift_failures(inner, parents, rows, run)
            offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
            return pa.MapArray.from_arrays(offsets, keys, values, type=wanted, mask=mask)

        return convert


_CLAMPED_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # 0001-01-01 and the end of 9999


def _has_other_unit(schema: Schema | None) -> bool:
    """A number that is neither a plain one nor a moment: a duration, a year."""
    return schema is not None and logical_name(schema) in _OTHER_UNITS


def _refuse(wanted: pa.DataType, column: str, reason: str) -> _Kernel:
    def kernel(data: pa.Array, run: _Run) -> pa.Array:
        if data.null_count < len(data):
            run.failures.append(Failure(data.is_valid(), column, reason))
        return pa.nulls(len(data), wanted)

    return kernel


def _keep(data: pa.Array, fits: pa.BooleanArray, column: str, reason: str, run: _Run) -> pa.Array:
    """Null and report the values that do not fit; a null in `fits` is a null value, which fits."""
    if pc.all(fits).as_py() is not False:
        return data
    bad = pc.invert(fits).fill_null(False)
    run.failures.append(Failure(bad, column, reason))
    return as_array(pc.if_else(bad, pa.scalar(None, data.type), data))


def _within(data: pa.Array, low: int, high: int, column: str, reason: str, run: _Run) -> pa.Array:
    ends = pc.min_max(data).as_py()
    if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
        return data
    return _keep(data, pc.and_(pc.greater_equal(data, low), pc.less_equal(data, high)), column, reason, run)


def _try_cast(data: pa.Array, wanted: pa.DataType, run: _Run, slow: _Kernel) -> pa.Array:
    try:
        return data.cast(wanted)
    except pa.ArrowInvalid:
        return slow(data, run)


def _text_moments(data: pa.Array, wanted: pa.DataType, pattern: str, run: _Run, slow: _Kernel) -> pa.Array:
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
    return data.cast(wanted) if lengths["min"] >= 13 else None


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


def _each(wanted: pa.DataType, column: str, convert: Callable[[Any], Any]) -> _Kernel:
    """Value by value, each distinct one once."""

    def kernel(data: pa.Array, run: _Run) -> pa.Array:
        encoded = data.dictionary_encode()
        made: list[Any] = []
        bad: list[bool] = []
        reason = ""
        for value in encoded.dictionary.to_pylist():
            try:
                made.append(None if value is None else convert(value))
                bad.append(False)
            except (ValueError, ArithmeticError) as error:
                made.append(None)
                bad.append(True)
                reason = reason or str(error)
        if reason or any(bad):
            rows = pa.array(bad, pa.bool_()).take(encoded.indices).fill_null(False)
            run.failures.append(Failure(rows, column, reason))
        return pa.array(made, wanted).take(encoded.indices)

    return kernel


def _double_texts(data: pa.Array, run: _Run, slow: _Kernel) -> pa.Array:
    """Java's text: in its plain range the shortest digits, as Arrow's, but always with a point."""
    size = pc.abs(data)
    plain = pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7))
    text = data.cast(pa.string())
    text = as_array(pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, ".0", "")))
    if pc.all(plain).as_py() is not False:
        return text
    nothing = pa.scalar(None, pa.float64())
    return as_array(pc.if_else(plain, text, slow(as_array(pc.if_else(plain, nothing, data)), run)))


def _text_decimals(text: pa.Array, wanted: pa.DataType, run: _Run, slow: _Kernel, data: pa.Array) -> pa.Array:
    """Decimals from text that Arrow reads without loss; else `slow` on the values themselves."""
    longest = pc.max(pc.binary_length(text)).as_py()
    if longest is not None and longest <= 37:  # more digits than Arrow's decimals have never get there
        try:
            return text.cast(wanted)
        except pa.ArrowInvalid:
            pass
    return slow(data, run)


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


def _parse_float(text: str) -> float:
    match = _FLOAT_TEXT.fullmatch(text)
    if match is None:
        raise ValueError("is no number")
    return float(match[1])


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


def _each_variable_scale(wanted: pa.DataType, column: str, convert: Callable[[Decimal], Any]) -> _Kernel:
    """Debezium's {scale, value} structs, each distinct one once."""

    def kernel(data: pa.Array, run: _Run) -> pa.Array:
        scales, values = member(data, None, "scale")[0].dictionary_encode(), member(data, None, "value")[0]
        encoded = values.dictionary_encode()
        width = max(1, len(scales.dictionary))
        pairs = pc.add(pc.multiply(encoded.indices.cast(pa.int64()), width), scales.indices.cast(pa.int64()))
        distinct = pairs.dictionary_encode()
        powers, numbers = scales.dictionary.to_pylist(), encoded.dictionary.to_pylist()
        made: list[Any] = []
        bad: list[bool] = []
        reason = ""
        for pair in distinct.dictionary.to_pylist():
            unscaled, scale = numbers[pair // width], powers[pair % width]
            try:
                number = Decimal(int.from_bytes(unscaled, "big", signed=True))
                made.append(convert(number.scaleb(-scale, _MANY_DIGITS)))
                bad.append(False)
            except (ValueError, ArithmeticError) as error:
                made.append(None)
                bad.append(True)
                reason = reason or str(error)
        if reason or any(bad):
            rows = pa.array(bad, pa.bool_()).take(distinct.indices).fill_null(False)
            run.failures.append(Failure(rows, column, reason))
        return pa.array(made, wanted).take(distinct.indices)

    return kernel


def _uuid_bytes(data: pa.Array) -> bytes | None:
    """16 bytes per row, zeros for a null; None when a text is no UUID."""
    lengths = pc.min_max(pc.binary_length(data)).as_py()
    if lengths["min"] is not None:
        if lengths["min"] != 36 or lengths["max"] != 36:
            return None
        characters = data.cast(pa.binary())
        hyphens = (pc.equal(pc.binary_slice(characters, at, at + 1), b"-") for at in (8, 13, 18, 23))
        if not all(pc.all(there).as_py() for there in hyphens):
            return None
    digits = pc.replace_substring(data.fill_null("0" * 32), "-", "")
    text = digits.buffers()[2].to_pybytes()[: 32 * len(digits)] if len(digits) else b""
    try:
        made = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    return made if len(made) == 16 * len(data) else None  # blanks among the digits are skipped


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("is no base64 text") from error


def _storage(data: pa.Array, wide: pa.DataType) -> pa.Array:
    """Moments as the integers that they are, in 64 bits."""
    data = data if pa.types.is_integer(data.type) else data.view(storage_type(data.type))
    return data if data.type == wide else data.cast(wide)


def _floored(data: pa.Int64Array, unit: int) -> pa.Int64Array:
    """Each value less its remainder, so that a division rounds down."""
    return pc.subtract(data, pc.modulo(data, unit))


def _json_text(value: Value) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Value) -> Any:
    if isinstance(value, Struct):
        return {f.name: _plain(v) for f, v in value}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(-int(value.as_tuple().exponent)))
        length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return double_text(value)
    return value


def _without_failed(rows: pa.BooleanArray, column: str, run: _Run) -> pa.BooleanArray:
    for failure in run.failures:
        if failure.column == column and len(failure.rows) == len(rows):
            rows = pc.and_not(rows, failure.rows)
    return rows


def _lift_failures(inner: _Run, parents: pa.Array, rows: int, run: _Run) -> None:
    """Failures of items become failures of the rows that hold them."""
    for failure in inner.failures:
        bad = set(parents.filter(failure.rows).to_pylist())
        run.failures.append(
            Failure(pa.array([row in bad for row in range(rows)], pa.bool_()), failure.column, failure.reason)
        )


def _offsets(lengths: pa.Array, data: pa.Array) -> tuple[pa.Int32Array, pa.BooleanArray | None]:
    """Offsets from the lengths of lists, and which of them are null."""
    ends = pc.cumulative_sum(lengths.fill_null(0)).cast(pa.int32())
    mask = data.is_null() if data.null_count else None
    return pa.concat_arrays([pa.array([0], pa.int32()), as_array(ends)]), mask


def _entries(data: pa.MapArray) -> pa.ListArray:
    """A map column as a list of (key, value) structs."""
    type_ = data.type
    pair = pa.struct([pa.field("key", type_.key_type), pa.field("value", type_.item_type)])
    if data.offset:
        data = pa.concat_arrays([data, data.slice(0, 0)])
    made = pa.StructArray.from_arrays([data.keys, data.items], fields=list(pair))
    mask = data.is_null() if data.null_count else None
    return pa.ListArray.from_arrays(data.offsets, made, type=pa.list_(pair), mask=mask)


def _any_value(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar("", type_) if pa.types.is_string(type_) else pa.scalar(0).cast(type_)


def _check_map_values(values: pa.Array, target: Mapping[str, Any], column: str, inner: _Run) -> None:
    if target["value-required"] and values.null_count:
        nulls = _without_failed(values.is_null(), f"{column}.value", inner)
        if any_true(nulls):
            inner.failures.append(Failure(nulls, f"{column}.value", "null, but values are required"))
