"""The batch form of Iceberg's `DebeziumTransform`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product, starmap
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import as_logical
from connect_py.api.batch import Batch, Column, Path
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import INT64, STRING, Schema, Type
from transforms.columns import (
    blamed,
    children,
    chosen_rows,
    defaults,
    kept_nulls,
    struct_column,
    taken,
    with_default,
    with_value,
)
from transforms.iceberg.cdc import CDC_OPERATIONS, INSERT, NO_ROW

if TYPE_CHECKING:
    from transforms.iceberg.debezium_transform import DebeziumTransform

MOST_NAMES = 1024  # pairs of database and table in a batch


@dataclass(frozen=True, slots=True)
class _Plan:
    """What follows from the schema of the envelope."""

    op: int
    before: int
    after: int
    moment: int
    source: int
    db: int
    table: int
    same_before: bool  # `before` has the schema of `after`
    row: Schema  # of `after`
    defaults: list[pa.Scalar | None]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that go on: all null values, and the events that have a row."""

    kept: pa.BooleanArray  # of all rows of the batch
    index: pa.Array | None  # uint64; None: all of them
    op: pa.StringArray  # of `_cdc`, of each row that goes on
    is_before: pa.BooleanArray | None  # None: no row is a delete
    null: pa.BooleanArray | None  # rows that stay null


class _Codes:
    """Debezium's operations of all rows of a batch, told apart once per code: batches have three or four."""

    def __init__(self, op: pa.StringArray) -> None:
        encoded = op.dictionary_encode(null_encoding="encode")
        self._indices = encoded.indices
        self._names: list[str | None] = encoded.dictionary.to_pylist()
        self.delete = self._mask(lambda name: name == "d")
        self.rowless = self._mask(lambda name: name in NO_ROW)
        self.known = self._mask(lambda name: name is not None)

    def _mask(self, holds: Callable[[str | None], bool]) -> pa.BooleanArray:
        answers = [holds(name) for name in self._names]
        if all(answers) or not any(answers):
            return pa.repeat(answers[0], len(self._indices))
        return pa.array(answers, pa.bool_()).take(self._indices)

    def has_row(self, after: pa.Array, before: pa.Array) -> pa.BooleanArray:
        """Whether the row that the operation asks for is there."""
        return pc.if_else(self.delete, before.is_valid(), after.is_valid())

    def cdc(self) -> pa.StringArray:
        """The operations as `_cdc` names them."""
        return pa.array([CDC_OPERATIONS.get(name or "", INSERT) for name in self._names]).take(self._indices)


