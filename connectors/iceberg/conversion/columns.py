"""Columns: members of structs and maps, what lists and files of them consist of, and which rows are
tombstones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.schema import Schema, Type
from connect_py.columns.arrow import storage_type


def tombstones(column: Column) -> pa.BooleanArray | None:
    """The rows whose value is null, whatever their schema; None when there are none."""
    if pa.types.is_null(column.data.type):
        return pa.repeat(pa.scalar(True), len(column))
    if column.data.null_count:
        return column.data.is_null()
    return (
        column.tombstone
        if column.tombstone is not None and pc.any(column.tombstone).as_py()
        else None
    )


def column_at(column: Column | None, path: Iterable[str]) -> Column | None:
    """The member that a path of names leads to; None: there is none."""
    for name in path:
        column = column.member(name) if column is not None and column.is_struct() else None
    return column


def member(data: pa.Array, schema: Schema | None, name: str) -> tuple[pa.Array, Schema | None]:
    """A field of a struct column, or the value of a key in a map column; nulls where there is none.

    Nulls of the struct show in the field.
    """
    if pa.types.is_map(data.type):
        if not pa.types.is_string(data.type.key_type):
            return pa.nulls(len(data)), None
        found = pc.map_lookup(data, query_key=pa.scalar(name, pa.string()), occurrence="last")
        return found, None if schema is None else schema.value_schema
    index = data.type.get_field_index(name)
    if index < 0:
        return pa.nulls(len(data)), None
    inner = schema[name] if schema is not None and schema.type is Type.STRUCT else None
    return pc.struct_field(data, [index]) if data.null_count else data.field(index), inner


def list_offsets(data: pa.ListArray) -> tuple[pa.Int32Array, pa.BooleanArray | None]:
    """The offsets of lists as long as these, without what a null hides; and which of them are null,
    None: none."""
    ends = pc.cumulative_sum(pc.list_value_length(data).fill_null(0)).cast(pa.int32())
    mask = data.is_null() if data.null_count else None
    return pa.concat_arrays([pa.array([0], pa.int32()), as_array(ends)]), mask


def leaves(name: str, data: pa.Array, path: str = "") -> Iterator[tuple[str, str, pa.Array]]:
    """What a column consists of in a file: the name of each in Iceberg, its path in Parquet, and
    its values."""
    path = path or name
    if isinstance(data, pa.ExtensionArray):
        data = data.storage
    if pa.types.is_struct(data.type):
        for index, field in enumerate(data.type):
            inner = pc.struct_field(data, [index])
            yield from leaves(f"{name}.{field.name}", inner, f"{path}.{field.name}")
    elif pa.types.is_map(data.type):
        yield from leaves(f"{name}.key", data.keys, f"{path}.key_value.key")
        yield from leaves(f"{name}.value", data.items, f"{path}.key_value.value")
    elif pa.types.is_list(data.type):
        yield from leaves(f"{name}.element", items_of(data), f"{path}.list.element")
    else:
        yield name, path, data


def items_of(data: pa.ListArray) -> pa.Array:
    """The items of all lists in a row, as `flatten`, which cannot make an empty array of UUIDs in
    structs."""
    if not pc.sum(pc.list_value_length(data)).as_py():
        return data.values.slice(0, 0)
    return data.flatten()


def plain(data: pa.Array) -> pa.Array:
    """Moments as the integers that they are, UUIDs as bytes; other values as they are."""
    data = data.storage if isinstance(data, pa.ExtensionArray) else data
    storage = storage_type(data.type)
    return data if storage == data.type else data.view(storage)


def any_true(mask: pa.BooleanArray) -> bool:
    """Whether a row is true; null counts as false."""
    return pc.any(mask).as_py() is True


def some_value(type_: pa.DataType) -> pa.Scalar:
    """A value that is no null, for places where it cannot be seen."""
    if pa.types.is_fixed_size_binary(type_):
        return pa.scalar(bytes(type_.byte_width), type_)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return pa.scalar(b"", type_)
    return pa.scalar(False if pa.types.is_boolean(type_) else 0, type_)


def as_array(data: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, however many chunks there were."""
    return data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data


def choose(rows: pa.BooleanArray | None, yes: pa.Array, no: pa.Array) -> pa.Array:
    """The values of `yes` in these rows, those of `no` elsewhere; None: nowhere."""
    if rows is None:
        return no
    if isinstance(no, pa.ExtensionArray):
        chosen = as_array(pc.if_else(rows, yes.storage, no.storage))
        return pa.ExtensionArray.from_storage(no.type, chosen)
    if pa.types.is_nested(no.type):  # if_else knows no lists of UUIDs
        place = pa.array(range(len(no)), pa.int64())
        return pa.concat_arrays([no, yes]).take(pc.if_else(rows, pc.add(place, len(no)), place))
    return as_array(pc.if_else(rows, yes, no))
