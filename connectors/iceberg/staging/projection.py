"""Rows that were converted for an older schema of a table, in its newer one. Columns are found by field id."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.staging.columns import as_array
from connectors.iceberg.staging.types import FIELD_ID


def project(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of `schema`: widened where they were narrower, null where they are new.

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
        return pa.nulls(rows.num_rows, field.type)
    old = rows.schema.field(index)
    if old.type.equals(field.type, check_metadata=True):
        return rows.column(index)
    return _projected(as_array(rows.column(index)), old.type, field.type)


def _projected(data: pa.Array, old: pa.DataType, new: pa.DataType) -> pa.Array:
    if old.equals(new, check_metadata=True):
        return data
    mask = data.is_null() if data.null_count else None
    if pa.types.is_struct(new):
        ids = {_id(old.field(i)): i for i in range(old.num_fields)}
        children = []
        for child in new:
            at = ids.get(_id(child))
            if at is None:
                children.append(pa.nulls(len(data), child.type))
            else:
                children.append(_projected(pc.struct_field(data, [at]), old.field(at).type, child.type))
        return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)
    if pa.types.is_list(new):
        values = _projected(data.flatten(), old.value_type, new.value_type)
        ends = pc.cumulative_sum(pc.list_value_length(data).fill_null(0)).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), as_array(ends)])
        return pa.ListArray.from_arrays(offsets, values, type=new, mask=mask)
    if pa.types.is_map(new):
        data = pa.concat_arrays([data, data.slice(0, 0)]) if data.offset else data
        keys = _projected(data.keys, old.key_type, new.key_type)
        items = _projected(data.items, old.item_type, new.item_type)
        return pa.MapArray.from_arrays(data.offsets, keys, items, type=new, mask=mask)
    return data.cast(new)
