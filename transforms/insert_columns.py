"""The batch form of `InsertField`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from connect_py.api.arrow import as_logical
from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Type
from transforms.columns import (
    blamed,
    children,
    defaults,
    finished,
    kept_nulls,
    required_nulls,
    struct_column,
    with_default,
)
from transforms.insertions import Insertion, Insertions, Origin
from transforms.side import Side


class InsertColumns:
    """Adds columns as the reference adds fields."""

    def __init__(self, insertions: Insertions, side: Side, row_form: Callable[[Any], object]) -> None:
        self._insertions = insertions
        self._side = side
        self._row_form = row_form
        self._defaults = lru_cache(maxsize=64)(defaults)

    def apply(self, batch: Batch) -> Sequence[Batch]:
        """See `Transformation.apply_batch`."""
        column = self._side.column(batch)
        return [batch] if column.null_count == len(batch) else self._inserted(batch, column)

    def _inserted(self, batch: Batch, column: Column) -> Sequence[Batch]:
        if column.schema is None:
            return [self._side.put_column(batch, self._schemaless(batch, column))]
        if column.schema.type is not Type.STRUCT:
            raise blamed(batch, self._row_form)
        try:
            result = self._insertions.result(column.schema)
        except DataError as error:
            raise blamed(batch, self._row_form) from error
        columns = children(column.data)
        if self._insertions.replace_null_with_default:
            columns = [with_default(c, d) for c, d in zip(columns, self._defaults(column.schema), strict=True)]
        failed = required_nulls(column.schema, columns, column.data)
        columns += [self._column(insertion, batch) for insertion in self._insertions.fields]
        null, null_schema = kept_nulls(column)
        data = struct_column(result, columns, null, len(batch))
        made = self._side.put_column(batch, Column(result, data, null, tombstone_schema=null_schema))
        return finished(batch, self._row_form, made, failed)

    def _schemaless(self, batch: Batch, column: Column) -> Column:
        data = column.data
        if not pa.types.is_struct(data.type):
            raise blamed(batch, self._row_form)
        columns = dict(zip((f.name for f in data.type), children(data), strict=True))
        absent = dict(column.absent)
        for insertion in self._insertions.fields:
            inserted = self._column(insertion, batch)
            replaced = columns.pop(insertion.name, None)
            if inserted.null_count and replaced is not None:
                raise NotColumnar(f"{insertion.name} is overwritten in some rows only")
            columns[insertion.name] = inserted if insertion.schema.name is None else batch.timestamp
            absent = {path: rows for path, rows in absent.items() if path[0] != insertion.name}
            if inserted.null_count:
                absent[(insertion.name,)] = inserted.is_null()
        null = data.is_null() if data.null_count else None
        made = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=null)
        return Column(None, made, column.tombstone, absent, column.tombstone_schema)

    def _column(self, insertion: Insertion, batch: Batch) -> pa.Array:
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
                return _text(self._insertions.static_value, len(batch))


@lru_cache(maxsize=64)
def _text(value: str, length: int) -> pa.StringArray:
    """A column of one text; batches tend to have the same few lengths."""
    return pa.repeat(pa.scalar(value), length)
