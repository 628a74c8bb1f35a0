"""Columnar form (`apply_batch`) of Iceberg's `DebeziumTransform`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product, starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column, Path
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import INT64, STRING, Schema, Type
from connect_py.columns.arrow import as_logical
from transforms.columns import (
    blamed,
    children,
    defaults,
    kept_nulls,
    map_members,
    member_of,
    mixed,
    null_rows,
    struct_column,
    taken,
    with_default,
    with_value,
    without,
)
from transforms.iceberg.cdc import CDC_OPERATIONS, INSERT, NO_ROW

MAX_NAMES = 1024  # maximum number of distinct (database, table) pairs in a batch


@dataclass(frozen=True, slots=True)
class _Plan:
    """Precomputed steps for one envelope schema."""

    db: str  # field of `source` that contains the schema or database name
    table: str  # field of `source` that contains the table or collection name
    same_before: bool  # True if `before` has the same schema as `after`
    row: Schema  # schema of `after`
    defaults: Sequence[pa.Scalar | None]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a batch that are retained: all null values, and the events that contain a row."""

    mask: pa.BooleanArray  # True for each row of the batch that is retained
    index: pa.Array | None  # uint64 indices of the retained rows, or None for all rows
    op: pa.StringArray  # `_cdc.op` of each retained row
    # True for each row of the batch that is a retained delete, or None if there are no deletes
    deleted: pa.BooleanArray | None
    null: pa.BooleanArray | None  # True for each retained row with a null value

    @property
    def selected(self) -> pa.BooleanArray | None:
        """Return `mask`, or None if all rows are retained."""
        return None if self.index is None else self.mask


class _Codes:
    """Evaluates the Debezium operations in a batch, once per distinct operation."""

    def __init__(self, op: pa.StringArray) -> None:
        encoded = op.dictionary_encode(null_encoding="encode")
        self._indices = encoded.indices
        self._names: list[str | None] = encoded.dictionary.to_pylist()
        self.delete = self._mask(lambda name: name == "d")
        self.rowless = self._mask(lambda name: name in NO_ROW)
        self.is_valid = self._mask(lambda name: name is not None)

    def _mask(self, condition: Callable[[str | None], bool]) -> pa.BooleanArray:
        flags = [condition(name) for name in self._names]
        if all(flags) or not any(flags):
            return pa.repeat(flags[0], len(self._indices))
        return pa.array(flags, pa.bool_()).take(self._indices)

    def has_row(self, after: pa.BooleanArray, before: pa.BooleanArray) -> pa.BooleanArray:
        """Return a mask of the events that contain the row that their operation requires.

        `after` marks the events without a row after the change, and `before` marks the events
        without a row before it.
        """
        return pc.invert(pc.if_else(self.delete, before, after))

    def cdc(self) -> pa.StringArray:
        """Return the value of `_cdc.op` for each row."""
        return pa.array([CDC_OPERATIONS.get(name or "", INSERT) for name in self._names]).take(
            self._indices
        )


