"""Conversion between Connect values and Arrow columns.

Import this module only on first use, because it imports pyarrow. Integers and floats are converted
to the Arrow types of the same width; BOOLEAN, STRING, and BYTES to bool, utf8, and binary; and
ARRAY, MAP, and STRUCT to list, map, and struct. Decimal is converted to decimal128 (decimal256 for
more than 38 digits) with the schema's scale, Date to date32, Time to time32[ms], and Timestamp to
timestamp[ms, UTC]. Fields of columns are always nullable; only the schema specifies whether a value
is required.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    MAX_DECIMAL_SCALE,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    Value,
    decimal_precision,
    decimal_scale,
)
from connect_py.columns.struct_columns import child
from connect_py.columns.struct_columns import is_struct as is_struct
from connect_py.columns.struct_columns import mixed as mixed
from connect_py.columns.struct_columns import struct_member as struct_member
from connect_py.plurals import pluralize

DECIMAL_DIGITS = 38
_WIDEST_DECIMAL = 76  # digits
ELEMENT = "element"  # name of list items in a path
_Path: TypeAlias = tuple[str, ...]  # same type as `connect_py.api.batch.Path`

_PRIMITIVES: Mapping[Type, pa.DataType] = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_LOGICAL: Mapping[tuple[str, Type], pa.DataType] = {
    (DATE, Type.INT32): pa.date32(),
    (TIME, Type.INT32): pa.time32("ms"),
    (TIMESTAMP, Type.INT64): pa.timestamp("ms", "UTC"),
}


@lru_cache(maxsize=4096)
def arrow_type(schema: Schema) -> pa.DataType:
    """Return the Arrow type of a column with this schema."""
    if schema.name is not None:
        logical = _LOGICAL.get((schema.name, schema.type))
        if logical is not None:
            return logical
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            digits, scale = decimal_precision(schema), decimal_scale(schema)
            digits = DECIMAL_DIGITS if digits is None else digits
            if not 1 <= digits <= _WIDEST_DECIMAL or not -digits <= scale <= digits:
                digits = _WIDEST_DECIMAL
            return (
                pa.decimal128(digits, scale)
                if digits <= DECIMAL_DIGITS
                else pa.decimal256(digits, scale)
            )
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(f.name, arrow_type(f.schema)) for f in schema.fields])
    if schema.type is Type.ARRAY:
        return pa.list_(pa.field(ELEMENT, arrow_type(_present(schema.value_schema))))
    if schema.type is Type.MAP:
        return pa.map_(
            arrow_type(_present(schema.key_schema)), arrow_type(_present(schema.value_schema))
        )
    return _PRIMITIVES[schema.type]


def storage_type(type: pa.DataType) -> pa.DataType:  # noqa: A002 - Arrow's name
    """Replace the dates, times, and timestamps in a type with their integer types."""
    if pa.types.is_date32(type) or pa.types.is_time32(type):
        return pa.int32()
    if pa.types.is_timestamp(type) or pa.types.is_time64(type) or pa.types.is_date64(type):
        return pa.int64()
    if pa.types.is_struct(type):
        return pa.struct([pa.field(f.name, storage_type(f.type)) for f in type])
    if pa.types.is_map(type):
        return pa.map_(storage_type(type.key_type), storage_type(type.item_type))
    if pa.types.is_list(type):
        return pa.list_(pa.field(type.value_field.name, storage_type(type.value_type)))
    return type


def as_logical(schema: Schema, data: pa.Array) -> pa.Array:
    """View a column of storage integers as its logical Arrow type, without copies or checks."""
    target = arrow_type(schema)
    return data if data.type == target else _reinterpret(data, target)


def _reinterpret(data: pa.Array, target: pa.DataType) -> pa.Array:
    """View a column and its children as another type that has the same buffers."""
    if data.type == target:
        return data
    if pa.types.is_struct(target):
        children = [
            _reinterpret(child(data, i), target.field(i).type) for i in range(target.num_fields)
        ]
        mask = data.is_null() if data.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_map(target):
        data = _rebased(data)
        keys = _reinterpret(data.keys, target.key_type)
        items = _reinterpret(data.items, target.item_type)
        mask = data.is_null() if data.null_count else None
        return pa.MapArray.from_arrays(data.offsets, keys, items, type=target, mask=mask)
    if pa.types.is_list(target):
        data = _rebased(data)
        values = _reinterpret(data.values, target.value_type)
        mask = data.is_null() if data.null_count else None
        return pa.ListArray.from_arrays(data.offsets, values, type=target, mask=mask)
    return data.view(target)


def _rebased(data: pa.Array) -> pa.Array:
    """Return a list or map array whose offsets start at its first item.

    Arrow does not accept a mask together with the offsets of a sliced array.
    """
    return pa.concat_arrays([data, data.slice(0, 0)]) if data.offset else data


def is_odd_decimal(kind: pa.DataType) -> bool:
    """Return True if the type is a decimal with a negative scale.

    Arrow cannot compare such decimals, and some Arrow functions change their type.
    """
    return bool(pa.types.is_decimal(kind)) and kind.scale < 0


def filled(data: pa.Array, default: pa.Scalar) -> pa.Array:
    """Return the column with nulls replaced with the default. The type does not change."""
    if not data.null_count:
        return data
    if pa.types.is_nested(data.type) or is_odd_decimal(data.type):
        rows = pc.if_else(data.is_null(), len(data), pa.array(range(len(data)), pa.int64()))
        return pa.concat_arrays([data, pa.repeat(default, 1)]).take(rows)
    return pc.coalesce(data, default)


def floor_divide(data: pa.Int64Array, unit: int) -> pa.Int64Array:
    """Divide by a positive number and round down, without overflow for the smallest integers."""
    quotient = pc.divide(data, unit)
    return pc.subtract(
        quotient, pc.less(pc.subtract(data, pc.multiply(quotient, unit)), 0).cast(pa.int64())
    )


def to_array(schema: Schema, values: Sequence[Value]) -> pa.Array:
    """Convert row values to a column.

    Raises:
        NotColumnar: A value does not fit the Arrow type, because it has too many digits or contains
            an unpaired surrogate.
    """
    try:
        return as_logical(schema, _build(schema, values))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ArithmeticError) as error:
        raise NotColumnar(f"{schema}: {error}") from error


def _build(schema: Schema, values: Sequence[Value]) -> pa.Array:
    kind = schema.type
    if kind is Type.STRUCT:
        first = next((v for v in values if v is not None), None)
        shared = None if first is None else first.shared_column(schema, values)
        if shared is not None:
            return shared
        width = len(schema.fields)
        nulls = [None] * width
        rows = [nulls if v is None else v.read_values() for v in values]
        columns = zip(*rows, strict=True) if rows and width else [()] * width
        children = [_build(f.schema, c) for f, c in zip(schema.fields, columns, strict=True)]
        mask = pa.array([v is None for v in values], pa.bool_())
        fields = [pa.field(f.name, c.type) for f, c in zip(schema.fields, children, strict=True)]
        if not fields:
            return pa.array([None if v is None else {} for v in values], pa.struct([]))
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if kind is Type.ARRAY:
        member = _present(schema.value_schema)
        items = _build(member, [x for v in values if v is not None for x in v])
        return pa.ListArray.from_arrays(
            _offsets(values), items, type=pa.list_(pa.field(ELEMENT, items.type))
        )
    if kind is Type.MAP:
        keys = _build(_present(schema.key_schema), [k for v in values if v is not None for k in v])
        items = _build(
            _present(schema.value_schema), [x for v in values if v is not None for x in v.values()]
        )
        return pa.MapArray.from_arrays(
            _offsets(values), keys, items, type=pa.map_(keys.type, items.type)
        )
    if kind is Type.BYTES and schema.name == DECIMAL:
        target = arrow_type(schema)
        _check_exponents(target, values)
        return pa.array(values, target)
    return pa.array(values, _PRIMITIVES[kind])


def _check_exponents(target: pa.DataType, values: Sequence[Value]) -> None:
    """Reject decimals that Arrow would rescale incorrectly.

    Arrow crashes on `Decimal("1E-999999999")`, and silently truncates numbers whose rescaled value
    exceeds 128 or 256 bits.

    Raises:
        NotColumnar: A number cannot be rescaled.
    """
    usual = Decimal((0, (1,), -target.scale))
    for value in values:
        if type(value) is Decimal and (target.scale < 0 or not value.same_quantum(usual)):
            _, figures, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                continue
            shift = max(exponent, exponent + target.scale, 0)
            if (
                abs(exponent) > MAX_DECIMAL_SCALE
                or len(figures) + shift > _WIDEST_DECIMAL + 1
                or int(Decimal((0, figures, shift))) >> target.bit_width - 1
            ):
                digits = pluralize(len(figures), "digit")
                raise NotColumnar(f"cannot rescale a decimal of {digits}, scale {-exponent}")


def list_array(sizes: Sequence[int | None], items: pa.Array) -> pa.ListArray:
    """Return a list column.

    Args:
        sizes: Number of items in each row, or None for a null row.
        items: Items of all rows.
    """
    return pa.ListArray.from_arrays(
        _ends(sizes), items, type=pa.list_(pa.field(ELEMENT, items.type))
    )


def _ends(sizes: Sequence[int | None]) -> pa.Int32Array:
    ends: list[int | None] = []
    at = 0
    for size in sizes:
        ends.append(None if size is None else at)
        at += size or 0
    ends.append(at)
    return pa.array(ends, pa.int32())


def decimal_array(schema: Schema, values: Sequence[bytes | None]) -> pa.Array:
    """Build a column with a Decimal schema from nonempty big-endian two's-complement integers.

    Raises:
        NotColumnar: A number has too many digits.
    """
    decimal_type = arrow_type(schema)
    width = decimal_type.bit_width // 8
    limit = 10**decimal_type.precision
    numbers = [None if v is None else int.from_bytes(v, "big", signed=True) for v in values]
    if any(n is not None and not -limit < n < limit for n in numbers):
        digits = pluralize(decimal_type.precision, "digit")
        raise NotColumnar(f"{schema}: a number has more than {digits}")
    mask = pa.array([n is not None for n in numbers], pa.bool_())
    words = b"".join([(n or 0).to_bytes(width, "little", signed=True) for n in numbers])
    return pa.Array.from_buffers(
        decimal_type, len(numbers), [mask.buffers()[1], pa.py_buffer(words)]
    )


def spread_indices(is_present: Sequence[bool]) -> pa.Int64Array:
    """Return indexes for `take` that add null rows to a column that has only the present rows."""
    mask = pa.array(is_present, pa.bool_())
    indexes = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return pc.if_else(mask, indexes, pa.scalar(None, pa.int64()))


def _offsets(values: Sequence[Value]) -> pa.Int32Array:
    return _ends([None if v is None else len(v) for v in values])


def to_values(schema: Schema, data: pa.Array) -> list[Value]:
    """Return the row values of a column.

    Structs become `Struct`, and temporal values become integers.
    """
    kind = schema.type
    if kind is Type.STRUCT:
        if not schema.fields:
            return [
                None if valid is False else Struct(schema) for valid in data.is_valid().to_pylist()
            ]
        columns = [to_values(f.schema, child(data, f.index)) for f in schema.fields]
        return _with_nulls(structs(schema, zip(*columns, strict=True)), data)
    if kind is Type.ARRAY:
        items = to_values(_present(schema.value_schema), data.flatten())
        return _regrouped(items, data)
    if kind is Type.MAP:
        entries = data.flatten() if not pa.types.is_map(data.type) else _map_entries(data)
        keys = to_values(_present(schema.key_schema), entries[0])
        items = to_values(_present(schema.value_schema), entries[1])
        return [
            None if p is None else dict(p)
            for p in _regrouped(list(zip(keys, items, strict=True)), data)
        ]
    storage = storage_type(data.type)
    values: list[Value] = (data if storage == data.type else data.view(storage)).to_pylist()
    return values


def structs(schema: Schema, rows: Iterable[Sequence[Value]]) -> list[Value]:
    """Return a `Struct` for each row of values. This is twice as fast as using the constructor."""
    result: list[Value] = []
    for row in rows:
        struct = Struct.__new__(Struct)
        struct.schema = schema
        struct.values = list(row)
        result.append(struct)
    return result


def _with_nulls(rows: list[Value], data: pa.Array) -> list[Value]:
    if data.null_count:
        for index, valid in enumerate(data.is_valid().to_pylist()):
            if not valid:
                rows[index] = None
    return rows


def _map_entries(data: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and items of the non-null rows."""
    flat = pa.ListArray.from_arrays(
        data.offsets, pa.StructArray.from_arrays([data.keys, data.items], ["k", "v"])
    )
    if data.null_count:
        flat = flat.filter(data.is_valid())
    entries = flat.flatten()
    return child(entries, 0), child(entries, 1)