class DebeziumColumns:
    """Lifts rows and adds `_cdc` as the reference does."""

    def __init__(self, reference: DebeziumTransform[Any]) -> None:
        self._reference = reference
        self._plan = lru_cache(maxsize=64)(self._make_plan)

    def apply(self, batch: Batch) -> Sequence[Batch]:
        """See `Transformation.apply_batch`."""
        if batch.value.data.null_count == len(batch):
            return [batch]
        return self._schemaless(batch) if batch.value.schema is None else self._with_schema(batch)

    def _make_plan(self, envelope: Schema) -> _Plan:
        """DataError (or KeyError inside it): no record of this schema is a change event."""
        try:
            source = envelope["source"]
            db = source.field("schema") or source.field("db")
            table = source.field("table")
            indices = {f.name: f.index for f in envelope.fields}
            row = envelope["after"]
            well_typed = (
                db is not None and table is not None and db.schema.type is table.schema.type is STRING.type
                and envelope["ts_ms"].type is INT64.type and envelope["op"].type is STRING.type
                and row.type is Type.STRUCT and envelope["op"].default is None
            )  # fmt: skip
        except KeyError as error:
            raise DataError(f"{error.args[0]} is not a valid field name") from error
        if not well_typed or db is None or table is None:
            raise DataError("not the types of a change event")
        return _Plan(
            indices["op"], indices["before"], indices["after"], indices["ts_ms"], indices["source"], db.index,
            table.index, envelope["before"] == row, row, defaults(row),
        )  # fmt: skip

    def _with_schema(self, batch: Batch) -> Sequence[Batch]:
        value = batch.value
        assert value.schema is not None
        try:
            plan = self._plan(value.schema)
        except DataError as error:
            raise blamed(batch, self._reference.apply) from error
        events = value.data
        after, before = events.field(plan.after), events.field(plan.before)
        source = events.field(plan.source)
        codes = _Codes(events.field(plan.op))
        has_row = codes.has_row(after, before)
        complete = pc.and_(pc.and_(has_row, source.is_valid()), events.field(plan.moment).is_valid())
        rows = self._rows(batch, codes, pc.or_(complete, codes.rowless), codes.rowless)
        if rows is None:
            return []
        if rows.is_before is not None and not plan.same_before:
            raise NotColumnar("rows before and after a change have different schemas")
        made = _beside(batch, rows)
        try:
            result = self._reference.result(plan.row, _key_schema(made.key, rows))
        except DataError as error:
            raise blamed(batch, self._reference.apply) from error
        cdc_schema = result["_cdc"]
        columns = children(chosen_rows(after, before, rows.is_before, rows.index))
        columns = [with_default(c, d) for c, d in zip(columns, plan.defaults, strict=True)]
        moment = as_logical(cdc_schema["ts"], taken(events.field(plan.moment), rows.index))
        db, table = (taken(source.field(index), rows.index) for index in (plan.db, plan.table))
        cdc = [rows.op, moment, made.origin.offsets, *self._names(db, table, rows.null)]
        if cdc_schema.field("key") is not None:
            cdc.append(made.key.data)
        columns.append(struct_column(cdc_schema, cdc, None, len(made)))
        data = struct_column(result, columns, rows.null, len(made))
        null_schema = kept_nulls(value)[1]
        return [made.replace(value=Column(result, data, rows.null, tombstone_schema=null_schema))]

    def _rows(self, batch: Batch, codes: _Codes, complete: pa.BooleanArray, dropped: pa.BooleanArray) -> _Rows | None:
        """Find out which rows go on; None: no row does. Rows without an operation, or not complete, fail."""
        data = batch.value.data
        null = data.is_null() if data.null_count else None
        good = pc.and_(complete, codes.known)
        if null is not None:
            good = pc.or_(good, null)
        if good.true_count < len(batch):
            raise blamed(batch, self._reference.apply)
        kept = pc.invert(dropped) if null is None else pc.or_(pc.invert(dropped), null)
        count = kept.true_count
        if not count:
            return None
        index = None if count == len(batch) else pc.indices_nonzero(kept)
        is_before = taken(codes.delete, index)
        null = None if null is None else taken(null, index)
        return _Rows(kept, index, taken(codes.cdc(), index), is_before if is_before.true_count else None, null)

    def _names(
        self, db: pa.StringArray, table: pa.StringArray, null: pa.BooleanArray | None
    ) -> tuple[pa.Array, pa.Array]:
        """`_cdc.source` and `_cdc.target`, made once per pair of names: a batch has few, nearly always one.

        What they are in rows that are null as a whole does not matter.
        """
        shown = 0 if null is None else max(pc.index(null, False).as_py(), 0)
        if all(_is_constant(names, names[shown], null) for names in (db, table)):
            source, target = self._name(db[shown].as_py(), table[shown].as_py())
            return pa.repeat(pa.scalar(source), len(db)), pa.repeat(pa.scalar(target), len(db))
        dbs, tables = (names.dictionary_encode(null_encoding="encode") for names in (db, table))
        if len(dbs.dictionary) * len(tables.dictionary) > MOST_NAMES:
            raise NotColumnar("a batch of many databases and tables")
        pairs = list(product(dbs.dictionary.to_pylist(), tables.dictionary.to_pylist()))
        sources, targets = (pa.array(names, pa.string()) for names in zip(*starmap(self._name, pairs), strict=True))
        which = pc.add(pc.multiply(dbs.indices, pa.scalar(len(tables.dictionary), pa.int32())), tables.indices)
        return sources.take(which), targets.take(which)

    def _name(self, db: str | None, table: str | None) -> tuple[str, str]:
        names = ["null" if name is None else name for name in (db, table)]
        return ".".join(names), self._reference.target(*names)

    def _schemaless(self, batch: Batch) -> Sequence[Batch]:
        events = batch.value.data
        if not pa.types.is_struct(events.type):
            raise blamed(batch, self._reference.apply)
        member = {field.name: events.field(index) for index, field in enumerate(events.type)}
        op = member.get("op")
        if op is None or pa.types.is_null(op.type):
            raise blamed(batch, self._reference.apply)
        if not pa.types.is_string(op.type):
            raise NotColumnar("op is no text")
        after, before = (_maps(member.get(name), len(batch)) for name in ("after", "before"))
        codes = _Codes(op)
        dropped = pc.or_(pc.invert(codes.has_row(after, before)), codes.rowless)
        db, table, has_source = self._source(batch, member.get("source"))
        rows = self._rows(batch, codes, pc.or_(dropped, has_source), dropped)
        if rows is None:
            return []
        made = _beside(batch, rows)
        columns, absent = _row_members(batch.value, after, before, rows)
        moment = taken(member["ts_ms"], rows.index) if "ts_ms" in member else pa.nulls(len(made))
        source, target = self._names(taken(db, rows.index), taken(table, rows.index), rows.null)
        cdc = {
            "op": rows.op, "ts": moment, "offset": made.origin.offsets, "source": source, "target": target,
        }  # fmt: skip
        key = made.key
        if key.schema is None and pa.types.is_struct(key.data.type):
            cdc["key"] = key.data
            absent |= {("_cdc", "key", *path): mask for path, mask in key.absent.items()}
            if key.data.null_count:
                absent["_cdc", "key"] = key.data.is_null()
        columns["_cdc"] = pa.StructArray.from_arrays(list(cdc.values()), names=list(cdc))
        data = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=rows.null)
        return [made.replace(value=Column(None, data, rows.null, absent, kept_nulls(batch.value)[1]))]

    def _source(self, batch: Batch, source: pa.Array | None) -> tuple[pa.Array, pa.Array, pa.BooleanArray]:
        """Database (or its schema) and table of each event, and whether both are there."""
        nothing = pa.nulls(len(batch), pa.string())
        if source is None or not pa.types.is_struct(source.type):
            return nothing, nothing, nothing.is_valid()
        member = _members(source)
        if "schema" in member:
            missing = batch.value.absent.get(("source", "schema"))
            if missing is not None and missing.true_count:
                raise NotColumnar("some events have a schema in their source, others do not")
        db, table = (member.get(name, nothing) for name in ("schema" if "schema" in member else "db", "table"))
        db, table = (nothing if pa.types.is_null(names.type) else names for names in (db, table))
        if not (pa.types.is_string(db.type) and pa.types.is_string(table.type)):
            raise NotColumnar("the source is named by something other than text")
        there = pc.and_(db.is_valid(), table.is_valid())
        return db, table, there if source.null_count == 0 else pc.and_(there, source.is_valid())


