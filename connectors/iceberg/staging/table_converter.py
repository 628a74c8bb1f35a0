"""Conversion of batches to table rows."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError, FailureReason
from connect_py.api.record import Header, SinkRecord, TopicPartition
from connect_py.api.schema import struct
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import row_numbers, tombstones
from connectors.iceberg.conversion.kernel import ConversionOptions, Failure
from connectors.iceberg.conversion.row_converter import Converted, RowConverter
from connectors.iceberg.conversion.types import FIELD_ID, arrow_schema, writable_fields
from connectors.iceberg.table.table import TableDescription

NULL_IN_KEY = "null in the key"
_MAX_COMPILED = 500  # number of cached schemas; schemaless rows may have a new type in every batch
# Arrow tables that optional features extract from converted rows, by finding name and partition
Findings = Mapping[str, Mapping[TopicPartition, pa.Table]]


class TableLayout:
    """Column layout of a table, derived from one description.

    Raises:
        DataError: The table lacks a key column.
    """

    def __init__(self, description: TableDescription, extra: Sequence[pa.Field] = ()) -> None:
        """`extra` are the additional columns of staged rows and deletes."""
        self.description = description
        self.spec_id: int = json.loads(description.spec).get("spec-id", 0)
        self.schema = arrow_schema(writable_fields(json.loads(description.schema)["fields"]))
        self.nullable = pa.schema([f.with_nullable(True) for f in self.schema])
        self.keys = description.key_columns
        missing = [name for name in self.keys if self.schema.get_field_index(name) < 0]
        if missing:
            raise DataError(f"table {description.name} has no key column {missing[0]}")
        self.extra = extra
        self.row_schema = pa.schema([*self.schema, *extra])
        keys = [self.schema.field(key).with_nullable(False) for key in self.keys]
        self.delete_schema = pa.schema([*keys, *extra])

    def field_id(self, name: str) -> str:
        """Return the field ID of a column as a string."""
        id_: bytes = self.schema.field(name).metadata[FIELD_ID]
        return id_.decode()


@dataclass(frozen=True, slots=True)
class TableRows:
    """Converted rows of one batch, except the rows that have no effect on the table."""

    rows: pa.Table
    partitions: pa.Int32Array  # Kafka partition of each row
    ignored: int  # number of records that have no effect on the table
    findings: Findings = field(default_factory=dict)


class TableConverter(ABC):
    """Converts batches for one table layout. Caches one compiled conversion per incoming schema."""

    def __init__(self, layout: TableLayout, config: IcebergSinkConfig) -> None:
        self.layout = layout
        self._options = ConversionOptions.of(config)
        self._compiled = lru_cache(_MAX_COMPILED)(partial(RowConverter, layout.description))

    @abstractmethod
    def convert(self, batch: Batch) -> TableRows:
        """Convert a batch.

        Raises:
            BadRows: Some rows do not fit the table. They are identified by their batch index.
        """

    def row_converter(self, rows: Column, *, of_key: bool = False) -> RowConverter:
        """Return the compiled converter for rows.

        Args:
            rows: The rows to convert.
            of_key: True if the rows are record keys, which fill only the key columns.
        """
        only, unchecked = (self.layout.keys, ()) if of_key else (None, self.layout.keys)
        try:
            return self._compiled(rows.schema, rows.data.type, self._options, only, unchecked)
        except DataError as error:
            bad = row_numbers(rows.data.is_valid()) or [0]
            raise BadRows(dict.fromkeys(bad, error)) from error

    def raise_failures(
        self,
        failures: Sequence[Failure],
        excused: pa.BooleanArray | None = None,
        row_indexes: pa.Int64Array | None = None,
    ) -> None:
        """Raise BadRows if the conversion failed for any row.

        Args:
            failures: The failures of the conversion.
            excused: Rows whose failures are ignored except in key columns.
            row_indexes: The batch index of each converted row, or None if all rows were converted.
        """
        errors: dict[int, Exception] = {}
        for failure in failures:
            rows = failure.rows
            column = failure.column.split(".")[0].split(",")[0]
            if excused is not None and column not in self.layout.keys:
                rows = pc.and_not(rows, excused)
            error = DataError(
                f"table {self.layout.description.name}, column {failure.column}: {failure.reason}",
                reason=FailureReason.NULL_KEY if failure.reason == NULL_IN_KEY else None,
            )
            for row in row_numbers(rows):
                errors.setdefault(row if row_indexes is None else row_indexes[row].as_py(), error)
        if errors:
            raise BadRows(dict(sorted(errors.items())))

    def convert_keys(self, key: Column) -> Converted | None:
        """Convert record keys to the key columns.

        Return None if the keys are null, or if they are neither structs nor maps and the table does
        not have exactly one key column.
        """
        data, schema = key.data, key.schema
        if pa.types.is_null(data.type):
            return None
        if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
            if len(self.layout.keys) != 1:
                return None
            data = pa.StructArray.from_arrays([data], names=[self.layout.keys[0]])
            schema = None if schema is None else struct((self.layout.keys[0], schema))
            key = Column(schema, data)
        return self.row_converter(key, of_key=True).convert(key)

    def key_of(self, header: Header | None) -> list[Any] | None:
        """Return the key in a header, or None if it does not contain a complete key."""
        value = None if header is None else header.value
        if isinstance(value, str):  # from a header converter that does not parse JSON
            try:
                value = json.loads(value)
            except ValueError:
                return None
        if header is None or value is None:
            return None
        (batch,) = Batch.of([SinkRecord("", 0, None, None, header.schema, value, 0)])
        converted = self.convert_keys(batch.value)
        if converted is None or converted.failures:
            return None
        columns = [self.layout.schema.get_field_index(name) for name in self.layout.keys]
        key = [converted.columns[column][0].as_py() for column in columns]
        return None if None in key else key


class AppendConverter(TableConverter):
    """Converts batches for APPEND mode, in which every record with a value becomes a row."""

    def convert(self, batch: Batch) -> TableRows:
        converted = self.row_converter(batch.value).convert(batch.value)
        self.raise_failures(converted.failures)
        rows = pa.Table.from_arrays(converted.columns, schema=self.layout.nullable)
        partitions, tombstone = batch.origin.partitions, tombstones(batch.value)
        if tombstone is not None:
            has_value = pc.invert(tombstone)
            rows, partitions = rows.filter(has_value), partitions.filter(has_value)
        return TableRows(rows, partitions, len(batch) - rows.num_rows)
