"""Batches: rows of one topic with one schema on each side, held as Arrow columns.

This module imports the standard library only; pyarrow comes in with the first batch that is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from connect_py.api.record import (
    NO_HEADERS,
    Headers,
    RawHeaders,
    RecordOrigin,
    SinkRecord,
    TimestampType,
    TopicPartition,
)
from connect_py.api.schema import NULL, Schema, SchemaAndValue

if TYPE_CHECKING:
    import pyarrow as pa

Path: TypeAlias = tuple[str, ...]  # names from the top of the value down to a member; list items are "element"


@dataclass(frozen=True, slots=True)
class Column:
    """The key side or the value side of a batch: one schema for all rows.

    `data` has the Arrow type that `connect_py.api.arrow.arrow_type(schema)` gives, or an inferred one when
    schemaless. Nulls in `data` are nulls *inside* the schema; rows whose message was null are marked in `tombstone`
    (and null in `data`): seen as rows they have no value and (see `tombstone_schema`) no schema, so they never cut a
    batch in two.
    """

    schema: Schema | None  # None: schemaless, or nothing but tombstones
    data: pa.Array  # StructArray, primitive array or NullArray
    tombstone: pa.BooleanArray | None = None  # None: no row is one
    absent: Mapping[Path, pa.BooleanArray] = field(default_factory=dict)
    """Schemaless only: for each member that some row lacks, the rows that lack it. In the null of any other row the
    member is there and null. Members inside lists are not tracked: a batch that needs it is not columnar."""
    tombstone_schema: Schema | None = None
    """What the rows marked in `tombstone` show as their schema: none, as consumed, unless a transformation made nulls
    of rows and left them one. It is beside `schema`, so such rows do not cut a batch either."""

    def __len__(self) -> int:
        return len(self.data)

    def where(self, mask: pa.BooleanArray) -> Column:
        """Keep the rows where `mask` is true."""
        return Column(
            self.schema,
            self.data.filter(mask),
            None if self.tombstone is None else self.tombstone.filter(mask),
            {path: rows.filter(mask) for path, rows in self.absent.items()},
            self.tombstone_schema,
        )

    def slice(self, start: int, stop: int) -> Column:
        """Keep rows [start, stop), without copying."""
        length = stop - start
        return Column(
            self.schema,
            self.data.slice(start, length),
            None if self.tombstone is None else self.tombstone.slice(start, length),
            {path: rows.slice(start, length) for path, rows in self.absent.items()},
            self.tombstone_schema,
        )

    def rows(self) -> list[SchemaAndValue]:
        """Return each row's schema and value, as the reference form would have made them."""
        from connect_py.api import arrow

        if self.schema is None:
            values = arrow.schemaless_values(self.data, self.absent)
        else:
            values = arrow.to_values(self.schema, self.data)
        rows = [SchemaAndValue(self.schema, value) for value in values]
        if self.tombstone is not None:
            null = NULL if self.tombstone_schema is None else SchemaAndValue(self.tombstone_schema, None)
            for index, tombstone in enumerate(self.tombstone.to_pylist()):
                if tombstone:
                    rows[index] = null
        return rows