def _key_schema(key: Column, rows: _Rows) -> Schema | None:
    """The key schema that the events among the rows that go on show; NotColumnar when they show different ones."""
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


def _beside(batch: Batch, rows: _Rows) -> Batch:
    """The rows that go on; their value is still to come."""
    return with_value(batch, None if rows.index is None else rows.kept, Column(None, pa.nulls(len(rows.op))))


def _is_constant(data: pa.Array, value: pa.Scalar, null: pa.BooleanArray | None) -> bool:
    """Whether all rows hold this value, apart from those that are null as a whole."""
    same = pc.equal(data, value)
    if null is not None:
        same = pc.or_kleene(same, null)
    return bool(same.true_count == len(data))


def _maps(data: pa.Array | None, length: int) -> pa.Array:
    """A member of the event if it holds maps, otherwise nulls."""
    return pa.nulls(length) if data is None or not pa.types.is_struct(data.type) else data


def _row_members(
    value: Column, after: pa.Array, before: pa.Array, rows: _Rows
) -> tuple[dict[str, pa.Array], dict[Path, pa.BooleanArray]]:
    """The members of the rows that go on, from `after` or `before`, and the masks of those that are absent."""
    count = len(rows.op)
    if rows.is_before is None or after.type == before.type:
        columns = _members(chosen_rows(after, before, rows.is_before, rows.index))
    else:
        columns = {}
        sides = _members(after), _members(before)
        for name in dict.fromkeys([*sides[0], *sides[1]]):
            pair = _of_one_type(name, *(side.get(name) for side in sides), length=len(after))
            columns[name] = chosen_rows(*pair, rows.is_before, rows.index)
    absent: dict[Path, pa.BooleanArray] = {}
    for path in _paths(value, after, before, rows):
        mask = _absent(value, path, after, before, rows)
        if mask.true_count == 0:
            continue
        everywhere = mask if rows.null is None else pc.or_(mask, rows.null)
        if len(path) == 1 and everywhere.true_count == count:
            columns.pop(path[0], None)
        else:
            absent[path] = mask
    columns.pop("_cdc", None)  # takes the place of a column of this name
    return columns, {path: mask for path, mask in absent.items() if path[0] in columns}


def _members(data: pa.Array) -> dict[str, pa.Array]:
    if pa.types.is_null(data.type):
        return {}
    return dict(zip((f.name for f in data.type), children(data), strict=True))


def _of_one_type(
    name: str, after: pa.Array | None, before: pa.Array | None, *, length: int
) -> tuple[pa.Array, pa.Array]:
    kinds = {data.type for data in (after, before) if data is not None and not pa.types.is_null(data.type)}
    if len(kinds) > 1:
        raise NotColumnar(f"{name} changes its type")
    nothing = pa.nulls(length, kinds.pop() if kinds else pa.null())
    pair = (nothing if d is None or d.type != nothing.type else d for d in (after, before))
    return next(pair), next(pair)


def _paths(value: Column, after: pa.Array, before: pa.Array, rows: _Rows) -> set[Path]:
    """Where in the row something may be absent."""
    paths = {path[1:] for path in value.absent if path[0] == "after" and len(path) > 1}
    if rows.is_before is not None:
        paths |= {path[1:] for path in value.absent if path[0] == "before" and len(path) > 1}
        sides = [{(name,) for name in _members(data)} for data in (after, before)]
        paths |= sides[0] ^ sides[1]
    return paths


def _absent(value: Column, path: Path, after: pa.Array, before: pa.Array, rows: _Rows) -> pa.BooleanArray:
    """The rows, of those that go on, that lack a member of the row."""

    def of(side: str, data: pa.Array) -> pa.BooleanArray:
        found = value.absent.get((side, *path))
        if found is None:
            found = pa.repeat(path[0] not in _members(data), len(data))
        return taken(found, rows.index)

    if rows.is_before is None:
        return of("after", after)
    return pc.if_else(rows.is_before, of("before", before), of("after", after))
