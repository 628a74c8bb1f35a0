"""Columnar form (`apply_batch`) of `ExtractNewRecordState`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.record import NO_HEADERS, Headers
from connect_py.api.schema import Schema, Type, Value
from connect_py.columns.arrow import to_values
from transforms.columns import (
    blamed,
    children,
    defaults,
    hidden,
    kept_nulls,
    member_of,
    mixed,
    null_rows,
    split,
    struct_column,
    taken,
    with_default,
    with_value,
)
from transforms.debezium.delete_handling import Deletes
from transforms.debezium.envelope import AFTER, BEFORE, DELETE, OP, is_envelope, string_column
from transforms.debezium.field_reference import FieldReference
from transforms.debezium.unwrapping import Unwrapping


@dataclass(frozen=True, slots=True)
class _Plan:
    """Precomputed steps for one envelope schema."""

    row: Schema  # schema of `after`
    same_before: bool  # True if `before` has the same schema
    result: Schema
    # defaults of the columns of the row, or None if nulls are not replaced
    defaults: Sequence[pa.Scalar | None] | None
    routing: str | None  # column with the new topic name, if any
    added: Sequence[tuple[FieldReference, Schema]]
    added_headers: Sequence[tuple[FieldReference, Schema]]


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Masks that classify the rows of a batch. A row that no mask selects is dropped."""

    after: pa.BooleanArray  # events with a row after the change
    before: pa.BooleanArray  # delete events with a row, unless deletes are dropped
    keyed: pa.BooleanArray | None  # delete events with a key but without a row
    passing: pa.BooleanArray | None  # null values that are passed through

    def kept_rows(self) -> pa.BooleanArray:
        """Return the mask of the rows that are not dropped."""
        kept_rows = pc.or_(self.after, self.before)
        for mask in (self.keyed, self.passing):
            if mask is not None:
                kept_rows = pc.or_(kept_rows, mask)
        return kept_rows