def _regrouped(items: list[Value], data: pa.Array) -> list[Value]:
    """Group the items of a list or map column by row."""
    if pa.types.is_map(data.type):
        ends = data.offsets.to_pylist()
        lengths: list[int] = [b - a for a, b in pairwise(ends)]
        valid = data.is_valid().to_pylist()
        sizes = [n if ok else None for n, ok in zip(lengths, valid, strict=True)]
    else:
        sizes = pc.list_value_length(data).to_pylist()
    rows: list[Value] = []
    at = 0
    for size in sizes:
        if size is None:
            rows.append(None)
        else:
            rows.append(items[at : at + size])
            at += size
    return rows


def _present(schema: Schema | None) -> Schema:
    if schema is None:
        raise NotColumnar("a container schema has no member schema")
    return schema


def schemaless_array(values: Sequence[Value]) -> tuple[pa.Array, dict[_Path, pa.BooleanArray]]:
    """Infer a column from rows without a schema.

    Rows consist of dict, list, str, bytes, bool, int, float, and None. A dict becomes a struct that
    has the members from all rows, integers become int64, and floats become double.

    Returns:
        The column, and masks of the rows that lack a member, keyed by the member's path.

    Raises:
        NotColumnar: The type of a member differs between rows, or the items of a list have
            different members.
    """
    absent: dict[_Path, pa.BooleanArray] = {}
    try:
        return _infer(values, (), absent, inside_list=False), absent
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise NotColumnar(f"schemaless: {error}") from error


