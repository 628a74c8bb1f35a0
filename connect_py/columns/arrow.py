"""Between Connect values and Arrow columns. Imports pyarrow, so it is itself imported on first use
only.

Arrow types by schema: integers and floats by width, bool, utf8, binary; ARRAY list, MAP map, STRUCT
struct; Decimal decimal128 (decimal256 beyond 38 digits) of the schema's scale, Date date32, Time
time32[ms], Timestamp timestamp[ms, UTC]. Column fields are always nullable: what is required is the
schema's to say.
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

DECIMAL_DIGITS = 38
_WIDEST_DECIMAL = 76  # digits
ELEMENT = "element"  # how a path names the items of a list
_Path: TypeAlias = tuple[str, ...]  # as `connect_py.api.batch.Path`

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
    """The Arrow type of a column of this schema."""
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


def storage_type(type: pa.DataType) -> pa.DataType:  # noqa: A002 - Arrow's word
    """The same type with dates, times and timestamps as the integers they are."""
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
    """See a column of storage integers as its logical Arrow type; nothing is copied or checked."""
    wanted = arrow_type(schema)
    return data if data.type == wanted else _reinterpret(data, wanted)


def _reinterpret(data: pa.Array, wanted: pa.DataType) -> pa.Array:
    """View children recursively: integers and temporal types of one width share their buffers."""
    if data.type == wanted:
        return data
    if pa.types.is_struct(wanted):
        children = [
            _reinterpret(child(data, i), wanted.field(i).type) for i in range(wanted.num_fields)
        ]
        mask = data.is_null() if data.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if pa.types.is_map(wanted):
        data = _rebased(data)
        keys = _reinterpret(data.keys, wanted.key_type)
        items = _reinterpret(data.items, wanted.item_type)
        mask = data.is_null() if data.null_count else None
        return pa.MapArray.from_arrays(data.offsets, keys, items, type=wanted, mask=mask)
    if pa.types.is_list(wanted):
        data = _rebased(data)
        values = _reinterpret(data.values, wanted.value_type)
        mask = data.is_null() if data.null_count else None
        return pa.ListArray.from_arrays(data.offsets, values, type=wanted, mask=mask)
    return data.view(wanted)


def _rebased(data: pa.Array) -> pa.Array:
    """A list or map array whose offsets start at its own first item (`mask` and slices exclude each
    other)."""
    return pa.concat_arrays([data, data.slice(0, 0)]) if data.offset else data


def is_odd_decimal(kind: pa.DataType) -> bool:
    """Whether this is a decimal of negative scale: Arrow compares none, and makes other types of
    those it selects."""
    return bool(pa.types.is_decimal(kind)) and kind.scale < 0


def filled(data: pa.Array, default: pa.Array) -> pa.Array:
    """Replace the nulls of a column with the value of a column of one row; the type is kept."""
    if not data.null_count:
        return data
    if pa.types.is_nested(data.type) or is_odd_decimal(data.type):
        rows = pc.if_else(data.is_null(), len(data), pa.array(range(len(data)), pa.int64()))
        return pa.concat_arrays([data, default]).take(rows)
    return pc.coalesce(data, default[0])


def floor_divide(data: pa.Int64Array, unit: int) -> pa.Int64Array:
    """Divide by a positive number and round down; without an overflow at the low end of 64 bits."""
    quotient = pc.divide(data, unit)
    return pc.subtract(
        quotient, pc.less(pc.subtract(data, pc.multiply(quotient, unit)), 0).cast(pa.int64())
    )


def are_between_floats(doubles: pa.DoubleArray) -> bool:
    """Whether one lies halfway between two floats, or where these are coarser still: it does not
    tell which is nearer to the digits that it was rounded from itself.
    """
    halfway = pc.equal(pc.bit_wise_and(doubles.view(pa.int64()), _FLOAT_REST), _HALF_OF_REST)
    doubtful = pc.or_(halfway, pc.less(pc.abs(doubles), _LEAST_NORMAL))
    if not pc.any(doubtful).as_py():
        return False
    inexact = pc.not_equal(doubles.cast(pa.float32(), safe=False).cast(pa.float64()), doubles)
    return pc.any(pc.and_(doubtful, inexact)).as_py() is True


_FLOAT_REST = (1 << 29) - 1  # the bits of a double's fraction that a float lacks
_HALF_OF_REST = 1 << 28
_LEAST_NORMAL = 2.0**-126  # float; those below have fewer bits still


def to_array(schema: Schema, values: Sequence[Value]) -> pa.Array:
    """Make a column from rows.

    Raises:
        NotColumnar: A value does not fit the Arrow type: too many digits, text that is no UTF-8.
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
        wanted = arrow_type(schema)
        _check_exponents(wanted, values)
        return pa.array(values, wanted)
    return pa.array(values, _PRIMITIVES[kind])


def _check_exponents(wanted: pa.DataType, values: Sequence[Value]) -> None:
    """Refuse numbers that Arrow does not check when it gives them the scale of this type.

    `Decimal("1E-999999999")` ends the process; what is beyond the 128 or 256 bits that Arrow
    computes in is lost without a word.

    Raises:
        NotColumnar: There is such a number.
    """
    usual = Decimal((0, (1,), -wanted.scale))
    for value in values:
        if type(value) is Decimal and (wanted.scale < 0 or not value.same_quantum(usual)):
            _, figures, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                continue
            shift = max(exponent, exponent + wanted.scale, 0)
            if (
                abs(exponent) > MAX_DECIMAL_SCALE
                or len(figures) + shift > _WIDEST_DECIMAL + 1
                or int(Decimal((0, figures, shift))) >> wanted.bit_width - 1
            ):
                raise NotColumnar(f"a decimal of {len(figures)} digits and scale {-exponent}")