class UnwrapColumns:
    """Unwraps batches. The row form (`apply` of the transformation) defines the correct results."""

    def __init__(
        self,
        reference: Unwrapping[Any],
        row_schema: Callable[[Schema, Schema], Schema],
        *,
        route_by_field: str,
        drop_fields_header: str,
        replace_null_with_default: bool,
    ) -> None:
        """Create the columnar form of `reference`.

        `row_schema` maps the schemas of a row and its envelope to the schema of the result.
        """
        self._reference = reference
        self._row_schema = row_schema
        self._route_by_field = route_by_field
        self._drop_fields_header = drop_fields_header
        self._replace_null_with_default = replace_null_with_default
        self._plan = lru_cache(maxsize=64)(self._make_plan)

    def apply(self, batch: Batch) -> Sequence[Batch]:
        """See `Transformation.apply_batch`."""
        self._refuse_dropped_fields(batch)
        if not is_envelope(batch.value.schema):
            return self._without_envelope(batch)
        assert batch.value.schema is not None
        self._reference.note_envelope()
        try:
            plan = self._plan(batch.value.schema)
        except DataError as error:
            raise blamed(batch, self._reference.apply) from error
        return self._unwrap(batch, plan)

    def _refuse_dropped_fields(self, batch: Batch) -> None:
        name = self._drop_fields_header
        if not name:
            return
        if any(reference.new_name == name for reference in self._reference.add_headers):
            raise NotColumnar(f"header {name} is added row by row")
        if batch.headers is not None and any(
            h.key == name for headers in batch.headers for h in headers
        ):
            raise NotColumnar(f"header {name} lists the columns of each row")

    def _make_plan(self, envelope: Schema) -> _Plan:
        reference = self._reference
        name = self._route_by_field
        after, before = envelope.field(AFTER), envelope.field(BEFORE)
        if after is None or before is None or after.schema.type is not Type.STRUCT:
            raise NotColumnar("the envelope has no row schema")
        result = self._row_schema(after.schema, envelope)
        substitutes = reference.handling.rewrites and self._replace_null_with_default
        return _Plan(
            after.schema,
            after.schema == before.schema,
            result,
            defaults(after.schema) if substitutes else None,
            after.schema.fields[string_column(after.schema, name)].name if name else None,
            _present(reference.add_fields, envelope),
            _present(reference.add_headers, envelope),
        )

    def _without_envelope(self, batch: Batch) -> Sequence[Batch]:
        """Pass values through unchanged, and handle nulls as the delete handling mode specifies."""
        null = batch.value.is_null()
        self._reference.note_passing(len(batch) - batch.value.null_count)
        if null is None:
            return [batch]
        if self._reference.handling.drop_tombstones:
            valid = pc.invert(null)
            return [batch.where(valid)] if valid.true_count else []
        if self._reference.add_headers:
            headers = [
                self._reference.tombstone_headers(h) if is_null else h
                for h, is_null in zip(_headers(batch), null.to_pylist(), strict=True)
            ]
            return [batch.replace(headers=headers)]
        return [batch]

    def _unwrap(self, batch: Batch, plan: _Plan) -> Sequence[Batch]:
        after, before = _blocks(batch.value)
        kinds = self._kinds(batch, after, before)
        if not plan.same_before and kinds.before.true_count:
            raise NotColumnar("rows before and after a change have different schemas")
        mask = kinds.kept_rows()
        count = mask.true_count
        if count == 0:
            return []
        kept_rows = None if count == len(batch) else mask
        rows = None if kept_rows is None else pc.indices_nonzero(mask)
        value = self._value(batch, plan, kinds, kept_rows, rows, count)
        headers = (
            self._headers(batch, plan, kinds, rows)
            if plan.added_headers or kinds.passing is not None
            else None
        )
        result = with_value(batch, kept_rows, value).replace(headers=headers)
        if plan.routing is None:
            return [result]
        return self._routed(result, plan, batch.value, kinds, rows)

    def _kinds(self, batch: Batch, after: Column, before: Column) -> _Kinds:
        """Classify the rows of a batch. The masks contain no nulls."""
        handling = self._reference.handling
        has_after = pc.invert(null_rows(after))
        has_before = pc.and_not(pc.invert(null_rows(before)), has_after)
        if handling.deletes is Deletes.DROP:
            has_before = pc.and_not(has_before, has_before)
        nulls = batch.value.null_count
        passing = batch.value.is_null() if not handling.drop_tombstones else None
        keyed = None
        rowless = len(batch) - nulls - has_after.true_count - has_before.true_count
        op = None
        if rowless and handling.deletes is not Deletes.DROP:
            op = batch.value.member(OP)
        if op is not None:
            delete = pc.fill_null(pc.equal(op.data, DELETE), False)
            keyed = pc.and_not(delete, null_rows(batch.key))
            keyed = pc.and_not(pc.and_not(keyed, has_after), has_before)
            keyed = keyed if keyed.true_count else None
        return _Kinds(has_after, has_before, keyed, passing)

    def _value(
        self,
        batch: Batch,
        plan: _Plan,
        kinds: _Kinds,
        kept_rows: pa.BooleanArray | None,
        rows: pa.Array | None,
        count: int,
    ) -> Column:
        """Return the value column of the retained rows.

        `rows` contains their indices, or is None if all rows are retained.
        """
        handling = self._reference.handling
        after, before = _blocks(batch.value)
        rewritten = kinds.before if handling.rewrites and kinds.before.true_count else None
        is_after = taken(kinds.after, rows)
        is_before = None if rewritten is None else taken(rewritten, rows)
        has_row = is_after if is_before is None else pc.or_(is_after, is_before)
        columns = children(mixed(after, before, rewritten, kept_rows).data)
        if plan.defaults is not None:
            columns = [with_default(c, d) for c, d in zip(columns, plan.defaults, strict=True)]
        if handling.rewrites:
            columns.append(
                pa.repeat(pa.scalar("false"), count)
                if is_before is None
                else pc.if_else(is_before, "true", "false")
            )
        for reference, _ in plan.added:
            column = _member(batch.value, reference)
            columns.append(column if rows is None else column.take(rows))
        null = None if has_row.true_count == count else pc.invert(has_row)
        data = struct_column(plan.result, columns, null, count)
        return Column(
            plan.result, data, null, tombstone_schema=self._null_schema(batch, plan, kinds)
        )

    def _null_schema(self, batch: Batch, plan: _Plan, kinds: _Kinds) -> Schema | None:
        """Return the schema of the null values in the result.

        Raises:
            NotColumnar: The null values have different schemas.
        """
        schemas: set[Schema | None] = set()
        if kinds.keyed is not None:
            schemas.add(None)
        if (
            self._reference.handling.deletes in (Deletes.NULL, Deletes.TOMBSTONE)
            and kinds.before.true_count
        ):
            schemas.add(plan.row if self._reference.handling.deletes is Deletes.NULL else None)
        if kinds.passing is not None:
            schemas.add(kept_nulls(batch.value)[1])
        if len(schemas) > 1:
            raise NotColumnar("null values with several schemas")
        return schemas.pop() if schemas else None

    def _headers(
        self, batch: Batch, plan: _Plan, kinds: _Kinds, rows: pa.Array | None
    ) -> list[Headers] | None:
        """Return the headers of the retained rows, or None if no headers are added."""
        if not self._reference.add_headers:
            return None
        added: list[list[Value]] = []
        for reference, schema in plan.added_headers:
            column = _member(batch.value, reference)
            added.append(to_values(schema, column if rows is None else column.take(rows)))
        names = [(reference.new_name, schema) for reference, schema in plan.added_headers]
        existing = _headers(batch)
        indices: Sequence[int] = range(len(batch)) if rows is None else rows.to_pylist()
        passing = None if kinds.passing is None else kinds.passing.to_pylist()
        new_headers = []
        for position, index in enumerate(indices):
            headers = existing[index]
            if passing is not None and passing[index]:
                headers = self._reference.tombstone_headers(headers)
            else:
                for (name, schema), values in zip(names, added, strict=True):
                    headers = headers.add(name, values[position], schema)
            new_headers.append(headers)
        return new_headers

    def _routed(
        self, batch: Batch, plan: _Plan, events: Column, kinds: _Kinds, rows: pa.Array | None
    ) -> Sequence[Batch]:
        """Split the rows by the topic name in the routing column.

        A row with a null or blank topic retains the topic of the batch.
        """
        assert plan.routing is not None
        names, names_before = (member_of(block, plan.routing).data for block in _blocks(events))
        if kinds.before.true_count:
            names = pc.if_else(kinds.after, names, names_before)
        names = hidden(names, pc.or_(kinds.after, kinds.before))
        encoded = (names if rows is None else names.take(rows)).dictionary_encode(
            null_encoding="encode"
        )
        topics = [
            name if name is not None and name.strip() else batch.topic
            for name in encoded.dictionary.to_pylist()
        ]
        first = pa.array([topics.index(topic) for topic in topics], pa.int32())
        parts = split(batch, first.take(encoded.indices))
        return [
            part if topics[code] == part.topic else replace(part, topic=topics[code])
            for code, part in parts
        ]


def _present(
    references: Sequence[FieldReference], envelope: Schema
) -> list[tuple[FieldReference, Schema]]:
    schemas = [(reference, reference.schema(envelope)) for reference in references]
    return [(reference, schema) for reference, schema in schemas if schema is not None]


def _blocks(events: Column) -> tuple[Column, Column]:
    """Return the columns `after` and `before`."""
    return member_of(events, AFTER), member_of(events, BEFORE)


def _member(value: Column, reference: FieldReference) -> pa.Array:
    """Return a field from the events, with nulls where its struct is null."""
    assert value.schema is not None
    path = reference.path(value.schema)
    assert path is not None
    column = member_of(value, path[0])
    if len(path) > 1:
        return member_of(column, path[1]).data
    if reference.parent is None:
        return column.data
    # another transformation moved the field from its struct to the envelope
    null = member_of(value, reference.parent).is_null()
    return column.data if null is None else hidden(column.data, pc.invert(null))


def _headers(batch: Batch) -> Sequence[Headers]:
    return batch.headers if batch.headers is not None else [NO_HEADERS] * len(batch)