class DebeziumColumns:
    """Replaces events with their rows and adds `_cdc`.

    The row form (`DebeziumTransform.apply`) defines the correct results.
    """

    def __init__(
        self,
        row_form: Callable[[Any], object],
        result: Callable[[Schema, Schema | None], Schema],
        target: Callable[[str, str], str],
    ) -> None:
        """Create the columnar form with the functions that it shares with the row form.

        `result` maps the schemas of a row and a key to the schema of the result. `target`
        returns `_cdc.target` for a database name and a table name.
        """
        self._row_form = row_form
        self._result = result
        self._target = target
        self._plan = lru_cache(maxsize=64)(self._make_plan)

    def apply(self, batch: Batch) -> Sequence[Batch]:
        """See `Transformation.apply_batch`."""
        if batch.value.null_count == len(batch):
            return [batch]
        return self._schemaless(batch) if batch.value.schema is None else self._with_schema(batch)

    def _make_plan(self, envelope: Schema) -> _Plan:
        """Return the plan for a schema; raise DataError if its records are not change events."""
        try:
            source = envelope["source"]
            db = source.field("schema") or source.field("db")
            table = source.field("table") or source.field("collection")
            row, before = envelope["after"], envelope["before"]
            well_typed = (
                db is not None
                and table is not None
                and db.schema.type is table.schema.type is STRING.type
                and envelope["ts_ms"].type is INT64.type
                and envelope["op"].type is STRING.type
                and row.type is Type.STRUCT
                and envelope["op"].default is None
            )
        except KeyError as error:
            raise DataError(f"{error.args[0]} is not a valid field name") from error
        if not well_typed or db is None or table is None:
            raise DataError("the fields do not have the types of a change event")
        return _Plan(db.name, table.name, before == row, row, defaults(row))

    def _with_schema(self, batch: Batch) -> Sequence[Batch]:
        value = batch.value
        assert value.schema is not None
        try:
            plan = self._plan(value.schema)
        except DataError as error:
            raise blamed(batch, self._row_form) from error
        after, before, source, op, timestamps = (
            member_of(value, name) for name in ("after", "before", "source", "op", "ts_ms")
        )
        codes = _Codes(op.data)
        has_row = codes.has_row(null_rows(after), null_rows(before))
        complete = pc.and_not(pc.and_(has_row, timestamps.data.is_valid()), null_rows(source))
        rows = self._rows(batch, codes, pc.or_(complete, codes.rowless), codes.rowless)
        if rows is None:
            return []
        if rows.deleted is not None and not plan.same_before:
            raise NotColumnar("rows before and after a change have different schemas")
        kept_batch = _without_values(batch, rows)
        try:
            result = self._result(plan.row, _key_schema(kept_batch.key, rows))
        except DataError as error:
            raise blamed(batch, self._row_form) from error
        cdc_schema = result["_cdc"]
        columns = children(mixed(after, before, rows.deleted, rows.selected).data)
        columns = [with_default(c, d) for c, d in zip(columns, plan.defaults, strict=True)]
        timestamp = as_logical(cdc_schema["ts"], taken(timestamps.data, rows.index))
        db, table = (
            taken(member_of(source, name).data, rows.index) for name in (plan.db, plan.table)
        )
        cdc = [rows.op, timestamp, kept_batch.origin.offsets, *self._names(db, table, rows.null)]
        if cdc_schema.field("key") is not None:
            cdc.append(kept_batch.key.data)
        columns.append(struct_column(cdc_schema, cdc, None, len(kept_batch)))
        data = struct_column(result, columns, rows.null, len(kept_batch))
        null_schema = kept_nulls(value)[1]
        return [
            kept_batch.replace(value=Column(result, data, rows.null, tombstone_schema=null_schema))
        ]

    def _rows(
        self, batch: Batch, codes: _Codes, complete: pa.BooleanArray, dropped: pa.BooleanArray
    ) -> _Rows | None:
        """Return the retained rows, or None if all rows are dropped.

        Raises:
            BadRows: A row has no operation or is incomplete.
        """
        null = batch.value.is_null()
        good = pc.and_(complete, codes.is_valid)
        if null is not None:
            good = pc.or_(good, null)
        if good.true_count < len(batch):
            raise without(batch, self._row_form, pc.invert(good), self.apply)
        mask = pc.invert(dropped) if null is None else pc.or_(pc.invert(dropped), null)
        count = mask.true_count
        if not count:
            return None
        index = None if count == len(batch) else pc.indices_nonzero(mask)
        deleted = codes.delete if index is None else pc.and_(codes.delete, mask)
        if not deleted.true_count:
            deleted = None
        null = None if null is None else taken(null, index)
        return _Rows(mask, index, taken(codes.cdc(), index), deleted, null)

    def _names(
        self, db: pa.StringArray, table: pa.StringArray, null: pa.BooleanArray | None
    ) -> tuple[pa.Array, pa.Array]:
        """Return the columns `_cdc.source` and `_cdc.target`.

        The values are computed once per pair of database and table. A batch has few pairs, usually
        only one. The values in null rows are undefined.
        """
        row = 0 if null is None or not null[0].as_py() else max(pc.index(null, False).as_py(), 0)
        if all(_is_constant(names, names[row], null) for names in (db, table)):
            source, target = self._name(db[row].as_py(), table[row].as_py())
            return pa.repeat(pa.scalar(source), len(db)), pa.repeat(pa.scalar(target), len(db))
        dbs, tables = (names.dictionary_encode(null_encoding="encode") for names in (db, table))
        if len(dbs.dictionary) * len(tables.dictionary) > MAX_NAMES:
            raise NotColumnar("too many databases and tables")
        pairs = list(product(dbs.dictionary.to_pylist(), tables.dictionary.to_pylist()))
        sources, targets = (
            pa.array(names, pa.string()) for names in zip(*starmap(self._name, pairs), strict=True)
        )
        which = pc.add(
            pc.multiply(dbs.indices, pa.scalar(len(tables.dictionary), pa.int32())), tables.indices
        )
        return sources.take(which), targets.take(which)

    def _name(self, db: str | None, table: str | None) -> tuple[str, str]:
        names = ["null" if name is None else name for name in (db, table)]
        return ".".join(names), self._target(*names)

    def _schemaless(self, batch: Batch) -> Sequence[Batch]:
        value = batch.value
        op = value.member("op")
        if op is None or pa.types.is_null(op.data.type):
            raise blamed(batch, self._row_form)
        if not pa.types.is_string(op.data.type):
            raise NotColumnar("op is not a string")
        after, before = (_maps(value.member(name), len(batch)) for name in ("after", "before"))
        codes = _Codes(op.data)
        dropped = pc.or_(
            pc.invert(codes.has_row(null_rows(after), null_rows(before))), codes.rowless
        )
        db, table, has_source = self._source(batch, value.member("source"))
        rows = self._rows(batch, codes, pc.or_(dropped, has_source), dropped)
        if rows is None:
            return []
        kept_batch = _without_values(batch, rows)
        columns, absent = _row_members(mixed(after, before, rows.deleted, rows.selected), rows)
        timestamps = value.member("ts_ms")
        if timestamps is None:
            timestamp = pa.nulls(len(kept_batch))
        else:
            timestamp = taken(timestamps.data, rows.index)
        source, target = self._names(taken(db, rows.index), taken(table, rows.index), rows.null)
        cdc = {
            "op": rows.op,
            "ts": timestamp,
            "offset": kept_batch.origin.offsets,
            "source": source,
            "target": target,
        }
        key = kept_batch.key
        if key.schema is None and pa.types.is_struct(key.data.type):
            cdc["key"] = key.data
            absent |= {("_cdc", "key", *path): mask for path, mask in key.absent.items()}
            if key.data.null_count:
                absent["_cdc", "key"] = key.data.is_null()
        columns["_cdc"] = pa.StructArray.from_arrays(list(cdc.values()), names=list(cdc))
        data = pa.StructArray.from_arrays(
            list(columns.values()), names=list(columns), mask=rows.null
        )
        return [
            kept_batch.replace(
                value=Column(None, data, rows.null, absent, kept_nulls(batch.value)[1])
            )
        ]

    def _source(
        self, batch: Batch, source: Column | None
    ) -> tuple[pa.Array, pa.Array, pa.BooleanArray]:
        """Return each event's schema or database, its table, and a mask of complete rows.

        A row is complete if both names exist.
        """
        nulls = pa.nulls(len(batch), pa.string())
        schema = None if source is None else source.member("schema")
        if schema is not None and schema.missing is not None and schema.missing.true_count:
            raise NotColumnar("only some events have a schema in their source")
        names = []
        if (
            source is not None
            and source.member("table") is None
            and source.member("collection") is not None
        ):
            raise NotColumnar("the source has collections instead of tables")
        for name in ("db" if schema is None else "schema", "table"):
            member = None if source is None else source.member(name)
            is_null = member is None or pa.types.is_null(member.data.type)
            names.append(nulls if member is None or is_null else member.data)
        db, table = names
        if not (pa.types.is_string(db.type) and pa.types.is_string(table.type)):
            raise NotColumnar("the names in the source are not strings")
        return db, table, pc.and_(db.is_valid(), table.is_valid())


