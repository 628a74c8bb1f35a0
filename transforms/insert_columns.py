"""The batch form of `InsertField`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Type
from connect_py.columns.arrow import as_logical
from transforms.columns import (
    blamed,
    columns_of,
    finished,
    kept_nulls,
    map_members,
    maps,
    required_nulls,
    struct_column,
)
from transforms.insertions import Insertion, Insertions, Origin
from transforms.side import Side


def inserted(
    insertions: Insertions, side: Side, batch: Batch, row_form: Callable[[Any], object]
) -> Sequence[Batch]:
    """See `Transformation.apply_batch`; `row_form` is `apply`, which is to blame rows."""
    column = side.column(batch)
    if column.null_count == len(batch):
        return [batch]
    schema = column.schema
    if schema is None:
        if not pa.types.is_struct(column.data.type):
            raise blamed(batch, row_form)
        return [side.put_column(batch, _schemaless(insertions, batch, column))]
    if schema.type is not Type.STRUCT:
        raise blamed(batch, row_form)
    try:
        result = insertions.result(schema)
    except DataError as error:
        raise blamed(batch, row_form) from error
    columns = columns_of(
        schema, column.data, replace_null_with_default=insertions.replace_null_with_default
    )
    failed = required_nulls(schema, columns, column.data)  # what is inserted is not checked
    columns += [_column(insertions, insertion, batch) for insertion in insertions.fields]
    null, null_schema = kept_nulls(column)
    made = Column(
        result, struct_column(result, columns, null, len(batch)), null, tombstone_schema=null_schema
    )
    return finished(batch, row_form, side.put_column(batch, made), failed)


def _schemaless(insertions: Insertions, batch: Batch, column: Column) -> Column:
    columns = map_members(column.data)
    absent = dict(column.absent)
    for insertion in insertions.fields:
        made = _column(insertions, insertion, batch)
        replaced = columns.pop(insertion.name, None)
        if made.null_count and replaced is not None:
            raise NotColumnar(f"{insertion.name} is overwritten in some rows only")
        columns[insertion.name] = made if insertion.schema.name is None else batch.timestamp
        absent = {path: rows for path, rows in absent.items() if path[0] != insertion.name}
        if made.null_count:
            absent[(insertion.name,)] = made.is_null()
    return maps(column, columns, absent)


def _column(insertions: Insertions, insertion: Insertion, batch: Batch) -> pa.Array:
    match insertion.origin:
        case Origin.TOPIC:
            return _text(batch.topic, len(batch))
        case Origin.PARTITION:
            return batch.origin.partitions
        case Origin.OFFSET:
            return batch.origin.offsets
        case Origin.TIMESTAMP:
            return as_logical(insertion.schema, batch.timestamp)
        case Origin.STATIC:
            return _text(insertions.static_value, len(batch))


@lru_cache(maxsize=64)
def _text(value: str, length: int) -> pa.StringArray:
    """A column of one text; batches tend to have the same few lengths."""
    return pa.repeat(pa.scalar(value), length)