class Origin:
    """Where Kafka holds the rows of a batch, row by row. No transformation changes this.

    All columns have the batch's length. Offsets rise within each partition; partitions may interleave. The raw
    bytes, kept for the dead-letter queue, are selected only when somebody asks for them: `where` costs no walk over
    Python lists.
    """

    __slots__ = ("_headers", "_keys", "_rows", "_values", "offsets", "partitions", "timestamp_type", "topic")

    topic: str  # as consumed; `Batch.topic` may have been rerouted
    partitions: pa.Int32Array
    offsets: pa.Int64Array
    timestamp_type: TimestampType

    def __init__(
        self,
        topic: str,
        partitions: pa.Int32Array,
        offsets: pa.Int64Array,
        timestamp_type: TimestampType,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[RawHeaders | None] | None = None,
        rows: pa.Int64Array | None = None,
    ) -> None:
        """`rows`, if given, says which item of keys, values and headers belongs to each row."""
        self.topic = topic
        self.partitions = partitions
        self.offsets = offsets
        self.timestamp_type = timestamp_type
        self._keys = keys
        self._values = values
        self._headers = headers
        self._rows = rows

    def __len__(self) -> int:
        return len(self.offsets)

    def _index(self) -> Sequence[int]:
        rows: Sequence[int] = range(len(self.offsets)) if self._rows is None else self._rows.to_pylist()
        return rows

    @property
    def keys(self) -> list[bytes | None]:
        """The raw key of each row."""
        return [self._keys[i] for i in self._index()]

    @property
    def values(self) -> list[bytes | None]:
        """The raw value of each row."""
        return [self._values[i] for i in self._index()]

    @property
    def headers(self) -> list[RawHeaders]:
        """The raw headers of each row."""
        if self._headers is None:
            return [()] * len(self)
        return [self._headers[i] or () for i in self._index()]

    def _all_rows(self) -> pa.Int64Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._rows is not None:
            return self._rows
        return pc.indices_nonzero(pa.repeat(True, len(self.offsets))).cast(pa.int64())  # 20 times as fast as a range

    def where(self, mask: pa.BooleanArray) -> Origin:
        """Keep the rows where `mask` is true."""
        return Origin(
            self.topic, self.partitions.filter(mask), self.offsets.filter(mask), self.timestamp_type,
            self._keys, self._values, self._headers, self._all_rows().filter(mask),
        )  # fmt: skip

    def slice(self, start: int, stop: int) -> Origin:
        """Keep rows [start, stop)."""
        length = stop - start
        return Origin(
            self.topic, self.partitions.slice(start, length), self.offsets.slice(start, length),
            self.timestamp_type, self._keys, self._values, self._headers, self._all_rows().slice(start, length),
        )  # fmt: skip

    def records(self) -> list[RecordOrigin]:
        """Return the origin of each row."""
        columns = zip(
            self.partitions.to_pylist(), self.offsets.to_pylist(), self.keys, self.values, self.headers, strict=True
        )
        return [RecordOrigin(self.topic, *row) for row in columns]

    def next_offsets(self) -> Mapping[TopicPartition, int]:
        """What to commit once these rows are safe: per partition, the next offset to read."""
        import pyarrow.compute as pc

        distinct = pc.unique(self.partitions).to_pylist()
        if len(distinct) == 1:
            last = {distinct[0]: self.offsets[-1].as_py()}
        else:  # the last row of a partition wins; Arrow's aggregation costs as much, and a thread
            last = dict(zip(self.partitions.to_pylist(), self.offsets.to_pylist(), strict=True))
        return {TopicPartition(self.topic, p): o + 1 for p, o in last.items()}  # last read -> next to read


@dataclass(frozen=True)
class Batch:
    """Rows of one topic with one key schema and one value schema, in offset order per partition.

    All columns have the same length, at least one row. A stage returns new batches that share unchanged columns; it
    never writes into one. Only `origin` decides what is committed or dead-lettered.
    """

    topic: str  # a router may change it
    key: Column
    value: Column
    timestamp: pa.Int64Array  # ms since the epoch, nullable
    headers: Sequence[Headers] | None  # None: no row has any
    origin: Origin

    def __len__(self) -> int:
        return len(self.origin)

    def replace(
        self,
        *,
        topic: str | None = None,
        key: Column | None = None,
        value: Column | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> Batch:
        """Return this batch with some members changed; None leaves a member as it is."""
        changes = {"topic": topic, "key": key, "value": value, "headers": headers}
        return dataclasses.replace(self, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type] # one type per member, checked by the signature

    def where(self, mask: pa.BooleanArray) -> Batch:
        """Keep the rows where `mask` (no nulls) is true; a batch without rows is the caller's to drop."""
        headers = self.headers
        if headers is not None:
            headers = [h for h, keep in zip(headers, mask.to_pylist(), strict=True) if keep]
        return Batch(
            self.topic, self.key.where(mask), self.value.where(mask), self.timestamp.filter(mask), headers,
            self.origin.where(mask),
        )  # fmt: skip

    def slice(self, start: int, stop: int) -> Batch:
        """Keep rows [start, stop)."""
        return Batch(
            self.topic, self.key.slice(start, stop), self.value.slice(start, stop),
            self.timestamp.slice(start, stop - start),
            None if self.headers is None else self.headers[start:stop], self.origin.slice(start, stop),
        )  # fmt: skip

    @cached_property
    def _records(self) -> list[SinkRecord]:
        headers = self.headers if self.headers is not None else [NO_HEADERS] * len(self)
        rows = zip(
            self.key.rows(), self.value.rows(), self.timestamp.to_pylist(), headers, self.origin.records(), strict=True
        )
        kind = self.origin.timestamp_type
        return [
            SinkRecord(
                self.topic, origin.partition, key.schema, key.value, value.schema, value.value, timestamp, header,
                kind, origin,
            )
            for key, value, timestamp, header, origin in rows
        ]  # fmt: skip

    def records(self) -> list[SinkRecord]:
        """Return the row view; it is made once."""
        return self._records

    @staticmethod
    def of(records: Iterable[SinkRecord]) -> list[Batch]:
        """Return the same rows as batches: the way back, cut where topic, origin or a schema changes.

        Schemaless rows are also cut where a member changes its type.

        Raises:
            NotColumnar: A row cannot be a column by itself, for example a schemaless list of mixed types.
        """
        from connect_py.api import arrow

        return arrow.batches_of(records)
