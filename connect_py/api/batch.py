"""Columnar batches of records that share a topic, a key schema, and a value schema.

The *row form* of a batch is a list of `SinkRecord` objects. Importing this module does not import
pyarrow.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, repeat, starmap
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from connect_py.api.errors import NotColumnar
from connect_py.api.record import (
    NO_HEADERS,
    Headers,
    RawHeaders,
    RecordOrigin,
    SinkRecord,
    TimestampType,
    TopicPartition,
    sink_record,
)
from connect_py.api.schema import Schema, SchemaAndValue, Value
from connect_py.columns.record_runs import runs

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
# member names on the path from the root value to a member; a list item is named "element"
Path: TypeAlias = tuple[str, ...]


class LazyColumn(ABC):
    """A struct column that has not been converted to Arrow yet.

    A converter passes a lazy column to `Column` if the conversion is expensive and many values,
    such as the row before an update, may never be read. The converter has already performed all
    checks, so no method raises an error. All methods are called on the same thread.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def build(self) -> tuple[pa.Array, Mapping[Path, pa.BooleanArray]]:
        """Return `Column.data` and `Column.absent`. Called at most once."""

    @abstractmethod
    def is_null(self) -> pa.BooleanArray | None:
        """Return a mask of the rows that are null, or None if no row is null."""

    @abstractmethod
    def member(self, name: str) -> Column | None:
        """See `Column.member`."""

    @abstractmethod
    def where(self, mask: pa.BooleanArray) -> LazyColumn:
        """Return the rows where `mask` is true."""

    @abstractmethod
    def slice(self, start: int, stop: int) -> LazyColumn:
        """Return rows [start, stop)."""

    def mixed(self, other: LazyColumn, is_other: pa.BooleanArray) -> LazyColumn | None:
        """Return the result of `Column.mixed`, or None if both columns must be built first."""
        return None

    def row_values(self) -> list[Value] | None:
        """Return the value of each row, or None if the column must be built first.

        The values are the same as in the row form.
        """
        return None


