"""Columns of staged files, found by field id: the table's owner may have renamed them since the rows were staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.iceberg.staging.completion import OLD_KEY_COLUMN
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.staging.projection import project
from connectors.iceberg.staging.types import FIELD_ID


def staged_names(staged: pa.Schema, columns: Iterable[pa.Field]) -> list[str]:
    """What a staged file calls these columns of the table; its own name where it says nothing of the field id."""
    by_id = {(field.metadata or {}).get(FIELD_ID): field.name for field in staged}
    return [by_id.get(field.metadata[FIELD_ID], field.name) for field in columns]


def read_staged(file: pq.ParquetFile, columns: Sequence[pa.Field], *more: str) -> pa.Table:
    """These columns under their present names, and `more`, which no table has, by name."""
    names = [*staged_names(file.schema_arrow, columns), *more]
    rows = file.read(names, use_threads=False).select(names)
    return rows.rename_columns([*(field.name for field in columns), *more])


def with_order_under(rows: pa.Table, field: pa.Field) -> pa.Table:
    """Staged rows whose `ORDER` has the id of `field`: the table may have got its column since they were staged."""
    at = rows.schema.get_field_index(ORDER)
    if at < 0 or rows.schema.field(at).equals(field, check_metadata=True):
        return rows
    return rows.set_column(at, field, rows.column(at))


def projected(rows: pa.Table, schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    """Staged rows with the columns of `schema`, and with former keys by the present names of the key columns."""
    made = project(rows, schema)
    staged = staged_names(rows.schema, [schema.field(key) for key in keys])
    now = {OLD_KEY_COLUMN + before: OLD_KEY_COLUMN + key for before, key in zip(staged, keys, strict=True)}
    return made.rename_columns([now.get(name, name) for name in made.column_names])
