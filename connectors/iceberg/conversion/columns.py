"""Helper functions for Arrow columns: row masks, nested fields, list items, and leaf columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError, FailureReason
from connect_py.api.schema import Schema, Type
from connect_py.columns.arrow import storage_type

# --- row masks


def tombstones(column: Column) -> pa.BooleanArray | None:
    """Return a mask of the rows whose value is null, or None if there are no such rows."""
    if pa.types.is_null(column.data.type):
        return pa.repeat(pa.scalar(True), len(column))
    if column.data.null_count:
        return column.data.is_null()
    marked = column.tombstone
    return marked if marked is not None and pc.any(marked).as_py() else None


def any_true(mask: pa.BooleanArray) -> bool:
    """Return True if any element is true. Nulls count as false."""
    return pc.any(mask).as_py() is True


def row_numbers(mask: pa.BooleanArray) -> list[int]:
    """Return the indexes of the elements that are true."""
    numbers: list[int] = pc.indices_nonzero(mask).to_pylist()
    return numbers


def bad_rows(mask: pa.BooleanArray, message: str, reason: FailureReason | None = None) -> BadRows:
    """Return an error that has the same message for each row in a mask."""
    return BadRows(dict.fromkeys(row_numbers(mask), DataError(message, reason=reason)))


def without_bad_rows(batch: Batch, bad: BadRows) -> Batch | None:
    """Return the rows of a batch that have no errors, or None if all rows have errors."""
    keep = [row not in bad.errors for row in range(len(batch))]
    return batch.where(pa.array(keep)) if any(keep) else None


def is_empty(column: Column | None) -> bool:
    """Return True if the column is None or all its rows are null."""
    return column is None or column.null_count == len(column)


# --- members and items


def column_at(column: Column | None, path: Iterable[str]) -> Column | None:
    """Return the nested column at a path of field names, or None if it does not exist."""
    for name in path:
        column = column.member(name) if column is not None and column.is_struct() else None
    return column


def member(data: pa.Array, schema: Schema | None, name: str) -> tuple[pa.Array, Schema | None]:
    """Return the values and schema for a field in a struct column or a key in a map column.

    The values are null where the struct is null. If the field does not exist, all values are null.
    """
    if pa.types.is_map(data.type):
        if not pa.types.is_string(data.type.key_type):
            return pa.nulls(len(data)), None
        values = pc.map_lookup(data, query_key=pa.scalar(name, pa.string()), occurrence="last")
        return values, None if schema is None else schema.value_schema
    index = data.type.get_field_index(name)
    if index < 0:
        return pa.nulls(len(data)), None
    inner = schema[name] if schema is not None and schema.type is Type.STRUCT else None
    return pc.struct_field(data, [index]) if data.null_count else data.field(index), inner


def leaves(name: str, data: pa.Array, path: str = "") -> Iterator[tuple[str, str, pa.Array]]:
    """Yield the Iceberg name, the path in Parquet files, and the values of each leaf column."""
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


def null_mask(data: pa.Array) -> pa.BooleanArray | None:
    """Return a mask of the nulls, or None if there are no nulls."""
    return data.is_null() if data.null_count else None


def list_offsets(data: pa.ListArray) -> tuple[pa.Int32Array, pa.BooleanArray | None]:
    """Return the offsets of lists and their `null_mask`. Null lists are treated as empty."""
    ends = pc.cumulative_sum(pc.list_value_length(data).fill_null(0)).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), as_array(ends)]), null_mask(data)


def items_of(data: pa.ListArray) -> pa.Array:
    """Return the items of all lists.

    Unlike `flatten`, this works for empty arrays of structs with UUIDs.
    """
    if not pc.sum(pc.list_value_length(data)).as_py():
        return data.values.slice(0, 0)
    return data.flatten()


# --- values


def storage_of(data: pa.Array) -> pa.Array:
    """Return the storage of an extension array, such as UUIDs, or any other array unchanged."""
    return data.storage if isinstance(data, pa.ExtensionArray) else data


def plain(data: pa.Array) -> pa.Array:
    """Convert dates and times to integers, and UUIDs to bytes. Other values are unchanged."""
    data = storage_of(data)
    storage = storage_type(data.type)
    return data if storage == data.type else data.view(storage)


def some_value(type_: pa.DataType) -> pa.Scalar:
    """Return a non-null placeholder value, which readers never see."""
    if pa.types.is_fixed_size_binary(type_):
        return pa.scalar(bytes(type_.byte_width), type_)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return pa.scalar(b"", type_)
    return pa.scalar(False if pa.types.is_boolean(type_) else 0, type_)


def as_array(data: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of an array into a single array."""
    return data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data


def choose(rows: pa.BooleanArray | None, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Return the values of `yes` where `rows` is true, and the values of `no` elsewhere.

    If `rows` is None, the result is `no`.
    """
    if rows is None:
        return no
    if isinstance(no, pa.ExtensionArray):
        chosen = as_array(pc.if_else(rows, yes.storage, no.storage))
        return pa.ExtensionArray.from_storage(no.type, chosen)
    if pa.types.is_nested(no.type):  # if_else does not support lists of UUIDs
        index = pa.array(range(len(no)), pa.int64())
        return pa.concat_arrays([no, yes]).take(pc.if_else(rows, pc.add(index, len(no)), index))
    return as_array(pc.if_else(rows, yes, no))
