"""Stages changes that lack values because the source did not send them.

The coordinator completes the rows. For this purpose, it needs the changes that lack values, the
deletes and inserts of key changes, and earlier changes to the same keys in the same cycle. These
changes are written to a changes file.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import DataError
from connectors.iceberg.conversion.columns import any_true, as_array
from connectors.iceberg.conversion.row_converter import RowConverter
from connectors.iceberg.staging.change_events import DELETED, INT8, Change
from connectors.iceberg.staging.changed_keys import PAIRS, ChangedKeys
from connectors.iceberg.staging.features import (
    ChangeBatch,
    CycleRows,
    StagingFeature,
    replace_column,
)
from connectors.iceberg.staging.row_keys import key_numbers
from connectors.iceberg.staging.staged_changes import (
    CHANGE,
    EXTRA_SCHEMA,
    HALF,
    OFFSET,
    OPTIONAL,
    PAIR,
    PARTIAL,
    SEPARATOR,
    UNAVAILABLE,
)
from connectors.iceberg.staging.table_converter import TableLayout
from connectors.iceberg.table.table import StagedFile, StagedKind

_UNAVAILABLE = pa.field(UNAVAILABLE, pa.string())


class PartialRows(StagingFeature):
    """Stages changes that lack values, and the changes that are needed to complete them."""

    def __init__(self, placeholder: bytes, changed_keys: ChangedKeys, *, is_ordered: bool) -> None:
        """Create the feature.

        Args:
            placeholder: Debezium's placeholder for values that were not sent, or empty if unused.
            changed_keys: Tracks the key changes in the table.
            is_ordered: True if ordering columns are configured, so a row can be completed from
                earlier changes in other partitions.
        """
        self._placeholder = Placeholder(placeholder) if placeholder else None
        self._changed_keys = changed_keys
        self._is_ordered = is_ordered

    def prepare(self, changes: ChangeBatch, converter: RowConverter) -> None:
        if self._placeholder is not None:
            upsert = pc.equal(changes.change, Change.UPSERT)
            changes.unavailable |= self._placeholder.find(
                changes.batch.value, changes.layout.keys, converter, upsert
            )

    def amend(self, changes: ChangeBatch) -> None:
        layout, values = changes.layout, pa.nulls(len(changes.batch), pa.string())
        if changes.unavailable:
            ids = [
                pc.if_else(rows, layout.field_id(name) + SEPARATOR, "")
                for name, rows in changes.unavailable.items()
            ]
            joined = pc.binary_join_element_wise(SEPARATOR, *ids, "")
            null = pa.scalar(None, pa.string())
            values = as_array(pc.if_else(pc.equal(joined, SEPARATOR), null, joined))
        changes.add_column(_UNAVAILABLE, values)

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        pairs, whole = self._pairs(cycle), cycle.whole
        if (
            self._is_ordered
            or pairs.num_rows
            or whole.column(UNAVAILABLE).null_count < whole.num_rows
        ):
            yield from self._changes_file(cycle, whole, pairs)
            cycle.remove(UNAVAILABLE)

    def _pairs(self, cycle: CycleRows) -> pa.Table:
        """Return the deletes and inserts of key changes in a cycle."""
        halves = self._changed_keys.of_cycle(cycle.partition)
        pairs = pa.concat_tables([PAIRS.empty_table(), *halves])
        if cycle.received_offsets is None:
            return pairs
        offsets = pc.index_in(pairs.column(OFFSET), value_set=cycle.received_offsets)
        pairs = replace_column(pairs, OFFSET, offsets.cast(pa.int64()))
        return pairs.filter(pairs.column(OFFSET).is_valid())

    def _changes_file(
        self, cycle: CycleRows, whole: pa.Table, pairs: pa.Table
    ) -> Iterator[StagedFile]:
        last, layout = cycle.last_offsets(), cycle.layout
        is_last = None if last is None else as_array(pc.is_in(whole.column(OFFSET), value_set=last))
        offsets = as_array(pairs.column(OFFSET))
        needed = changes_to_stage(
            whole, layout.keys, is_last, offsets, all_earlier=self._is_ordered
        )
        if needed is None:
            return
        rows = whole.filter(needed)
        partial = pc.and_not(
            rows.column(UNAVAILABLE).is_valid(), pc.equal(rows.column(CHANGE), Change.DELETE)
        )
        if is_last is not None:
            partial = pc.and_(partial, is_last.filter(needed))
        if not self._is_ordered and not pairs.num_rows and not any_true(as_array(partial)):
            return
        rows = replace_column(rows, CHANGE, rows.column(CHANGE).cast(pa.int32()))
        at = as_array(pc.index_in(rows.column(OFFSET), value_set=offsets))
        for name, values in (
            (PARTIAL, partial),
            (OPTIONAL, _only_marks(rows, layout)),
            (PAIR, pairs.column(PAIR).take(at)),
            (HALF, pairs.column(HALF).take(at)),
        ):
            rows = rows.append_column(name, values)
        schema = pa.schema([*layout.nullable, *layout.extra, *EXTRA_SCHEMA])
        file = cycle.write(
            StagedKind.CHANGES, rows, schema, unavailable=_unavailable_columns(rows, layout)
        )
        yield dataclasses.replace(
            file, pairs=at.null_count < len(at), partial=pc.sum(partial).as_py() or 0
        )


def _unavailable_columns(rows: pa.Table, layout: TableLayout) -> list[str]:
    """Return the columns whose value is unavailable in at least one row."""
    values = pc.unique(rows.column(UNAVAILABLE)).to_pylist()
    ids = {id_ for value in values if value for id_ in value.strip(SEPARATOR).split(SEPARATOR)}
    return [name for name in layout.schema.names if layout.field_id(name) in ids]


class MarkedDeletes(StagingFeature):
    """Applies deletes by setting the `__deleted` column, without changing other values."""

    def check(self, layout: TableLayout) -> None:
        if layout.schema.get_field_index(DELETED) < 0:
            raise DataError(
                f"table {layout.description.name} has no column {DELETED}, which "
                "iceberg.ext.delete-mode=mark requires; add it as a boolean column"
            )

    def prepare(self, changes: ChangeBatch, converter: RowConverter) -> None:
        deletes = pc.equal(changes.change, Change.DELETE)
        if any_true(deletes):
            for name in _unmarked(changes.layout):
                rows = changes.unavailable.get(name)
                changes.unavailable[name] = deletes if rows is None else pc.or_(deletes, rows)

    def amend(self, changes: ChangeBatch) -> None:
        schema, deletes = changes.layout.schema, pc.equal(changes.change, Change.DELETE)
        at = schema.get_field_index(DELETED)
        changes.columns[at] = deletes.cast(schema.field(at).type)
        upsert = pa.scalar(Change.UPSERT, INT8)
        changes.change = as_array(pc.if_else(deletes, upsert, changes.change))


def _unmarked(layout: TableLayout) -> list[str]:
    """Return the columns that do not change when a row is marked as deleted."""
    return [name for name in layout.schema.names if name not in layout.keys and name != DELETED]


def _only_marks(rows: pa.Table, layout: TableLayout) -> pa.Array | pa.ChunkedArray:
    """Return a mask of the deletes that mark a row and contain only its key."""
    if layout.schema.get_field_index(DELETED) < 0:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    separators = pc.count_substring(rows.column(UNAVAILABLE).fill_null(""), SEPARATOR)
    lacks_all = pc.equal(separators, len(_unmarked(layout)) + 1)
    return pc.and_(lacks_all, rows.column(DELETED).cast(pa.bool_()).fill_null(False))


def changes_to_stage(
    rows: pa.Table,
    keys: Sequence[str],
    is_last: pa.BooleanArray | None,
    pair_offsets: pa.Int64Array,
    *,
    all_earlier: bool,
) -> pa.BooleanArray | None:
    """Return a mask of the changes that the coordinator needs, or None if it needs none.

    Args:
        rows: Rows of one partition in offset order, with `OFFSET` and `UNAVAILABLE`.
        keys: The key columns.
        is_last: Mask of the last change of each key, or None if each key occurs once.
        pair_offsets: Offsets of the deletes and inserts of key changes.
        all_earlier: True to include all earlier changes, because changes in other partitions may
            need their values.
    """
    needed = pc.or_(
        pc.is_valid(rows.column(UNAVAILABLE)),
        pc.is_in(rows.column(OFFSET), value_set=pair_offsets),
    )
    if is_last is not None:
        earlier = pc.invert(is_last)
        if all_earlier:
            needed = pc.or_(needed, earlier)
        elif any_true(as_array(needed)):
            numbers = key_numbers([rows.column(key) for key in keys])
            same_key = pc.is_in(numbers, value_set=pc.unique(numbers.filter(as_array(needed))))
            needed = pc.or_(needed, pc.and_(earlier, same_key))
    mask = as_array(needed)
    return mask if any_true(mask) else None


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Finds Debezium's placeholder for unavailable values in columns of any type."""

    value: bytes

    def find(
        self,
        value: Column,
        keys: Sequence[str],
        converter: RowConverter,
        upsert: pa.BooleanArray | pa.BooleanScalar,
    ) -> dict[str, pa.BooleanArray]:
        """Return a mask of the upserts that contain the placeholder, by table column."""
        masks: dict[str, pa.BooleanArray] = {}
        if not pa.types.is_struct(value.data.type):
            return masks
        for column, source in converter.sources.items():
            if column in keys:
                continue
            # the fields of null structs need no mask because a null value is not an upsert
            data = value.data.field(value.data.type.get_field_index(source))
            rows = self.rows(data, schemaless=value.schema is None)
            if rows is not None:
                # one of these columns contains the existing value, so all must remain unchanged
                for name in (column, *converter.siblings[column]):
                    masks[name] = pc.and_(rows, upsert)
        return {column: rows for column, rows in masks.items() if any_true(rows)}

    def rows(self, data: pa.Array, *, schemaless: bool) -> pa.BooleanArray | None:
        """Return a mask of the rows with the placeholder, or None if there are none."""
        type_, string = data.type, self._string()
        if data.null_count == len(data):
            return None
        if pa.types.is_string(type_):
            return self._strings(data, string, schemaless=schemaless)
        if pa.types.is_binary(type_):
            return _some(pc.equal(data, self.value))
        if pa.types.is_list(type_):
            return self._lists(data, string)
        if (
            string is not None
            and pa.types.is_map(type_)
            and pa.types.is_string(type_.key_type)
            and pa.types.is_string(type_.item_type)
        ):
            return _some(pa.array([row == [(string, string)] for row in data.to_pylist()]))
        return None

    def _string(self) -> str | None:
        try:
            return self.value.decode()
        except UnicodeDecodeError:
            return None

    def _strings(
        self, data: pa.Array, string: str | None, *, schemaless: bool
    ) -> pa.BooleanArray | None:
        forms = [] if string is None else [string, f'{{"{string}":"{string}"}}']
        if schemaless:
            forms.append(base64.b64encode(self.value).decode())
        mask: pa.BooleanArray | None = None
        for form in forms:
            # searching is cheaper than computing a mask, and usually no placeholder is found
            if pc.index(data, form).as_py() >= 0:
                rows = pc.equal(data, form).fill_null(False)
                mask = rows if mask is None else pc.or_(mask, rows)
        return mask

    def _lists(self, data: pa.Array, string: str | None) -> pa.BooleanArray | None:
        """Return a mask of the lists that consist of the placeholder.

        In a list column, Debezium encodes the placeholder as a list of one string, one UUID, one
        byte string, or one number for each byte.
        """
        items = data.type.value_type
        forms: list[list[object]] = []
        if pa.types.is_string(items) and string is not None:
            digest = hashlib.md5(self.value, usedforsecurity=False).digest()
            forms = [[string], [str(uuid.UUID(bytes=digest, version=3))]]
        elif pa.types.is_binary(items):
            forms = [[self.value]]
        elif pa.types.is_integer(items) or pa.types.is_date32(items):
            data = data if pa.types.is_integer(items) else data.cast(pa.list_(pa.int32()))
            forms = [list(self.value)]
        if not forms or not any_true(pc.equal(pc.list_value_length(data), len(forms[0]))):
            return None
        return _some(pa.array([row in forms for row in data.to_pylist()], pa.bool_()))


def _some(rows: pa.BooleanArray) -> pa.BooleanArray | None:
    return rows.fill_null(False) if any_true(rows) else None
