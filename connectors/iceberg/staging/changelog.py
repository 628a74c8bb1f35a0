"""Every change as rows of its own: the row before, the row after, and what happened. For tables
beside the mirror."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connectors.iceberg.conversion.columns import as_array
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.envelope import AFTER, BEFORE, Envelope
from connectors.iceberg.staging.staged_changes import SEPARATOR

_DELETED_ID = 1_000_000  # ids of these columns until the catalog assigns them
_TEXTS = {
    "type": "list",
    "element-id": 2 * _DELETED_ID,
    "element": "string",
    "element-required": False,
}
# Columns beside the row's own: name and Iceberg type.
CHANGE_COLUMNS: Mapping[str, str | Mapping[str, Any]] = {
    "__op": "string",  # Debezium's letter: c, r, u, d, t
    # `before` or `after`; null: a truncate, or a delete of a row that is not known
    "__image": "string",
    "__topic": "string",
    "__partition": "int",  # Kafka's
    "__offset": "long",
    "__time": "timestamptz",  # of the record
    "__source_time": "timestamptz",  # when the source made the change
    # where it stands in the source's log, as far as its connector says so
    "__source_position": "string",
    "__tx_id": "string",  # these three with `provide.transaction.metadata` at the source
    "__tx_order": "long",  # among all changes of the transaction
    "__tx_collection_order": "long",  # among those of its table
    "__schema_version": "int",  # of the record's schema, where it has one
    "__unavailable": _TEXTS,  # columns whose value the source did not send; null: it sent all
}
# Members of Debezium's `source` that tell a place, by source: PostgreSQL, MySQL, SQL Server,
# Oracle, Db2, MongoDB.
_POSITIONS: Sequence[Sequence[str]] = (
    ("lsn",),
    ("file", "pos", "row"),
    ("commit_lsn", "change_lsn", "event_serial_no"),
    ("commit_scn", "scn"),
    ("change_lsn",),
    ("ord",),
)
_MICROSECONDS: Mapping[str, float] = {"ts_us": 1, "ts_ns": 0.001, "ts_ms": 1000}


def changelog_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The Iceberg schema of a changelog of rows of this schema: nothing is required, and the key
    identifies no row."""
    fields = [
        {**field, "required": False}
        for field in schema["fields"]
        if field["name"] not in CHANGE_COLUMNS
    ]
    for number, (name, type_) in enumerate(CHANGE_COLUMNS.items(), _DELETED_ID):
        fields.append({"id": number, "name": name, "required": False, "type": type_})
    return {"type": "struct", "schema-id": 0, "fields": fields}


