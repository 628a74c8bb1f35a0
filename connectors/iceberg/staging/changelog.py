"""Changelogs: tables with the rows before and after each change and the metadata of the change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import any_true, as_array
from connectors.iceberg.staging.change_events import AFTER, BEFORE, Change, Envelope
from connectors.iceberg.staging.partial_rows import Placeholder
from connectors.iceberg.staging.staged_changes import SEPARATOR
from connectors.iceberg.staging.table_converter import TableConverter, TableLayout, TableRows

FIRST_NEW_ID = 1_000_000  # first ID of added columns, until the catalog assigns IDs
_NAMES = {
    "type": "list",
    "element-id": 2 * FIRST_NEW_ID,
    "element": "string",
    "element-required": False,
}
# Names and Iceberg types of the metadata columns, which follow the columns of the table's rows.
CHANGE_COLUMNS: Mapping[str, str | Mapping[str, Any]] = {
    "__op": "string",  # Debezium's operation code: c, r, u, d, t
    # `before` or `after`; null for a truncate and for a delete event without the row
    "__image": "string",
    "__topic": "string",
    "__partition": "int",  # Kafka partition
    "__offset": "long",
    "__time": "timestamptz",  # timestamp of the record
    "__source_time": "timestamptz",  # time of the change in the source
    "__source_position": "string",  # position in the source's log, if the connector reports it
    # The `__tx` columns require provide.transaction.metadata=true in the source connector.
    "__tx_id": "string",
    "__tx_order": "long",  # position among all changes of the transaction
    "__tx_collection_order": "long",  # position among the transaction's changes to this table
    "__schema_version": "int",  # version of the record schema, if it has one
    "__unavailable": _NAMES,  # columns whose values the source did not send; null if none
}
# Fields of Debezium's `source` block that contain the position, for PostgreSQL, MySQL, SQL Server,
# Oracle, Db2, and MongoDB.
_POSITIONS: Sequence[Sequence[str]] = (
    ("lsn",),
    ("file", "pos", "row"),
    ("commit_lsn", "change_lsn", "event_serial_no"),
    ("commit_scn", "scn"),
    ("change_lsn",),
    ("ord",),
)
_MICROS = pa.timestamp("us", "UTC")


def changelog_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Iceberg schema of a table's changelog.

    All columns are optional, and the changelog has no identifier fields.
    """
    fields = [
        {**field, "required": False}
        for field in schema["fields"]
        if field["name"] not in CHANGE_COLUMNS
    ]
    for number, (name, type_) in enumerate(CHANGE_COLUMNS.items(), FIRST_NEW_ID):
        fields.append({"id": number, "name": name, "required": False, "type": type_})
    return {"type": "struct", "schema-id": 0, "fields": fields}


class ChangelogConverter(TableConverter):
    """Converts change events to changelog rows. Values that the source did not send are null."""

    def __init__(self, layout: TableLayout, config: IcebergSinkConfig, read: Change) -> None:
        """`read` is the change type for rows from a snapshot of the source."""
        super().__init__(layout, config)
        self._read = read
        value = config.unavailable_value
        self._placeholder = Placeholder(value) if value else None

    def convert(self, batch: Batch) -> TableRows:
        schema, envelope = self.layout.nullable, Envelope.of(batch.value, self._read)
        tables, metadata = [], []
        for image, rows, mask in _images(batch, envelope):
            row_indexes = pc.indices_nonzero(mask).cast(pa.int64())
            converter = self.row_converter(rows)
            hidden: Mapping[str, pa.BooleanArray] = {}
            if self._placeholder is not None:
                true = pa.scalar(True)
                hidden = self._placeholder.find(rows, self.layout.keys, converter, true)
            converted = converter.convert(rows, hidden)
            self.raise_failures(converted.failures, row_indexes=row_indexes)
            tables.append(pa.Table.from_arrays(converted.columns, schema=schema))
            names = _unavailable_names(hidden, len(row_indexes))
            images = pa.repeat(pa.scalar(image, pa.string()), len(row_indexes))
            metadata.append({"row_index": row_indexes, "__image": images, "__unavailable": names})
        if not tables:
            return TableRows(schema.empty_table(), pa.array([], pa.int32()), len(batch))
        rows = pa.concat_tables(tables)
        columns = {name: pa.concat_arrays([m[name] for m in metadata]) for name in metadata[0]}
        row_indexes = columns.pop("row_index")
        columns |= {
            name: data.take(row_indexes) for name, data in _metadata(batch, envelope).items()
        }
        for at, field in enumerate(schema):
            if field.name in columns:
                rows = rows.set_column(at, field, as_array(columns[field.name].cast(field.type)))
        # the images of a change are adjacent, starting with the row before the change
        order = pc.array_sort_indices(row_indexes)
        partitions = batch.origin.partitions.take(row_indexes).take(order)
        return TableRows(rows.take(order), partitions, len(batch) - len(pc.unique(row_indexes)))


