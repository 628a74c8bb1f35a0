"""Rows in the exact shape that a file needs: in the newest schema of the table, as the Parquet
writer wants them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.conversion.columns import as_array, items_of, list_offsets, some_value
from connectors.iceberg.conversion.types import FIELD_ID, values_of_rows_before


def project(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of `schema`: widened where they were narrower, by default or null where
    they are new.

    Columns without a field id are kept, after the others.
    """
    extra = [f for f in rows.schema if _id(f) is None]
    wanted = pa.schema([*schema, *extra])
    if rows.schema.equals(wanted, check_metadata=True):
        return rows
    columns = [_column(rows, field) for field in schema]
    return pa.Table.from_arrays([*columns, *(rows.column(f.name) for f in extra)], schema=wanted)


def _id(field: pa.Field) -> bytes | None:
    return None if field.metadata is None else field.metadata.get(FIELD_ID)


def _column(rows: pa.Table, field: pa.Field) -> pa.Array:
    index = next((i for i, old in enumerate(rows.schema) if _id(old) == _id(field)), None)
    if index is None:
        return values_of_rows_before(field, rows.num_rows)
    old = rows.schema.field(index)
    if old.type.equals(field.type, check_metadata=True):
        return rows.column(index)
    return _projected(as_array(rows.column(index)), field.type)


def _projected(data: pa.Array, new: pa.DataType) -> pa.Array:
    old = data.type
    if old.equals(new, check_metadata=True):
        return data
    mask = data.is_null() if data.null_count else None
    if pa.types.is_struct(new):
        ids = {_id(old.field(i)): i for i in range(old.num_fields)}
        children = []
        for child in new:
            at = ids.get(_id(child))
            if at is None:
                children.append(values_of_rows_before(child, len(data)))
            else:
                children.append(_projected(pc.struct_field(data, [at]), child.type))
        return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)
    if pa.types.is_list(new) or pa.types.is_map(new):
        return _with_items(data, new, lambda items, field: _projected(items, field.type), mask)
    return data.cast(new)


def _with_items(
    data: pa.Array,
    type_: pa.DataType,
    change: Callable[[pa.Array, pa.Field], pa.Array],
    mask: pa.BooleanArray | None,
) -> pa.Array:
    """A column of lists or maps with changed items."""
    if pa.types.is_list(type_):
        offsets, _ = list_offsets(data)
        return pa.ListArray.from_arrays(
            offsets, change(items_of(data), type_.value_field), type=type_, mask=mask
        )
    data = pa.concat_arrays([data, data.slice(0, 0)]) if data.offset else data
    keys, items = change(data.keys, type_.key_field), change(data.items, type_.item_field)
    return pa.MapArray.from_arrays(data.offsets, keys, items, type=type_, mask=mask)


def with_hidden_values(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """The same column with something in place of nulls where it cannot be seen: in required fields
    below a null struct.

    The Parquet writer counts such nulls as nulls of the required field and refuses them.
    """
    if not _has_required(type_):
        return column
    return pa.chunked_array(
        [_visible(chunk, type_, required=False) for chunk in column.chunks], type_
    )


def _has_required(type_: pa.DataType) -> bool:
    """Whether a struct inside has a required field."""
    if pa.types.is_struct(type_):
        return any(not f.nullable or _has_required(f.type) for f in type_)
    if pa.types.is_list(type_):
        return _has_required(type_.value_type)
    return bool(pa.types.is_map(type_)) and (
        _has_required(type_.key_type) or _has_required(type_.item_type)
    )


def _visible(data: pa.Array, type_: pa.DataType, *, required: bool) -> pa.Array:
    """`required`: leave no null in this array either; its nulls are hidden."""
    mask = data.is_null() if data.null_count and not required else None
    if pa.types.is_struct(type_):
        children = [
            _visible(
                pc.struct_field(data, [i]),
                type_.field(i).type,
                required=not type_.field(i).nullable,
            )
            for i in range(type_.num_fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        return _with_items(
            data, type_, lambda items, f: _visible(items, f.type, required=not f.nullable), mask
        )
    if not required or not data.null_count:
        return data
    if isinstance(data, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(
            type_, _visible(data.storage, data.storage.type, required=True)
        )
    return data.fill_null(some_value(type_))