def _key_schema(key: Column, rows: _Rows) -> Schema | None:
    """Return the key schema of the retained events.

    Raises:
        NotColumnar: The events have different key schemas.
    """
    if key.schema is None or key.tombstone is None:
        return key.schema
    events = len(key)
    missing = key.tombstone
    if rows.null is not None:
        missing = pc.and_not(missing, rows.null)
        events -= rows.null.true_count
    count = missing.true_count
    if not count:
        return key.schema
    if count < events or key.tombstone_schema is not None:
        raise NotColumnar("some keys are null")
    return None


def _without_values(batch: Batch, rows: _Rows) -> Batch:
    """Return the retained rows. All values are null, and the caller must replace them."""
    return with_value(batch, rows.selected, Column(None, pa.nulls(len(rows.op))))


def _is_constant(data: pa.Array, value: pa.Scalar, null: pa.BooleanArray | None) -> bool:
    """Return True if all rows that are not marked in `null` have this value."""
    same = pc.equal(data, value)
    if null is not None:
        same = pc.or_kleene(same, null)
    return bool(same.true_count == len(data))


def _maps(column: Column | None, length: int) -> Column:
    """Return the column if it contains maps; otherwise return a column of nulls."""
    if column is None or not column.is_struct():
        return Column(None, pa.nulls(length))
    return column


def _row_members(
    row: Column, rows: _Rows
) -> tuple[dict[str, pa.Array], dict[Path, pa.BooleanArray]]:
    """Return the retained rows' members by name, and masks of the rows that lack a member."""
    columns = map_members(row.data)
    absent: dict[Path, pa.BooleanArray] = {}
    for path, mask in row.absent.items():
        everywhere = mask if rows.null is None else pc.or_(mask, rows.null)
        if len(path) == 1 and everywhere.true_count == len(row):
            columns.pop(path[0], None)
        elif mask.true_count:
            absent[path] = mask
    columns.pop("_cdc", None)  # replaced with the new struct
    return columns, {path: mask for path, mask in absent.items() if path[0] in columns}
