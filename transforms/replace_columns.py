"""The batch form of `ReplaceField`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Type
from transforms.columns import (
    blamed,
    children,
    defaults,
    empty_structs,
    finished,
    kept_nulls,
    required_nulls,
    struct_column,
    with_default,
)
from transforms.kept_fields import KeptFields
from transforms.side import Side


class ReplaceColumns:
    """Leaves out and renames columns as the reference does fields; what stays is shared."""

    def __init__(
        self, kept: KeptFields, side: Side, row_form: Callable[[Any], object], *, replace_null_with_default: bool
    ) -> None:
        self._kept = kept
        self._side = side
        self._row_form = row_form
        self._replace_null_with_default = replace_null_with_default
        self._defaults = lru_cache(maxsize=64)(defaults)

    def apply(self, batch: Batch) -> Sequence[Batch]:
        """See `Transformation.apply_batch`."""
        column = self._side.column(batch)
        if column.null_count == len(batch):
            return [batch]
        if column.schema is None:
            return [self._side.put_column(batch, self._schemaless(batch, column))]
        made, failed = self._with_schema(batch, column)
        return finished(batch, self._row_form, self._side.put_column(batch, made), failed)

    def _with_schema(self, batch: Batch, column: Column) -> tuple[Column, set[int]]:
        schema = column.schema
        assert schema is not None
        if schema.type is not Type.STRUCT:
            raise blamed(batch, self._row_form)
        try:
            result, sources, _, _ = self._kept.result(schema)
        except DataError as error:
            raise blamed(batch, self._row_form) from error
        for field, source in zip(result.fields, sources, strict=True):
            if field.schema is not schema.fields[source].schema and field.schema != schema.fields[source].schema:
                raise NotColumnar(f"{field.name} takes values of another type")
        columns = [column.data.field(source) for source in sources]
        if self._replace_null_with_default:
            found = self._defaults(schema)
            columns = [with_default(c, found[source]) for c, source in zip(columns, sources, strict=True)]
        null, null_schema = kept_nulls(column)
        data = struct_column(result, columns, null, len(batch))
        return Column(result, data, null, tombstone_schema=null_schema), required_nulls(result, columns, column.data)

    def _schemaless(self, batch: Batch, column: Column) -> Column:
        data = column.data
        if not pa.types.is_struct(data.type):
            raise blamed(batch, self._row_form)
        keeps, new_name = self._kept.keeps, self._kept.new_name
        kept = [(new_name(f.name), c) for f, c in zip(data.type, children(data), strict=True) if keeps(f.name)]
        names = [name for name, _ in kept]
        if len(set(names)) < len(names):
            raise NotColumnar("two members get one name")
        absent = {(new_name(path[0]), *path[1:]): rows for path, rows in column.absent.items() if keeps(path[0])}
        null = data.is_null() if data.null_count else None
        if kept:
            made = pa.StructArray.from_arrays([c for _, c in kept], names=names, mask=null)
        else:
            made = empty_structs(null, len(batch))
        return Column(None, made, column.tombstone, absent, column.tombstone_schema)