class Changes:
    """The changes of one batch of events, image by image."""

    def __init__(self, batch: Batch, read: Change = Change.UPSERT) -> None:
        """`read` is what events of a snapshot mean. Raises BadRows: These rows are no change
        events."""
        self._batch = batch
        self._envelope = Envelope.of(batch.value, read)
        self._images: list[pa.StringArray] = []
        self._rows: list[pa.Int64Array] = []

    def images(self) -> Iterator[tuple[Column, pa.Int64Array]]:
        """The rows before and those after, each with the places in the batch that they are of; the
        others come last.

        A truncate has no row, and of a delete whose row before is not known the record's key is
        shown.
        """
        envelope, value, key = self._envelope, self._batch.value, self._batch.key
        after = value.member(AFTER) if value.is_struct() else None
        deletes = pc.equal(envelope.change, Change.DELETE)
        of_row = pc.or_(pc.equal(envelope.change, Change.UPSERT), deletes)
        bare = pc.and_(deletes, envelope.operation.is_valid())  # no tombstone
        if envelope.before is not None:
            null = envelope.before.is_null()
            bare = pc.and_(bare, pa.scalar(False) if null is None else null)
        for image, column in ((BEFORE, envelope.before), (AFTER, after)):
            if column is not None:
                null = column.is_null()
                yield from self._image(
                    image, column, of_row if null is None else pc.and_not(of_row, null)
                )
        yield from self._image(None, key if key.is_struct() else None, bare)
        yield from self._image(None, None, pc.equal(envelope.change, Change.TRUNCATE))

    def _image(
        self, image: str | None, column: Column | None, there: pa.BooleanArray
    ) -> Iterator[tuple[Column, pa.Int64Array]]:
        if not pc.any(there).as_py():
            return
        places = pc.indices_nonzero(there).cast(pa.int64())
        self._rows.append(places)
        self._images.append(pa.repeat(pa.scalar(image, pa.string()), len(places)))
        yield Column(None, pa.nulls(len(places))) if column is None else column.where(there), places

    def places(self) -> pa.Int64Array:
        """Of all images, in the order of `images`, the place in the batch."""
        return pa.concat_arrays(self._rows) if self._rows else pa.array([], pa.int64())

    def _of_source(self) -> dict[str, pa.Array]:
        """What the events say of where they come from, event by event; null where they do not."""
        value, count = self._batch.value, len(self._batch)
        source = value.member("source") if value.is_struct() else None
        transaction = value.member("transaction") if value.is_struct() else None
        version = value.schema.version if value.schema is not None else None
        found = {
            "__tx_id": _member(transaction, "id", pa.string(), count),
            "__tx_order": _member(transaction, "total_order", pa.int64(), count),
            "__tx_collection_order": _member(
                transaction, "data_collection_order", pa.int64(), count
            ),
            "__schema_version": pa.repeat(pa.scalar(version, pa.int32()), count),
            "__source_time": pa.nulls(count, pa.timestamp("us", "UTC")),
            "__source_position": pa.nulls(count, pa.string()),
        }
        there = _names(source)
        for name, factor in _MICROSECONDS.items():
            if name in there:
                at = _member(source, name, pa.int64(), count)
                at = (
                    pc.multiply(at, 1000)
                    if factor > 1
                    else at
                    if factor == 1
                    else pc.divide(at, 1000)
                )
                found["__source_time"] = at.cast(pa.timestamp("us", "UTC"))
                break
        for members in _POSITIONS:
            if there.issuperset(members):
                texts = [_member(source, name, pa.string(), count) for name in members]
                found["__source_position"] = pc.binary_join_element_wise(*texts, ":")
                break
        return found

    def described(
        self, schema: pa.Schema, unavailable: Sequence[pa.ListArray]
    ) -> dict[str, pa.Array]:
        """The columns that tell of the changes, as far as the table has them, for all images in
        their order.

        `unavailable`: see `unavailable_names`, image by image.
        """
        places, origin = self.places(), self._batch.origin
        known = {
            "__op": self._envelope.operation.take(places),
            "__image": pa.concat_arrays(self._images)
            if self._images
            else pa.array([], pa.string()),
            "__topic": pa.repeat(pa.scalar(origin.topic), len(places)),
            "__partition": origin.partitions.take(places),
            "__offset": origin.offsets.take(places),
            "__time": pc.multiply(self._batch.timestamp.take(places), 1000).cast(
                pa.timestamp("us", "UTC")
            ),
            **{name: data.take(places) for name, data in self._of_source().items()},
            "__unavailable": pa.concat_arrays(unavailable),
        }
        return {
            name: as_array(data.cast(schema.field(name).type))
            for name, data in known.items()
            if name in schema.names
        }


def unavailable_names(hidden: Mapping[str, pa.BooleanArray], count: int) -> pa.ListArray:
    """Of each row the columns that it lacks; null: it lacks none. `hidden`: by column the rows that
    lack it."""
    if not hidden:
        return pa.nulls(count, pa.list_(pa.string()))
    texts = [pc.if_else(rows, f"{SEPARATOR}{name}", "") for name, rows in hidden.items()]
    joined = pc.binary_join_element_wise(*texts, "")
    lacking = pc.if_else(
        pc.equal(joined, ""), pa.scalar(None, pa.string()), pc.utf8_slice_codeunits(joined, 1)
    )
    return as_array(pc.split_pattern(lacking, SEPARATOR))


def _names(column: Column | None) -> set[str]:
    """The members of a struct column."""
    if column is None or not pa.types.is_struct(column.data.type):
        return set()
    return {field.name for field in column.data.type}


def _member(column: Column | None, name: str, type_: pa.DataType, count: int) -> pa.Array:
    """A member of a struct column as this type; nulls if there is none, or if it is of another
    kind."""
    if column is None or name not in _names(column) or (found := column.member(name)) is None:
        return pa.nulls(count, type_)
    try:
        return as_array(found.data.cast(type_))
    except pa.ArrowInvalid:
        return pa.nulls(count, type_)