class _Absent:
    """Placeholder for a missing member of a row."""


_ABSENT = _Absent()


def _infer(
    values: Sequence[Any], path: _Path, absent: dict[_Path, pa.BooleanArray], *, inside_list: bool
) -> pa.Array:
    kinds = set(map(type, values))
    if _Absent in kinds:
        if inside_list:
            raise NotColumnar(f"items of a list have different members at {'.'.join(path)}")
        absent[path] = pa.array([v is _ABSENT for v in values], pa.bool_())
        values = [None if v is _ABSENT else v for v in values]
        kinds.discard(_Absent)
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) > 1:
        raise NotColumnar(
            f"{'.'.join(path) or 'value'} has several types: {sorted(k.__name__ for k in kinds)}"
        )
    kind = kinds.pop()
    if kind is dict:
        return _infer_struct(values, path, absent, inside_list=inside_list)
    if kind is list:
        items = _infer(
            [x for v in values if v is not None for x in v],
            (*path, ELEMENT),
            absent,
            inside_list=True,
        )
        return pa.ListArray.from_arrays(
            _offsets(values), items, type=pa.list_(pa.field(ELEMENT, items.type))
        )
    inferred = _INFERRED.get(kind)
    if inferred is None:
        if kind is Decimal:
            return pa.array(values)
        raise NotColumnar(f"{'.'.join(path) or 'value'} contains a {kind.__name__}")
    return pa.array(values, inferred)


