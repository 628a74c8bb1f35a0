"""`TableConverter`: values, keys and headers of records become columns of one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError, FailureReason
from connect_py.api.record import Header, SinkRecord
from connect_py.api.schema import struct
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import any_true
from connectors.iceberg.conversion.conversion import Converted, RowConverter
from connectors.iceberg.conversion.kernel import ConversionOptions, Failure
from connectors.iceberg.conversion.types import FIELD_ID, arrow_schema, writable_fields
from connectors.iceberg.staging.cdc import DELETED, Placeholder
from connectors.iceberg.staging.ordering import order_field
from connectors.iceberg.table.table import TableDescription

NULL_IN_KEY = "null in the key"
_MAX_COMPILED = 500  # schemas known at once; schemaless rows may bring a new type with every batch


class TableLayout:
    """The columns of a table, by one description of it.

    Raises:
        DataError: The table lacks a column that its rows need.
    """

    def __init__(self, description: TableDescription, config: IcebergSinkConfig) -> None:
        fields = json.loads(description.schema)["fields"]
        self.description = description
        self.schema = arrow_schema(writable_fields(fields))
        self.nullable = pa.schema([f.with_nullable(True) for f in self.schema])
        self.keys = description.key_columns
        self.marked = DELETED if config.marks_deletes(description.name) else None
        if self.marked is not None and self.schema.get_field_index(self.marked) < 0:
            raise DataError(
                f"table {description.name} has no column {DELETED} to mark deleted rows in: add it"
            )
        self.unmarked = [n for n in self.schema.names if n not in self.keys and n != self.marked]
        missing = [name for name in self.keys if self.schema.get_field_index(name) < 0]
        if missing:
            raise DataError(f"table {description.name} has no key column {missing[0]}")
        self._order_field = order_field(fields) if config.ordering_columns else None

    def ordered(self, schema: pa.Schema) -> pa.Schema:
        """With the column that orders rows of several partitions, if there is one."""
        return schema if self._order_field is None else schema.append(self._order_field)

    def field_id(self, name: str) -> str:
        """Of a column."""
        found: bytes = self.schema.field(name).metadata[FIELD_ID]
        return found.decode()


class TableConverter:
    """Knows the conversions of all schemas that came lately."""

    def __init__(self, layout: TableLayout, config: IcebergSinkConfig) -> None:
        self._layout = layout
        self.keys = layout.keys
        self._options = ConversionOptions.of(config)
        self._compiled = lru_cache(_MAX_COMPILED)(partial(RowConverter, layout.description))
        self._placeholder = (
            Placeholder(config.unavailable_value) if config.unavailable_value else None
        )

    def converter(self, rows: Column, *, of_key: bool = False) -> RowConverter:
        """For such rows, or for records' keys, which fill the key columns only."""
        only, unchecked = (self._layout.keys, ()) if of_key else (None, self._layout.keys)
        try:
            return self._compiled(rows.schema, rows.data.type, self._options, only, unchecked)
        except DataError as error:
            wrong = pc.indices_nonzero(rows.data.is_valid()).to_pylist() or [0]
            raise BadRows(dict.fromkeys(wrong, error)) from error

    def raise_failures(
        self,
        failures: Sequence[Failure],
        excused: pa.BooleanArray | None = None,
        places: pa.Int64Array | None = None,
    ) -> None:
        """Report rows that did not convert.

        `excused`: rows of which only the key counts. `places`: where the rows stand in the batch;
        None: as here.

        Raises:
            BadRows: There are some.
        """
        errors: dict[int, Exception] = {}
        for failure in failures:
            rows = failure.rows
            if (
                excused is not None
                and failure.column.split(".")[0].split(",")[0] not in self._layout.keys
            ):
                rows = pc.and_not(rows, excused)
            text = (
                f"table {self._layout.description.name}, column {failure.column}: {failure.reason}"
            )
            error = DataError(
                text, reason=FailureReason.NULL_KEY if failure.reason == NULL_IN_KEY else None
            )
            for row in pc.indices_nonzero(rows).to_pylist():
                errors.setdefault(row if places is None else places[row].as_py(), error)
        if errors:
            raise BadRows(dict(sorted(errors.items())))

    def convert_keys(self, key: Column) -> Converted | None:
        """The key columns from the record keys; None when these hold nothing that could be one."""
        data, schema = key.data, key.schema
        if pa.types.is_null(data.type):
            return None
        if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
            if len(self._layout.keys) != 1:
                return None
            data = pa.StructArray.from_arrays([data], names=[self._layout.keys[0]])
            schema = None if schema is None else struct((self._layout.keys[0], schema))
            key = Column(schema, data)
        return self.converter(key, of_key=True).convert(key)

    def key_of(self, header: Header | None) -> list[Any] | None:
        """The key that a header holds; None: it holds no whole key."""
        value = None if header is None else header.value
        if isinstance(value, str):  # of a header converter that reads nothing
            try:
                value = json.loads(value)
            except ValueError:
                return None
        if header is None or value is None:
            return None
        (key,) = Batch.of([SinkRecord("", 0, None, None, header.schema, value, 0)])
        converted = self.convert_keys(key.value)
        if converted is None or converted.failures:
            return None
        found = [
            converted.columns[self._layout.schema.get_field_index(name)][0].as_py()
            for name in self._layout.keys
        ]
        return None if None in found else found

    def unavailable_rows(
        self, value: Column, converter: RowConverter, upsert: pa.BooleanArray | pa.BooleanScalar
    ) -> dict[str, pa.BooleanArray]:
        """Per table column, the upserts whose value is Debezium's placeholder."""
        found: dict[str, pa.BooleanArray] = {}
        if self._placeholder is None or not pa.types.is_struct(value.data.type):
            return found
        for column, source in converter.sources.items():
            if column in self._layout.keys:
                continue
            # below a null there is no upsert
            data = value.data.field(value.data.type.get_field_index(source))
            rows = self._placeholder.rows(data, schemaless=value.schema is None)
            if rows is not None:
                found[column] = pc.and_(rows, upsert)
                # one of them has the value
                found.update(dict.fromkeys(converter.siblings[column], found[column]))
        return {column: rows for column, rows in found.items() if any_true(rows)}
