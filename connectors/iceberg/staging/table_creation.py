"""`TableCreation`: derives table creation requests from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import any_true, column_at, row_numbers
from connectors.iceberg.conversion.full_names import FullNames
from connectors.iceberg.conversion.types import TypeOptions, new_table_schema, type_of_arrow
from connectors.iceberg.staging.change_events import DELETED, Envelope, shape
from connectors.iceberg.staging.changelog import FIRST_NEW_ID, changelog_schema
from connectors.iceberg.table.table import TableRequest, WriteMode


class TableCreation:
    """Derives the schemas of new tables from rows and the configuration."""

    def __init__(self, config: IcebergSinkConfig) -> None:
        self._config = config
        self._options = TypeOptions.of(config)

    def columns(self, table: str, batch: Batch) -> Column:
        """Return the rows of a batch, extracted from change events if necessary.

        There may be fewer rows than records.
        """
        return shape(batch.value) if self._has_envelopes(table) else batch.value

    def _has_envelopes(self, table: str) -> bool:
        return self._config.envelopes and table != self._config.dead_letter_table

    def request(self, table: str, batch: Batch) -> str:
        """Return a request to open a table, with the schema to use if it must be created."""
        config = self._config
        keys = config.table(table).id_columns or self._key_of(table, batch)
        try:
            schema = self._schema(self.columns(table, batch), keys)
            if config.is_changelog(table):
                return TableRequest(changelog_schema(schema)).to_text()
            if config.marks_deletes(table) and all(f["name"] != DELETED for f in schema["fields"]):
                schema["fields"].append(
                    {"id": FIRST_NEW_ID, "name": DELETED, "required": False, "type": "boolean"}
                )
            return TableRequest(schema, keys=keys).to_text()
        except DataError as error:
            return TableRequest(None, str(error), keys=keys).to_text()

    def refused_rows(self, table: str, batch: Batch) -> BadRows | None:
        """Return the rows that prevent the creation of a table, or None if there are none."""
        if self._has_envelopes(table):
            try:
                Envelope.of(batch.value)
            except BadRows as bad:
                return bad  # invalid with any schema
        rows = self.columns(table, batch)
        try:
            self._schema(rows, ())
            return None
        except DataError as error:
            refusal = DataError(f"table {table} does not exist: {error}")
        culprits = None if rows.schema is not None else _rows_with_refused_names(rows.data)
        if culprits is None or not any_true(culprits):
            culprits = rows.data.is_valid()
        return BadRows(dict.fromkeys(row_numbers(culprits) or range(len(batch)), refusal))

    def _schema(self, rows: Column, keys: Sequence[str]) -> dict[str, Any]:
        """Return the schema of a table for these rows; see `new_table_schema`."""
        try:
            return new_table_schema(rows.schema, rows.data.type, self._options, keys)
        except DataError:
            type_ = _type_of_values(rows.data) if rows.schema is None else rows.data.type
            if type_ == rows.data.type:
                raise
            # a field without values is left over from rows that were rejected
            return new_table_schema(None, type_, self._options, keys)

    def _key_of(self, table: str, batch: Batch) -> tuple[str, ...]:
        """Return the fields of the record keys if they form the key of the table."""
        if not self._config.record_keys or self._config.mode_of(table) is WriteMode.APPEND:
            return ()
        for column in (batch.key, column_at(batch.value, ("_cdc", "key"))):
            if column is not None and column.is_struct() and column.null_count < len(column):
                return tuple(field.name for field in column.data.type)
        return ()


def _type_of_values(data: pa.Array) -> pa.DataType:
    """Return the type of schemaless rows, without the fields that are null in all rows."""
    if not pa.types.is_struct(data.type):
        return data.type
    members = zip(data.type, data.flatten(), strict=True)
    return pa.struct([field for field, values in members if values.null_count < len(values)])


def _rows_with_refused_names(data: pa.Array) -> pa.BooleanArray | None:
    """Return a mask of the schemaless rows with a field whose name conflicts with earlier fields.

    Return None if there are no such rows.
    """
    if not pa.types.is_struct(data.type):
        return None
    names, rows = FullNames(), None
    for field, values in zip(data.type, data.flatten(), strict=True):
        type_ = type_of_arrow(field.type)
        if (
            type_ is not None
            and values.null_count < len(values)
            and names.add((field.name,), type_) is not None
        ):
            rows = values.is_valid() if rows is None else pc.or_(rows, values.is_valid())
    return rows
