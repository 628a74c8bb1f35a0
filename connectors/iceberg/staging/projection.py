"""Projection of rows to the newest schema of a table."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.conversion.columns import (
    as_array,
    items_of,
    list_offsets,
    null_mask,
    some_value,
)
from connectors.iceberg.conversion.types import FIELD_ID, initial_values


def project(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of `schema`, followed by the columns without a field ID.

    Narrower types are widened. New columns contain their initial default or null.
    """
    extra = [f for f in rows.schema if _id(f) is None]
    target = pa.schema([*schema, *extra])
    if rows.schema.equals(target, check_metadata=True):
        return rows
    columns = [_column(rows, field) for field in schema]
    return pa.Table.from_arrays([*columns, *(rows.column(f.name) for f in extra)], schema=target)


def _id(field: pa.Field) -> bytes | None:
    return None if field.metadata is None else field.metadata.get(FIELD_ID)


def _column(rows: pa.Table, field: pa.Field) -> pa.Array:
    index = next((i for i, old in enumerate(rows.schema) if _id(old) == _id(field)), None)
    if index is None:
        return initial_values(field, rows.num_rows)
    old = rows.schema.field(index)
    if old.type.equals(field.type, check_metadata=True):
        return rows.column(index)
    return _projected(as_array(rows.column(index)), field.type)


def _projected(data: pa.Array, new: pa.DataType) -> pa.Array:
    old = data.type
    if old.equals(new, check_metadata=True):
        return data
    if pa.types.is_struct(new):
        ids = {_id(old.field(i)): i for i in range(old.num_fields)}
        children = [
            initial_values(child, len(data))
            if (at := ids.get(_id(child))) is None
            else _projected(pc.struct_field(data, [at]), child.type)
            for child in new
        ]
        return pa.StructArray.from_arrays(children, fields=list(new), mask=null_mask(data))
    if pa.types.is_list(new) or pa.types.is_map(new):
        return _with_items(data, new, lambda items, field: _projected(items, field.type))
    return data.cast(new)


def _with_items(
    data: pa.Array,
    type_: pa.DataType,
    change: Callable[[pa.Array, pa.Field], pa.Array],
    *,
    keep_nulls: bool = True,
) -> pa.Array:
    """Return a column of lists or maps with `change` applied to their items."""
    mask = null_mask(data) if keep_nulls else None
    if pa.types.is_list(type_):
        offsets, _ = list_offsets(data)
        items = change(items_of(data), type_.value_field)
        return pa.ListArray.from_arrays(offsets, items, type=type_, mask=mask)
    data = pa.concat_arrays([data, data.slice(0, 0)]) if data.offset else data
    keys, items = change(data.keys, type_.key_field), change(data.items, type_.item_field)
    return pa.MapArray.from_arrays(data.offsets, keys, items, type=type_, mask=mask)


def with_hidden_values(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Replace nulls in required fields inside null structs with values that readers never see.

    The Parquet writer would reject these nulls because the field is required.
    """
    if not _has_required(type_):
        return column
    return pa.chunked_array(
        [_without_hidden_nulls(chunk, type_, required=False) for chunk in column.chunks], type_
    )


def _has_required(type_: pa.DataType) -> bool:
    """Return True if a struct inside the type has a required field."""
    if pa.types.is_struct(type_):
        return any(not f.nullable or _has_required(f.type) for f in type_)
    if pa.types.is_list(type_):
        return _has_required(type_.value_type)
    return bool(pa.types.is_map(type_)) and (
        _has_required(type_.key_type) or _has_required(type_.item_type)
    )


def _without_hidden_nulls(data: pa.Array, type_: pa.DataType, *, required: bool) -> pa.Array:
    """Replace the nulls in required fields inside null structs.

    If `required` is True, all nulls in this array are such nulls.
    """
    if pa.types.is_struct(type_):
        children = [
            _without_hidden_nulls(pc.struct_field(data, [i]), f.type, required=not f.nullable)
            for i, f in enumerate(type_)
        ]
        mask = None if required else null_mask(data)
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        return _with_items(
            data,
            type_,
            lambda items, f: _without_hidden_nulls(items, f.type, required=not f.nullable),
            keep_nulls=not required,
        )
    if not required or not data.null_count:
        return data
    if isinstance(data, pa.ExtensionArray):
        storage = _without_hidden_nulls(data.storage, data.storage.type, required=True)
        return pa.ExtensionArray.from_storage(type_, storage)
    return data.fill_null(some_value(type_))
