"""The batch form of `ReplaceField`: what stays is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Type
from transforms.columns import blamed, defaults, map_members, maps, restructured, with_default
from transforms.kept_fields import KeptFields


def replaced(
    kept: KeptFields,
    batch: Batch,
    column: Column,
    row_form: Callable[[Any], object],
    *,
    replace_null_with_default: bool,
) -> tuple[Column, set[int]]:
    """A column of the batch without some members and with new names, and the rows that may be bad.

    Raises:
        BadRows, NotColumnar: The row form, `row_form`, refuses the column.
    """
    schema = column.schema
    if schema is None:
        if not column.is_struct():
            raise blamed(batch, row_form)
        return _schemaless(kept, column), set()
    if schema.type is not Type.STRUCT:
        raise blamed(batch, row_form)
    try:
        result, sources, _, _ = kept.result(schema)
    except DataError as error:
        raise blamed(batch, row_form) from error
    for field, source in zip(result.fields, sources, strict=True):
        if field.schema is not schema.fields[source].schema and field.schema != schema.fields[source].schema:
            raise NotColumnar(f"{field.name} takes values of another type")
    columns = [column.data.field(source) for source in sources]
    if replace_null_with_default:
        found = defaults(schema)
        columns = [with_default(c, found[source]) for c, source in zip(columns, sources, strict=True)]
    return restructured(column, result, columns)


def _schemaless(kept: KeptFields, column: Column) -> Column:
    keeps, new_name = kept.keeps, kept.new_name
    members = [(new_name(name), member) for name, member in map_members(column.data).items() if keeps(name)]
    columns = dict(members)
    if len(columns) < len(members):
        raise NotColumnar("two members get one name")
    absent = {(new_name(path[0]), *path[1:]): rows for path, rows in column.absent.items() if keeps(path[0])}
    return maps(column, columns, absent)