def list_array(sizes: Sequence[int | None], items: pa.Array) -> pa.ListArray:
    """Make a list column of each row's number of items (None: a null row) and all items in
    order."""
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


def map_array(sizes: Sequence[int | None], keys: pa.Array, items: pa.Array) -> pa.MapArray:
    """Make a map column of each row's number of entries (None: a null row) and all entries in
    order."""
    return pa.MapArray.from_arrays(_ends(sizes), keys, items, type=pa.map_(keys.type, items.type))


def decimal_array(schema: Schema, values: Sequence[bytes | None]) -> pa.Array:
    """Make a column of a Decimal schema from big-endian two's complements, none of them empty.

    Raises:
        NotColumnar: A number has too many digits.
    """
    wanted = arrow_type(schema)
    width = wanted.bit_width // 8
    limit = 10**wanted.precision
    numbers = [None if v is None else int.from_bytes(v, "big", signed=True) for v in values]
    if any(n is not None and not -limit < n < limit for n in numbers):
        raise NotColumnar(f"{schema}: a number has more than {wanted.precision} digits")
    mask = pa.array([n is not None for n in numbers], pa.bool_())
    words = b"".join([(n or 0).to_bytes(width, "little", signed=True) for n in numbers])
    return pa.Array.from_buffers(wanted, len(numbers), [mask.buffers()[1], pa.py_buffer(words)])


def spread_indices(there: Sequence[bool]) -> pa.Int64Array:
    """What to `take` from a column of the rows that are there, to get one with nulls at the other
    places."""
    mask = pa.array(there, pa.bool_())
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return pc.if_else(mask, places, pa.scalar(None, pa.int64()))


def _offsets(values: Sequence[Value]) -> pa.Int32Array:
    return _ends([None if v is None else len(v) for v in values])


def to_values(schema: Schema, data: pa.Array) -> list[Value]:
    """Make rows from a column; structs become `Struct`, temporal types integers."""
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
    """Make a `Struct` of each row of values, in half the time of the constructor."""
    made: list[Value] = []
    for row in rows:
        one = Struct.__new__(Struct)
        one.schema = schema
        one.values = list(row)
        made.append(one)
    return made


def _with_nulls(rows: list[Value], data: pa.Array) -> list[Value]:
    if data.null_count:
        for index, valid in enumerate(data.is_valid().to_pylist()):
            if not valid:
                rows[index] = None
    return rows


def _map_entries(data: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Keys and items of the non-null rows, in order."""
    flat = pa.ListArray.from_arrays(
        data.offsets, pa.StructArray.from_arrays([data.keys, data.items], ["k", "v"])
    )
    if data.null_count:
        flat = flat.filter(data.is_valid())
    entries = flat.flatten()
    return child(entries, 0), child(entries, 1)


def _regrouped(items: list[Value], data: pa.Array) -> list[Value]:
    """Cut the items of a list or map column into the rows they belong to."""
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
        raise NotColumnar("a container schema without its member schema")
    return schema


def schemaless_array(values: Sequence[Value]) -> tuple[pa.Array, dict[_Path, pa.BooleanArray]]:
    """Infer the parts of a `Column` from schemaless rows (dict, list, str, bytes, bool, int, float,
    None).

    Dicts become structs of all members that occur, integers int64, floats double. Beside them
    stands which rows lack which member.

    Raises: NotColumnar: A member changes its type from row to row, or rows of a list differ in
        their members.
    """
    absent: dict[_Path, pa.BooleanArray] = {}
    try:
        return _infer(values, (), absent, inside_list=False), absent
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise NotColumnar(f"schemaless: {error}") from error


class _Absent:
    """Marks a member that a row lacks while columns are built."""


_ABSENT = _Absent()


def _infer(
    values: Sequence[Any], path: _Path, absent: dict[_Path, pa.BooleanArray], *, inside_list: bool
) -> pa.Array:
    kinds = set(map(type, values))
    if _Absent in kinds:
        if inside_list:
            raise NotColumnar(f"items of a list differ in their members at {'.'.join(path)}")
        absent[path] = pa.array([v is _ABSENT for v in values], pa.bool_())
        values = [None if v is _ABSENT else v for v in values]
        kinds.discard(_Absent)
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) > 1:
        raise NotColumnar(
            f"{'.'.join(path) or 'value'} changes its type: {sorted(k.__name__ for k in kinds)}"
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
        raise NotColumnar(f"{'.'.join(path) or 'value'} holds a {kind.__name__}")
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
    # one, where a program wrote them
    orders = dict.fromkeys(tuple(value) for value in values if value is not None)
    names = dict.fromkeys(chain.from_iterable(orders))
    for name in names:
        if not isinstance(name, str):
            raise NotColumnar(f"{'.'.join(path) or 'value'} has a member whose name is no text")
    if not names:
        return pa.array(values, pa.struct([]))
    columns: Iterable[Sequence[Any]]
    if len(orders) == 1:
        nothing = dict.fromkeys(names).values()
        columns = zip(*[nothing if v is None else v.values() for v in values], strict=True)
    else:
        columns = [[None if v is None else v.get(name, _ABSENT) for v in values] for name in names]
    children = [
        _infer(column, (*path, name), absent, inside_list=inside_list)
        for name, column in zip(names, columns, strict=True)
    ]
    mask = pa.array([v is None for v in values], pa.bool_())
    return pa.StructArray.from_arrays(children, names=list(names), mask=mask)


def schemaless_values(data: pa.Array, absent: Mapping[_Path, pa.BooleanArray]) -> list[Value]:
    """Make schemaless rows from a column: dicts without the members that are absent."""
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
