"""Every change as rows of its own: the row before, the row after, and what happened. For tables beside the mirror."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.columns import as_array
from connectors.iceberg.staging.envelope import AFTER, BEFORE, Envelope

# Columns beside the row's own: name and Iceberg type.
CHANGE_COLUMNS: Mapping[str, str] = {
    "__op": "string",  # Debezium's letter: c, r, u, d, t
    "__image": "string",  # `before` or `after`; null: a truncate, or a delete of a row that is not known
    "__topic": "string",
    "__partition": "int",  # Kafka's
    "__offset": "long",
    "__time": "timestamptz",  # of the record
}
_DELETED_ID = 1_000_000  # ids of these columns until the catalog assigns them


def changelog_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The Iceberg schema of a changelog of rows of this schema: nothing is required, and the key identifies no row."""
    fields = [{**field, "required": False} for field in schema["fields"] if field["name"] not in CHANGE_COLUMNS]
    for number, (name, type_) in enumerate(CHANGE_COLUMNS.items(), _DELETED_ID):
        fields.append({"id": number, "name": name, "required": False, "type": type_})
    return {"type": "struct", "schema-id": 0, "fields": fields}


class Changes:
    """The changes of one batch of events, image by image."""

    def __init__(self, batch: Batch, read: Change = Change.UPSERT) -> None:
        """`read` is what events of a snapshot mean. Raises BadRows: These rows are no change events."""
        self._batch = batch
        self._envelope = Envelope.of(batch.value, read)
        self._images: list[pa.StringArray] = []
        self._rows: list[pa.Int64Array] = []

    def images(self) -> Iterator[tuple[Column, pa.Int64Array]]:
        """The rows before and those after, each with the places in the batch that they are of; the others come last.

        A truncate has no row, and of a delete whose row before is not known the record's key is shown.
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
                yield from self._image(image, column, of_row if null is None else pc.and_not(of_row, null))
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

    def described(self, schema: pa.Schema) -> dict[str, pa.Array]:
        """The columns that tell of the changes, as far as the table has them, for all images in their order."""
        places, origin = self.places(), self._batch.origin
        known = {
            "__op": self._envelope.operation.take(places),
            "__image": pa.concat_arrays(self._images) if self._images else pa.array([], pa.string()),
            "__topic": pa.repeat(pa.scalar(origin.topic), len(places)),
            "__partition": origin.partitions.take(places),
            "__offset": origin.offsets.take(places),
            "__time": pc.multiply(self._batch.timestamp.take(places), 1000).cast(pa.timestamp("us", "UTC")),
        }
        return {
            name: as_array(data.cast(schema.field(name).type)) for name, data in known.items() if name in schema.names
        }