class Column:
    """The keys or the values of a batch, with one schema for all rows. Immutable.

    `data` has the Arrow type `connect_py.columns.arrow.arrow_type(schema)`, or an inferred type if
    the column is schemaless. A null in `data` is a null value with the column's schema unless the
    row is marked in `tombstone`. The mark means that the message's key or value itself was null. In
    the row form, a tombstone has neither a value nor a schema (but see `tombstone_schema`).
    Tombstones therefore do not split a batch.

    A converter may defer building a column until `data` or `absent` is read. To read only a few
    members of a large struct, use `member`, `null_count`, and `is_null`, which do not build the
    other members.
    """

    __slots__ = (
        "_absent",
        "_data",
        "_members",
        "_unbuilt",
        "missing",
        "schema",
        "tombstone",
        "tombstone_schema",
    )

    schema: Schema | None  # None if schemaless, or if all rows are tombstones
    tombstone: pa.BooleanArray | None  # None if there are no tombstones
    tombstone_schema: Schema | None
    """Schema of the rows that are marked in `tombstone`. Consumed tombstones have no schema, but a
    tombstone that a transformation created may have one. This schema is separate from `schema`
    because tombstones do not split a batch."""
    missing: pa.BooleanArray | None
    """Mask of the rows in which this schemaless member does not exist. `data` is null in these
    rows. None if every row has the member."""

    def __init__(
        self,
        schema: Schema | None,
        data: pa.Array | LazyColumn,
        tombstone: pa.BooleanArray | None = None,
        absent: Mapping[Path, pa.BooleanArray] | None = None,
        tombstone_schema: Schema | None = None,
        *,
        missing: pa.BooleanArray | None = None,
    ) -> None:
        """Create a column. `absent` is ignored if `data` is a `LazyColumn`."""
        self.missing = missing
        self.schema = schema
        self.tombstone = tombstone
        self.tombstone_schema = tombstone_schema
        self._absent = absent or {}
        self._unbuilt = data if isinstance(data, LazyColumn) else None
        self._data: pa.Array = None if isinstance(data, LazyColumn) else data
        self._members: dict[str, Column | None] = {}

    @property
    def data(self) -> pa.Array:
        """All values: a StructArray, a primitive array, or a NullArray."""
        if self._unbuilt is not None:
            self._data, self._absent = self._unbuilt.build()
            self._unbuilt = None
        return self._data

    @property
    def absent(self) -> Mapping[Path, pa.BooleanArray]:
        """Masks of the rows in which a schemaless member does not exist, keyed by the member path.

        In all other rows, a null means that the member exists and its value is null. Members inside
        lists are not tracked. If list items lack members, the batch has no columnar form.
        """
        _ = self.data  # builds the column
        return self._absent

    @property
    def null_count(self) -> int:
        """Number of rows whose value is null."""
        if self._unbuilt is None:
            return int(self._data.null_count)
        null = self._unbuilt.is_null()
        return 0 if null is None else int(null.true_count)

    def is_null(self) -> pa.BooleanArray | None:
        """Return a mask of the rows whose value is null, or None if no value is null."""
        if self._unbuilt is None:
            return self._data.is_null() if self._data.null_count else None
        return self._unbuilt.is_null()

    def is_struct(self) -> bool:
        """Return True if this is a struct column. The result is arbitrary if all rows are null."""
        from connect_py.columns import arrow

        return self._unbuilt is not None or arrow.is_struct(self._data)

    def member(self, name: str) -> Column | None:
        """Return a member of a struct column, or None if the structs have no such member.

        The member is null where the struct is null.
        """
        if name not in self._members:
            self._members[name] = (
                self._member(name) if self._unbuilt is None else self._unbuilt.member(name)
            )
        return self._members[name]

    def _member(self, name: str) -> Column | None:
        from connect_py.columns import arrow

        data = arrow.struct_member(self._data, name)
        if data is None:
            return None
        field = None if self.schema is None else self.schema.field(name)
        absent = {
            path[1:]: rows
            for path, rows in self._absent.items()
            if path[0] == name and len(path) > 1
        }
        schema = None if field is None else field.schema
        return Column(schema, data, None, absent, missing=self._absent.get((name,)))

    def __len__(self) -> int:
        return len(self._data if self._unbuilt is None else self._unbuilt)

    def where(self, mask: pa.BooleanArray) -> Column:
        """Return the rows where `mask` is true."""
        data = self._data.filter(mask) if self._unbuilt is None else self._unbuilt.where(mask)
        return self._selected(data, lambda rows: rows.filter(mask))

    def slice(self, start: int, stop: int) -> Column:
        """Return rows [start, stop) without copying."""
        length = stop - start
        data = (
            self._data.slice(start, length)
            if self._unbuilt is None
            else self._unbuilt.slice(start, stop)
        )
        return self._selected(data, lambda rows: rows.slice(start, length))

    def _selected(
        self, data: pa.Array | LazyColumn, select: Callable[[pa.Array], pa.Array]
    ) -> Column:
        return Column(
            self.schema,
            data,
            None if self.tombstone is None else select(self.tombstone),
            {path: select(rows) for path, rows in self._absent.items()},
            self.tombstone_schema,
            missing=None if self.missing is None else select(self.missing),
        )

    def mixed(
        self, other: Column, is_other: pa.BooleanArray, selected: pa.BooleanArray | None = None
    ) -> Column:
        """Return rows from `other` where `is_other` is true, and rows from this column elsewhere.

        Both are struct columns that have the same schema or are schemaless. The masks contain no
        nulls. If `selected` is set, the result contains only the rows where it is true. The result
        has no tombstones; the caller must mark them.

        Raises:
            NotColumnar: A schemaless member has different types in the two columns.
        """
        from connect_py.columns import arrow

        if self._unbuilt is not None and other._unbuilt is not None:
            mixed = self._unbuilt.mixed(other._unbuilt, is_other)
            if mixed is not None:
                return Column(self.schema, mixed if selected is None else mixed.where(selected))
        rows = other.where(is_other)
        data, absent = arrow.mixed(
            (self.data, self.absent), (rows.data, rows.absent), is_other, selected
        )
        return Column(self.schema, data, None, absent)

    def rows(self) -> list[SchemaAndValue]:
        """Return the schema and the value of each row, as in the row form."""
        return list(map(SchemaAndValue, self.row_schemas(), self.row_values()))

    def row_schemas(self) -> list[Schema | None]:
        """Return the schema of each row."""
        schemas: list[Schema | None] = [self.schema] * len(self)
        for index in self._tombstones():
            schemas[index] = self.tombstone_schema
        return schemas

    def row_values(self) -> list[Value]:
        """Return the value of each row."""
        from connect_py.columns import arrow

        values = None if self._unbuilt is None else self._unbuilt.row_values()
        if values is None:
            if self.schema is None:
                values = arrow.schemaless_values(self.data, self.absent)
            else:
                values = arrow.to_values(self.schema, self.data)
        for index in self._tombstones():
            values[index] = None
        return values

    def _tombstones(self) -> list[int]:
        """Return the indexes of the rows that are marked in `tombstone`."""
        return (
            []
            if self.tombstone is None
            else [i for i, is_tombstone in enumerate(self.tombstone.to_pylist()) if is_tombstone]
        )


