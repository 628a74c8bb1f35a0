"""`RowsOfBatch`: the rows of a batch, made as far as they are read, and the way back to columns."""

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

MIN_ROWS: Final = 50  # a batch of fewer costs more in columns than it saves
# of the records: so few are made one by one, which costs 20 to 50 times as much for each
FEW: Final = 0.02


class RowsOfBatch:
    """The records of a batch for transformations that take rows. Used on one thread, and released
    when they are done.

    A record's key, value and origin are made when a transformation reads them, and of a struct the
    members that it reads. What came through unchanged goes on in the columns where it is; what is
    new is made a column, if that is exact.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._made: dict[str, Sequence[Any]] = {}
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
        """The key, value or origin of a row."""
        made = self._made.get(name)
        return (self._make(name) if made is None else made)[row]

    def _make(self, name: str) -> Sequence[Any]:
        made: Sequence[Any]
        if name == "origin":
            made = self._batch.origin.records()
        else:
            column: Column = getattr(self._batch, name)
            if column.schema is not None and column.schema.type is Type.STRUCT:
                structs = self._structs[name] = StructRows(column.schema, column)
                made = structs.views
            else:
                made = column.row_values()
                if isinstance(next((v for v in made if v is not None), None), dict | list):
                    self._touched.add(name)  # code that has it may write into it
        self._made[name] = made
        return made

    def _record(self, row: int) -> SinkRecord:
        """A record of the same row; what was not read of the other rows is left alone."""
        return self._batch.slice(row, row + 1).records()[0]

    def _intact(self, name: str) -> bool:
        structs = self._structs.get(name)
        return name not in self._touched and (structs is None or structs.intact)

    def batches(self, results: Sequence[SinkRecord]) -> list[Batch] | None:
        """What transformations made of the records, as columns; None: it has to stay rows.

        `results` are in the order of the records. Those of one topic become one batch in their
        order; rows have no order across topics. Seen as rows the batches are the same as `results`,
        type by type.

        Raises: Exception: Of any kind, for unchecked values in a record that a plugin made: it has
            to stay rows too.
        """
        if not results:
            return []
        if any(type(r) is not SinkRecord or type(r.topic) is not str for r in results):
            return None
        rows = self._rising_rows(results)
        if rows is not None and self._intact("key") and self._intact("value"):
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

    def _rising_rows(self, records: Sequence[SinkRecord]) -> list[int] | None:
        """The rows of records, each behind the one before; None: it is not so, or they are not all
        of this batch."""
        if any(r._rows is not self for r in records):
            return None
        rows = [r._row for r in records]
        return rows if all(map(lt, rows, rows[1:])) else None

    def _one(self, group: list[SinkRecord]) -> Batch:
        """Make one batch.

        Raises:
            NotColumnar: It would not be exact.
        """
        first = group[0]
        if any(r.timestamp_type is not first.timestamp_type for r in group):
            raise NotColumnar("two kinds of timestamps")
        if any(type(r.headers) is not Headers for r in group):
            raise NotColumnar("headers of another kind")
        rows = self._rising_rows(group)
        select = self._selection(rows)
        timestamps = [r.timestamp for r in group]
        if not set(map(type, timestamps)) <= {int, type(None)}:
            raise NotColumnar("a timestamp is no integer")
        return Batch(
            first.topic,
            self._side("key", group, rows, select),
            self._side("value", group, rows, select),
            pa.array(timestamps, pa.int64()),
            [r.headers for r in group] if any(r.headers for r in group) else None,
            self._origin(group, rows, select),
        )

    def _selection(self, rows: list[int] | None) -> Callable[[Any], Any]:
        """What takes these rows of a column, an origin or the batch; all, if None."""
        if rows is None or len(rows) == len(self._batch):
            return lambda whole: whole
        mask = bytearray(len(self._batch))
        for row in rows:
            mask[row] = 1
        kept = pa.array(mask, pa.uint8()).cast(pa.bool_())
        return lambda whole: whole.where(kept)

    def _unchanged(self, name: str, group: Sequence[SinkRecord]) -> bool:
        """Whether each record has what its row had."""
        made, look = self._made.get(name), MADE_LATER[name]
        for record in group:
            try:
                value = look(record)
            except AttributeError:  # it was not read
                continue
            if made is None or value is not made[record._row]:
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
        if rows is not None and self._intact(name) and self._unchanged(name, group):
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
        # the origin of a batch holds it
        same_kind = group[0].timestamp_type is self._batch.origin.timestamp_type
        if rows is not None and same_kind and self._unchanged("origin", group):
            if partitions != [self._partitions[row] for row in rows]:
                raise NotColumnar("a record has another partition")
            unchanged: Origin = select(self._batch.origin)
            return unchanged
        origins = [r.origin for r in group]
        if any(o.shown_offset is not None or o.topic != origins[0].topic for o in origins):
            raise NotColumnar("records of two topics, or that are tried again")
        if partitions != [o.partition for o in origins]:
            raise NotColumnar("a record has another partition")
        last: dict[int, int] = {}
        for origin in origins:
            if origin.offset <= last.get(origin.partition, -1):
                raise NotColumnar("a record comes twice, or behind one that was consumed later")
            last[origin.partition] = origin.offset
        return origin_of(group)

    def release(self) -> None:
        """Let go of the batch; rows that a plugin keeps are made whole. To be called once, last."""
        kept = [
            r
            for records in (self.records, self.derived)
            for r in emptied(records)
            if r._rows is not None
        ]
        few = len(kept) < FEW * len(self._batch)
        for record in kept:
            make_whole(record, self._record(record._row) if few else None)
        self._made.clear()
        for structs in self._structs.values():
            structs.release()
        self._structs.clear()