def _images(
    batch: Batch, envelope: Envelope
) -> Iterator[tuple[str | None, Column, pa.BooleanArray]]:
    """Yield the name and rows of each image, with a mask of the corresponding records.

    The images are the rows before and after the changes. A truncate has no row. If a delete event
    does not contain the row, the result contains only the columns of the record key.
    """
    value, change = batch.value, envelope.change
    after = value.member(AFTER) if value.is_struct() else None
    deletes = pc.equal(change, Change.DELETE)
    has_row = pc.or_(pc.equal(change, Change.UPSERT), deletes)
    without_row = pc.and_(deletes, envelope.operation.is_valid())  # excludes tombstones
    if envelope.before is not None:
        null = envelope.before.is_null()
        without_row = pc.and_(without_row, pa.scalar(False) if null is None else null)
    images: list[tuple[str | None, Column | None, pa.BooleanArray]] = []
    for image, column in ((BEFORE, envelope.before), (AFTER, after)):
        if column is not None:
            null = column.is_null()
            images.append((image, column, has_row if null is None else pc.and_not(has_row, null)))
    images.append((None, batch.key if batch.key.is_struct() else None, without_row))
    images.append((None, None, pc.equal(change, Change.TRUNCATE)))
    for name, column, mask in images:
        if any_true(mask):
            rows = Column(None, pa.nulls(mask.true_count)) if column is None else column.where(mask)
            yield name, rows, mask


def _metadata(batch: Batch, envelope: Envelope) -> dict[str, pa.Array]:
    """Return the metadata columns of the events. Values that an event does not contain are null."""
    value, origin, count = batch.value, batch.origin, len(batch)
    source = value.member("source") if value.is_struct() else None
    transaction = value.member("transaction") if value.is_struct() else None
    version = value.schema.version if value.schema is not None else None
    source_time, position = pa.nulls(count, _MICROS), pa.nulls(count, pa.string())
    fields = _field_names(source)
    for name in ("ts_us", "ts_ns", "ts_ms"):
        if name in fields:
            time = _member(source, name, pa.int64(), count)
            if name == "ts_ms":
                time = pc.multiply(time, 1000)
            elif name == "ts_ns":
                time = pc.divide(time, 1000)
            source_time = time.cast(_MICROS)
            break
    for names in _POSITIONS:
        if fields.issuperset(names):
            parts = [_member(source, name, pa.string(), count) for name in names]
            position = pc.binary_join_element_wise(*parts, ":")
            break
    return {
        "__op": envelope.operation,
        "__topic": pa.repeat(pa.scalar(origin.topic), count),
        "__partition": origin.partitions,
        "__offset": origin.offsets,
        "__time": pc.multiply(batch.timestamp, 1000).cast(_MICROS),
        "__source_time": source_time,
        "__source_position": position,
        "__tx_id": _member(transaction, "id", pa.string(), count),
        "__tx_order": _member(transaction, "total_order", pa.int64(), count),
        "__tx_collection_order": _member(transaction, "data_collection_order", pa.int64(), count),
        "__schema_version": pa.repeat(pa.scalar(version, pa.int32()), count),
    }


def _unavailable_names(hidden: Mapping[str, pa.BooleanArray], count: int) -> pa.ListArray:
    """Return the names of the unavailable columns in each row, or null if there are none.

    `hidden` contains a mask of rows for each column.
    """
    if not hidden:
        return pa.nulls(count, pa.list_(pa.string()))
    names = [pc.if_else(rows, f"{SEPARATOR}{name}", "") for name, rows in hidden.items()]
    joined = pc.binary_join_element_wise(*names, "")
    null = pa.scalar(None, pa.string())
    lacking = pc.if_else(pc.equal(joined, ""), null, pc.utf8_slice_codeunits(joined, 1))
    return as_array(pc.split_pattern(lacking, SEPARATOR))


def _field_names(column: Column | None) -> set[str]:
    if column is None or not pa.types.is_struct(column.data.type):
        return set()
    return {field.name for field in column.data.type}


def _member(column: Column | None, name: str, type_: pa.DataType, count: int) -> pa.Array:
    """Return a field of a struct column cast to a type, or nulls if it is missing or invalid."""
    if column is None or name not in _field_names(column):
        return pa.nulls(count, type_)
    member = column.member(name)
    try:
        return pa.nulls(count, type_) if member is None else as_array(member.data.cast(type_))
    except pa.ArrowInvalid:
        return pa.nulls(count, type_)
