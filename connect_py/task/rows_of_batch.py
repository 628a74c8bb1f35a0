"""`RowsOfBatch`: rows of a batch, created on access, and their conversion back to columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import lt
from typing import Any, Final

import pyarrow as pa

from connect_py.api.batch import Batch, Column, Origin, origin_of
from connect_py.api.errors import NotColumnar
from connect_py.api.record import (
    MADE_LATER,
    NO_HEADERS,
    Headers,
    SinkRecord,
    make_whole,
    record_of_row,
)
from connect_py.api.schema import Schema, Type, Value
from connect_py.columns.struct_view import StructRows, emptied
from connect_py.task import exact_columns

MIN_ROWS: Final = 50  # converting a smaller batch to columns costs more than it saves
# If less than this fraction of a batch's records is retained after the last use, they are created
# one by one. This costs 20 to 50 times as much per record as creating all records at once.
FEW: Final = 0.02


class RowsOfBatch:
    """Presents a batch as records to transformations that work on rows.

    Used on one thread. Call `release` after the last use.

    A record's key, value, and origin are created only when a transformation reads them. The same
    applies to the fields of a struct. Unchanged parts remain in their columns. New parts are
    converted to columns if the columns represent them exactly.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._columns: dict[str, Sequence[Any]] = {}
        self._structs: dict[str, StructRows] = {}
        self._touched: set[str] = set()
        count = len(batch)
        self.derived: list[SinkRecord] = []
        self._schemas = {"key": batch.key.row_schemas(), "value": batch.value.row_schemas()}
        self._partitions: list[int] = batch.origin.partitions.to_pylist()
        self.records: list[SinkRecord] = list(
            map(
                record_of_row,
                repeat(batch.topic, count),
                self._partitions,
                self._schemas["key"],
                self._schemas["value"],
                batch.timestamp.to_pylist(),
                repeat(NO_HEADERS) if batch.headers is None else batch.headers,
                repeat(batch.origin.timestamp_type),
                repeat(self),
                range(count),
            )
        )

    def member(self, name: str, row: int) -> Any:
        """Return the key, value, or origin of a row."""
        column = self._columns.get(name)
        return (self._make(name) if column is None else column)[row]

    def _make(self, name: str) -> Sequence[Any]:
        rows: Sequence[Any]
        if name == "origin":
            rows = self._batch.origin.records()
        else:
            column: Column = getattr(self._batch, name)
            if column.schema is not None and column.schema.type is Type.STRUCT:
                structs = self._structs[name] = StructRows(column.schema, column)
                rows = structs.views
            else:
                rows = column.row_values()
                if isinstance(next((v for v in rows if v is not None), None), dict | list):
                    self._touched.add(name)  # the caller may modify the object
        self._columns[name] = rows
        return rows

    def _record(self, row: int) -> SinkRecord:
        """Return a copy of the record at `row` without reading the other rows."""
        return self._batch.slice(row, row + 1).records()[0]

    def _is_intact(self, name: str) -> bool:
        structs = self._structs.get(name)
        return name not in self._touched and (structs is None or structs.intact)

    def batches(self, results: Sequence[SinkRecord]) -> list[Batch] | None:
        """Return the results of transformations as columns, or None if they must remain rows.

        `results` must be in the order of the records. The records of each topic become one batch,
        in the same order. The order across topics is not preserved. Reading the batches as rows
        returns records identical to `results`, including the Python types.

        Raises:
            Exception: A plugin created a record with invalid values. The records must remain rows.
        """
        if not results:
            return []
        if any(type(r) is not SinkRecord or type(r.topic) is not str for r in results):
            return None
        rows = self._increasing_rows(results)
        if rows is not None and self._is_intact("key") and self._is_intact("value"):
            records = self.records
            if all(r is records[row] for r, row in zip(results, rows, strict=True)):
                return [self._selection(rows)(self._batch)]
        groups: dict[str, list[SinkRecord]] = {}
        for record in results:
            groups.setdefault(record.topic, []).append(record)
        if len(results) < MIN_ROWS * len(groups):
            return None
        try:
            return [self._one(group) for group in groups.values()]
        except NotColumnar:
            return None

    def _increasing_rows(self, records: Sequence[SinkRecord]) -> list[int] | None:
        """Return the row numbers that the records have in this batch.

        Return None if a record is not from this batch or the row numbers do not increase.
        """
        if any(r._rows is not self for r in records):
            return None
        rows = [r._row for r in records]
        return rows if all(map(lt, rows, rows[1:])) else None

    def _one(self, group: list[SinkRecord]) -> Batch:
        """Convert records from one topic to a batch.

        Raises:
            NotColumnar: A batch cannot represent the records exactly.
        """
        first = group[0]
        if any(r.timestamp_type is not first.timestamp_type for r in group):
            raise NotColumnar("different timestamp types")
        if any(type(r.headers) is not Headers for r in group):
            raise NotColumnar("headers of an unsupported class")
        rows = self._increasing_rows(group)
        select = self._selection(rows)
        timestamps = [r.timestamp for r in group]
        if not set(map(type, timestamps)) <= {int, type(None)}:
            raise NotColumnar("a timestamp is not an integer")
        return Batch(
            first.topic,
            self._side("key", group, rows, select),
            self._side("value", group, rows, select),
            pa.array(timestamps, pa.int64()),
            [r.headers for r in group] if any(r.headers for r in group) else None,
            self._origin(group, rows, select),
        )

    def _selection(self, rows: list[int] | None) -> Callable[[Any], Any]:
        """Return a function that selects these rows from a column, an origin, or the batch.

        The function selects all rows if `rows` is None.
        """
        if rows is None or len(rows) == len(self._batch):
            return lambda whole: whole
        mask = bytearray(len(self._batch))
        for row in rows:
            mask[row] = 1
        selected = pa.array(mask, pa.uint8()).cast(pa.bool_())
        return lambda whole: whole.where(selected)

    def _is_unchanged(self, name: str, group: Sequence[SinkRecord]) -> bool:
        """Return True if each record still has the original key, value, or origin of its row."""
        originals, getter = self._columns.get(name), MADE_LATER[name]
        for record in group:
            try:
                value = getter(record)
            except AttributeError:  # the object was never created
                continue
            if originals is None or value is not originals[record._row]:
                return False
        return True

    def _side(
        self,
        name: str,
        group: list[SinkRecord],
        rows: list[int] | None,
        select: Callable[[Any], Any],
    ) -> Column:
        column: Column = getattr(self._batch, name)
        schemas: list[Schema | None] = [getattr(r, f"{name}_schema") for r in group]
        if rows is not None and self._is_intact(name) and self._is_unchanged(name, group):
            before = self._schemas[name]
            if all(schema is before[row] for schema, row in zip(schemas, rows, strict=True)):
                unchanged: Column = select(column)
                return unchanged
        values: list[Value] = [getattr(r, name) for r in group]
        return exact_columns.column_of(schemas, values)

    def _origin(
        self, group: list[SinkRecord], rows: list[int] | None, select: Callable[[Any], Any]
    ) -> Origin:
        partitions = [r.partition for r in group]
        # an origin includes the timestamp type
        same_kind = group[0].timestamp_type is self._batch.origin.timestamp_type
        if rows is not None and same_kind and self._is_unchanged("origin", group):
            if partitions != [self._partitions[row] for row in rows]:
                raise NotColumnar("a record has a different partition")
            unchanged: Origin = select(self._batch.origin)
            return unchanged
        origins = [r.origin for r in group]
        if any(o.shown_offset is not None or o.topic != origins[0].topic for o in origins):
            raise NotColumnar("records from different topics, or retried records")
        if partitions != [o.partition for o in origins]:
            raise NotColumnar("a record has a different partition")
        last: dict[int, int] = {}
        for origin in origins:
            if origin.offset <= last.get(origin.partition, -1):
                raise NotColumnar("a record occurs twice or out of order")
            last[origin.partition] = origin.offset
        return origin_of(group)

    def release(self) -> None:
        """Release the batch. Call this once, after the last use.

        Records that plugins still reference first receive copies of their members that have not
        been read yet.
        """
        retained = [
            r
            for records in (self.records, self.derived)
            for r in emptied(records)
            if r._rows is not None
        ]
        is_small = len(retained) < FEW * len(self._batch)
        for record in retained:
            make_whole(record, self._record(record._row) if is_small else None)
        self._columns.clear()
        for structs in self._structs.values():
            structs.release()
        self._structs.clear()
