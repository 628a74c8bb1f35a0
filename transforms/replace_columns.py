"""The batch form of `ReplaceField`: what stays is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Type
from transforms.columns import (
    blamed,
    children,
    defaults,
    finished,
    maps,
    restructured,
    with_default,
)
from transforms.kept_fields import KeptFields
from transforms.side import Side


def replaced(
    kept: KeptFields,
    side: Side,
    batch: Batch,
    row_form: Callable[[Any], object],
    *,
    replace_null_with_default: bool,
) -> Sequence[Batch]:
    """See `Transformation.apply_batch`; `row_form` is `apply`, which is to blame rows."""
    column = side.column(batch)
    if column.null_count == len(batch):
        return [batch]
    schema = column.schema
    if schema is None:
        if not pa.types.is_struct(column.data.type):
            raise blamed(batch, row_form)
        return [side.put_column(batch, _schemaless(kept, column))]
    if schema.type is not Type.STRUCT:
        raise blamed(batch, row_form)
    try:
        result, sources, _, _ = kept.result(schema)
    except DataError as error:
        raise blamed(batch, row_form) from error
    for field, source in zip(result.fields, sources, strict=True):
        if (
            field.schema is not schema.fields[source].schema
            and field.schema != schema.fields[source].schema
        ):
            raise NotColumnar(f"{field.name} takes values of another type")
    columns = [column.data.field(source) for source in sources]
    if replace_null_with_default:
        found = defaults(schema)
        columns = [
            with_default(c, found[source]) for c, source in zip(columns, sources, strict=True)
        ]
    made, failed = restructured(column, result, columns)
    return finished(batch, row_form, side.put_column(batch, made), failed)


def _schemaless(kept: KeptFields, column: Column) -> Column:
    keeps, new_name = kept.keeps, kept.new_name
    columns: dict[str, pa.Array] = {}
    for field, member in zip(column.data.type, children(column.data), strict=True):
        if keeps(field.name):
            name = new_name(field.name)
            if name in columns:
                raise NotColumnar("two members get one name")
            columns[name] = member
    absent = {
        (new_name(path[0]), *path[1:]): rows
        for path, rows in column.absent.items()
        if keeps(path[0])
    }
    return maps(column, columns, absent)