_INFERRED: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


def _infer_struct(
    values: Sequence[dict[str, Any] | None],
    path: _Path,
    absent: dict[_Path, pa.BooleanArray],
    *,
    inside_list: bool,
) -> pa.Array:
    # usually a single order, because one program wrote all objects
    orders = dict.fromkeys(tuple(value) for value in values if value is not None)
    names = dict.fromkeys(chain.from_iterable(orders))
    for name in names:
        if not isinstance(name, str):
            raise NotColumnar(
                f"{'.'.join(path) or 'value'} has a member whose name is not a string"
            )
    if not names:
        return pa.array(values, pa.struct([]))
    columns: Iterable[Sequence[Any]]
    if len(orders) == 1:
        null_members = dict.fromkeys(names).values()
        columns = zip(*[null_members if v is None else v.values() for v in values], strict=True)
    else:
        columns = [[None if v is None else v.get(name, _ABSENT) for v in values] for name in names]
    children = [
        _infer(column, (*path, name), absent, inside_list=inside_list)
        for name, column in zip(names, columns, strict=True)
    ]
    mask = pa.array([v is None for v in values], pa.bool_())
    return pa.StructArray.from_arrays(children, names=list(names), mask=mask)


def schemaless_values(data: pa.Array, absent: Mapping[_Path, pa.BooleanArray]) -> list[Value]:
    """Return the row values of a schemaless column. Dicts do not contain absent members."""
    return _schemaless(data, (), {path: rows.to_pylist() for path, rows in absent.items()})


def _schemaless(data: pa.Array, path: _Path, absent: Mapping[_Path, list[bool]]) -> list[Value]:
    kind = data.type
    if pa.types.is_struct(kind):
        rows: list[Value] = [{} for _ in range(len(data))]
        for index in range(kind.num_fields):
            name = kind.field(index).name
            member = (*path, name)
            missing = absent.get(member)
            values = _schemaless(child(data, index), member, absent)
            if missing is None:
                for row, value in zip(rows, values, strict=True):
                    row[name] = value
            else:
                for row, value, is_absent in zip(rows, values, missing, strict=True):
                    if not is_absent:
                        row[name] = value
        return _with_nulls(rows, data)
    if pa.types.is_list(kind):
        return _regrouped(_schemaless(data.flatten(), (*path, ELEMENT), {}), data)
    storage = storage_type(kind)
    values = (data if storage == kind else data.view(storage)).to_pylist()
    return list(values)