class Origin:
    """Kafka origin of the rows in a batch. Transformations never change it.

    All columns have the same length as the batch. Offsets increase within each partition;
    partitions may interleave. The raw bytes, which the dead-letter queue needs, are selected only
    when they are read, so `where` does not iterate over Python lists.
    """

    __slots__ = (
        "_headers",
        "_keys",
        "_rows",
        "_values",
        "offsets",
        "partitions",
        "timestamp_type",
        "topic",
    )

    topic: str  # consumed topic; `Batch.topic` differs if a transformation changed it
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
        """Create an origin.

        `rows` contains the index of each row in `keys`, `values`, and `headers`. It is None if the
        rows are in the same order as these sequences.
        """
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

    @property
    def keys(self) -> list[bytes | None]:
        """The raw key of each row."""
        return self._of_rows(self._keys)

    @property
    def values(self) -> list[bytes | None]:
        """The raw value of each row."""
        return self._of_rows(self._values)

    @property
    def headers(self) -> list[RawHeaders]:
        """The raw headers of each row."""
        if self._headers is None:
            return [()] * len(self)
        return [headers or () for headers in self._of_rows(self._headers)]

    def _of_rows(self, items: Sequence[_T]) -> list[_T]:
        return list(items) if self._rows is None else [items[row] for row in self._rows.to_pylist()]

    def _all_rows(self) -> pa.Int64Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._rows is not None:
            return self._rows
        # 20 times as fast as converting a range
        return pc.indices_nonzero(pa.repeat(True, len(self.offsets))).cast(pa.int64())

    def where(self, mask: pa.BooleanArray) -> Origin:
        """Return the rows where `mask` is true."""
        return self._selected(lambda rows: rows.filter(mask))

    def slice(self, start: int, stop: int) -> Origin:
        """Return rows [start, stop)."""
        return self._selected(lambda rows: rows.slice(start, stop - start))

    def _selected(self, select: Callable[[pa.Array], pa.Array]) -> Origin:
        return Origin(
            self.topic,
            select(self.partitions),
            select(self.offsets),
            self.timestamp_type,
            self._keys,
            self._values,
            self._headers,
            select(self._all_rows()),
        )

    def records(self) -> list[RecordOrigin]:
        """Return the origin of each row."""
        columns = zip(
            repeat(self.topic, len(self)),
            self.partitions.to_pylist(),
            self.offsets.to_pylist(),
            self.keys,
            self.values,
            self.headers,
            strict=True,
        )
        return list(starmap(RecordOrigin, columns))

    def next_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offset to commit for each partition after these rows have been processed."""
        import pyarrow.compute as pc

        distinct = pc.unique(self.partitions).to_pylist()
        if len(distinct) == 1:
            last = {distinct[0]: self.offsets[-1].as_py()}
        else:  # the last row of each partition wins; Arrow's aggregation is not faster
            last = dict(zip(self.partitions.to_pylist(), self.offsets.to_pylist(), strict=True))
        # the offset after the last row is the next offset to read
        return {TopicPartition(self.topic, p): o + 1 for p, o in last.items()}


@dataclass(frozen=True)
class Batch:
    """Rows from one topic with one key schema and one value schema, in offset order per partition.

    All columns have the same length, which is at least one row. A stage never modifies a batch. It
    returns new batches, which share the unchanged columns. Only `origin` determines committed
    offsets and dead-letter records.
    """

    topic: str  # differs from `origin.topic` if a transformation changed it
    key: Column
    value: Column
    timestamp: pa.Int64Array  # ms since the epoch, nullable
    headers: Sequence[Headers] | None  # None if no row has headers
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
        """Return a copy of this batch with some fields replaced. None leaves a field unchanged."""
        changes = {"topic": topic, "key": key, "value": value, "headers": headers}
        return dataclasses.replace(self, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type] # the signature checks the types

    def where(self, mask: pa.BooleanArray) -> Batch:
        """Return the rows where `mask` is true.

        The mask contains no nulls. The caller must discard the result if it has no rows.
        """
        headers = None if self.headers is None else list(compress(self.headers, mask.to_pylist()))
        return Batch(
            self.topic,
            self.key.where(mask),
            self.value.where(mask),
            self.timestamp.filter(mask),
            headers,
            self.origin.where(mask),
        )

    def slice(self, start: int, stop: int) -> Batch:
        """Return rows [start, stop)."""
        return Batch(
            self.topic,
            self.key.slice(start, stop),
            self.value.slice(start, stop),
            self.timestamp.slice(start, stop - start),
            None if self.headers is None else self.headers[start:stop],
            self.origin.slice(start, stop),
        )

    @cached_property
    def _records(self) -> list[SinkRecord]:
        rows = len(self)
        columns = zip(
            repeat(self.topic, rows),
            self.origin.partitions.to_pylist(),
            self.key.row_schemas(),
            self.key.row_values(),
            self.value.row_schemas(),
            self.value.row_values(),
            self.timestamp.to_pylist(),
            repeat(NO_HEADERS, rows) if self.headers is None else self.headers,
            repeat(self.origin.timestamp_type, rows),
            self.origin.records(),
            strict=True,
        )
        return list(starmap(sink_record, columns))

    def records(self) -> list[SinkRecord]:
        """Return the records of this batch. They are created by the first call."""
        return self._records

    @staticmethod
    def of(records: Iterable[SinkRecord]) -> list[Batch]:
        """Convert records to batches.

        A new batch starts where the topic, the timestamp type, or a schema changes. In schemaless
        rows, a new batch also starts where the type of a member changes.

        Raises:
            NotColumnar: A row has no columnar form, for example because it contains a schemaless
                list of mixed types.
        """
        return [batch for run in runs(list(records)) for batch in _batches_of_run(run)]


def schemaless_column(values: Sequence[Value], tombstone: pa.BooleanArray | None = None) -> Column:
    """Infer a column from schemaless values.

    Raises:
        NotColumnar: See `connect_py.columns.arrow.schemaless_array`.
    """
    from connect_py.columns import arrow

    data, absent = arrow.schemaless_array(values)
    return Column(None, data, tombstone, absent)


def column_of(schema: Schema | None, values: Sequence[Value]) -> Column:
    """Create a column without tombstones.

    Raises:
        NotColumnar: See `connect_py.columns.arrow.to_array` and `schemaless_array`.
    """
    from connect_py.columns import arrow

    return (
        schemaless_column(values)
        if schema is None
        else Column(schema, arrow.to_array(schema, values))
    )


def _batches_of_run(run: list[SinkRecord]) -> list[Batch]:
    try:
        return [_batch_of_run(run)]
    except NotColumnar:
        if len(run) == 1:
            raise
        # bisect to find the row where the type of a member changes
        middle = len(run) // 2
        return _batches_of_run(run[:middle]) + _batches_of_run(run[middle:])


def _batch_of_run(run: list[SinkRecord]) -> Batch:
    import pyarrow as pa

    return Batch(
        topic=run[0].topic,
        key=side_of([r.key_schema for r in run], [r.key for r in run]),
        value=side_of([r.value_schema for r in run], [r.value for r in run]),
        timestamp=pa.array([r.timestamp for r in run], pa.int64()),
        headers=[r.headers or NO_HEADERS for r in run] if any(r.headers for r in run) else None,
        origin=origin_of(run),
    )


def origin_of(run: Sequence[SinkRecord]) -> Origin:
    """Return the origin of records that share a topic and a timestamp type."""
    import pyarrow as pa

    _, partitions, offsets, keys, values, raw_headers, *_ = zip(
        *[r.origin for r in run], strict=True
    )
    return Origin(
        run[0].origin.topic,
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        run[0].timestamp_type,
        keys,
        values,
        raw_headers if any(raw_headers) else None,
    )


def side_of(schemas: Sequence[Schema | None], values: Sequence[Value]) -> Column:
    """Create the key or value column for records that share one schema, and mark tombstones.

    Raises:
        NotColumnar: See `column_of`.
    """
    import pyarrow as pa

    from connect_py.columns import arrow

    tombstones = [
        schema is None and value is None for schema, value in zip(schemas, values, strict=True)
    ]
    tombstone = pa.array(tombstones, pa.bool_()) if any(tombstones) else None
    schema = next((schema for schema in schemas if schema is not None), None)
    if schema is None:
        return schemaless_column(values, tombstone)
    return Column(schema, arrow.to_array(schema, values), tombstone)
