"""Reading columns: members of structs and maps, and which rows are tombstones."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.schema import Schema, Type


def tombstones(column: Column) -> pa.BooleanArray | None:
    """The rows whose value is null, whatever their schema; None when there are none."""
    if pa.types.is_null(column.data.type):
        return pa.repeat(pa.scalar(True), len(column))
    if column.data.null_count:
        return column.data.is_null()
    return column.tombstone if column.tombstone is not None and pc.any(column.tombstone).as_py() else None


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
    inner = None
    if schema is not None and schema.type is Type.STRUCT:
        inner = schema[name]
    return field_of(data, index), inner


def field_of(data: pa.StructArray, index: int) -> pa.Array:
    """A field of a struct column in which nulls of the struct show."""
    return pc.struct_field(data, [index]) if data.null_count else data.field(index)


def characters_of(text: pa.StringArray) -> bytes:
    """All characters of a column of text in a row; those that a null hides are among them."""
    offsets, characters = text.buffers()[1:]
    if not len(text) or characters is None:
        return b""
    ends = pa.Array.from_buffers(pa.int32(), len(text) + 1, [None, offsets], offset=text.offset)
    start = ends[0].as_py()
    return bytes(characters.slice(start, ends[-1].as_py() - start))


def items_of(data: pa.ListArray) -> pa.Array:
    """The items of all lists in a row, as `flatten`, which cannot make an empty array of UUIDs in structs."""
    if not pc.sum(pc.list_value_length(data)).as_py():
        return data.values.slice(0, 0)
    return data.flatten()


def any_true(mask: pa.BooleanArray) -> bool:
    """Whether a row is true; null counts as false."""
    return pc.any(mask).as_py() is True


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
