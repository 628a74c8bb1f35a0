"""Unavailable values of a cycle's last changes, as far as the cycle itself knows them; and where the others are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import storage_type
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.columns import as_array, choose

OFFSET = "__connect_py_offset"
CHANGE = "__connect_py_change"
UNAVAILABLE = "__connect_py_unavailable"  # names of columns, each between two separators; null: every value is known
LEAVES = "__connect_py_leaves"  # of changes in a file of history: whether a delete begins a change of the key
SEPARATOR = "\x1f"
OLD_KEY_COLUMN = "__connect_py_old_"  # before the name of a key column: the key as it was before its change
# Field ids of columns that tables do not have: beyond those of columns, and below those that Iceberg reserves.
OFFSET_ID, CHANGE_ID, UNAVAILABLE_ID, LEAVES_ID = 2_000_000_002, 2_000_000_003, 2_000_000_004, 2_000_000_005
OLD_KEY_ID = 2_000_000_100  # and the number of the key column

Key = tuple[Any, ...]


def column_names(unavailable: str) -> tuple[str, ...]:
    """The columns that a text of `UNAVAILABLE` names."""
    return tuple(unavailable.strip(SEPARATOR).split(SEPARATOR))


class _Change(NamedTuple):
    """One change of a key."""

    offset: int
    deletes: bool
    unavailable: frozenset[str]


class Completion:
    """Fills unavailable values of last changes from earlier changes of the same key in the same cycle.

    A value is taken from the newest earlier upsert that has it, unless the row was deleted in between, or another one
    came under its key. A row that came by a change of its key goes on with the changes of the old key, before the
    delete that was part of it.
    """

    def __init__(
        self, whole: pa.Table, keys: Sequence[str], old_keys: pa.Table | None, left: Sequence[int] = ()
    ) -> None:
        """Take the changes of a cycle: of one Kafka partition, or, with numbers for offsets, of all of them.

        Args:
            whole: In offset order, with the columns `OFFSET`, `CHANGE` and `UNAVAILABLE`.
            keys: The key columns.
            old_keys: For rows with unavailable values that came by a change of their key: `OFFSET` of the row and the
                key columns as they were. None: no row did.
            left: Offsets of deletes that begin a change of the key.
        """
        self._whole = whole
        self._keys = list(keys)
        texts = [t for t in pc.unique(whole.column(UNAVAILABLE)).to_pylist() if t is not None]
        self._columns = sorted({name for text in texts for name in column_names(text)})
        offset, change = whole.column(OFFSET), whole.column(CHANGE)
        deleted = pc.equal(change, Change.DELETE)
        self._old_keys = keys_by_offset(old_keys, keys)
        came = pc.is_in(offset, value_set=pa.array(list(self._old_keys), pa.int64()))
        begins = pc.or_(deleted, came)  # what the key had before is of another row
        nothing = pa.scalar(None, pa.int64())
        plain = [plain_array(whole.column(k)) for k in keys]
        names = [f"k{i}" for i in range(len(plain))]
        sources = [pc.if_else(pc.or_(deleted, _lacks(whole, c)), nothing, offset) for c in self._columns]
        table = pa.table(
            [*plain, offset, pc.if_else(begins, offset, nothing), *sources],
            names=[*names, "last", "begun", *(f"s{i}" for i in range(len(sources)))],
        )
        made = table.group_by(names, use_threads=False).aggregate(
            [("last", "max"), ("begun", "max"), *((f"s{i}", "max") for i in range(len(sources)))]
        )
        self._last = as_array(made.column("last_max"))
        begun_at = as_array(made.column("begun_max")).fill_null(-1)
        self._sources = []
        for i in range(len(sources)):
            source = as_array(made.column(f"s{i}_max"))
            self._sources.append(as_array(pc.if_else(pc.greater_equal(source, begun_at), source, nothing)))
        self._left = frozenset(left)
        self._changes = self._changes_by_key() if self._old_keys or self._left else {}

    def _changes_by_key(self) -> dict[Key, list[_Change]]:
        """The changes of keys that were changed, old and new; few keys are."""
        whole = self._whole.select([*self._keys, OFFSET, CHANGE, UNAVAILABLE])
        offsets = pa.array([*self._old_keys, *self._left], pa.int64())
        moved = self._whole.filter(pc.is_in(self._whole.column(OFFSET), value_set=offsets))
        wanted = {*_tuples(moved, self._keys), *self._old_keys.values()}
        for index, name in enumerate(self._keys):
            values = pa.array([key[index] for key in wanted], plain_array(whole.column(name)).type)
            whole = whole.filter(pc.is_in(plain_array(whole.column(name)), value_set=values))
        found: dict[Key, list[_Change]] = {}
        rest = zip(*(whole.column(c).to_pylist() for c in (OFFSET, CHANGE, UNAVAILABLE)), strict=True)
        for key, (offset, change, text) in zip(_tuples(whole, self._keys), rest, strict=True):
            unavailable = frozenset() if text is None else frozenset(column_names(text))
            found.setdefault(key, []).append(_Change(offset, change == Change.DELETE, unavailable))
        return found

    def complete(self, rows: pa.Table) -> pa.Table:
        """The same rows, completed where the cycle knows a value; the list of unavailable columns shrinks."""
        if rows.column(UNAVAILABLE).null_count == rows.num_rows:
            return rows
        key = pc.index_in(rows.column(OFFSET), value_set=self._last)
        for column, sources in zip(self._columns, self._sources, strict=True):
            source = as_array(pc.if_else(_lacks(rows, column), sources.take(as_array(key)), None))
            rows = self._filled(rows, column, source)
        if not self._changes:
            return rows
        found = self._elsewhere(rows)
        for column in self._columns:
            places = [at.get(column) for at, _ in found]
            rows = self._filled(rows, column, pa.array(places, pa.int64()))
        return rows

    def left(self) -> pa.Table:
        """The rows that the cycle knows as they stood when their key was changed, completed as far as it knows."""
        found = []
        for changes in self._changes.values():
            for before, change in pairwise(changes):
                if change.offset in self._left and not before.deletes:
                    found.append(before.offset)
        rows = self._whole.filter(pc.is_in(self._whole.column(OFFSET), value_set=pa.array(found, pa.int64())))
        return self.complete(rows) if rows.num_rows else rows

    def old_keys(self, rows: pa.Table) -> list[Key | None]:
        """Per row, the key under which the table may have its unavailable values; None: its own."""
        if not self._changes:
            return [None] * rows.num_rows
        return [key for _, key in self._elsewhere(rows)]

    def _elsewhere(self, rows: pa.Table) -> list[tuple[dict[str, int], Key | None]]:
        """Of each row: where the cycle has its values under older keys, and the key that leads out of the cycle."""
        texts, offsets = rows.column(UNAVAILABLE).to_pylist(), rows.column(OFFSET).to_pylist()
        found: list[tuple[dict[str, int], Key | None]] = []
        for key, offset, text in zip(_tuples(rows, self._keys), offsets, texts, strict=True):
            places: dict[str, int] = {}
            last = None if text is None else self._trace(key, offset, set(column_names(text)), places)
            found.append((places, None if last == key else last))
        return found

    def _trace(self, key: Key, offset: int, lacking: set[str], places: dict[str, int]) -> Key:
        """Walk back from a change; `places` takes what is found, the result is the key where the cycle ends."""
        seen: set[int] = set()
        at: int | None = offset
        while at is not None and at not in seen and lacking:
            seen.add(at)
            if at in self._old_keys:
                key = self._old_keys[at]
                earlier = [c for c in self._changes.get(key, ()) if c.offset < at]
                while earlier and earlier[-1].deletes:  # the delete that belongs to the change of the key
                    earlier.pop()
            else:
                earlier = [c for c in self._changes.get(key, ()) if c.offset < at]
            if not earlier or earlier[-1].deletes:
                break
            found = earlier[-1]
            at = found.offset
            for column in lacking - found.unavailable:
                places[column] = at
            lacking &= found.unavailable
        return key

    def _filled(self, rows: pa.Table, column: str, source: pa.Int64Array) -> pa.Table:
        """Rows with the values of a column that other rows of the cycle have; `source`: their offsets, or null."""
        if source.null_count == len(source):
            return rows
        at = as_array(pc.index_in(source, value_set=as_array(self._whole.column(OFFSET)), skip_nulls=True))
        values = as_array(self._whole.column(column)).take(at)
        known = source.is_valid()
        rows = _replaced(rows, column, choose(known, values, as_array(rows.column(column))))
        text = as_array(rows.column(UNAVAILABLE))
        shorter = pc.replace_substring(text, f"{SEPARATOR}{column}{SEPARATOR}", SEPARATOR)
        shorter = pc.if_else(pc.equal(shorter, SEPARATOR), pa.scalar(None, pa.string()), shorter)
        return _replaced(rows, UNAVAILABLE, as_array(pc.if_else(known, shorter, text)))


def _lacks(rows: pa.Table, column: str) -> pa.ChunkedArray:
    found = pc.match_substring(rows.column(UNAVAILABLE), f"{SEPARATOR}{column}{SEPARATOR}")
    return found.fill_null(False)


def _replaced(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    index = rows.schema.get_field_index(column)
    return rows.set_column(index, rows.schema.field(index), values)


def keys_by_offset(old_keys: pa.Table | None, keys: Sequence[str]) -> dict[int, Key]:
    """Per row that came by a change of its key, the key that it had."""
    if old_keys is None or not old_keys.num_rows:
        return {}
    return dict(zip(old_keys.column(OFFSET).to_pylist(), _tuples(old_keys, keys), strict=True))


def _tuples(rows: pa.Table, keys: Sequence[str]) -> list[Key]:
    return list(zip(*(plain_array(rows.column(k)).to_pylist() for k in keys), strict=True))


def key_type(type_: pa.DataType) -> pa.DataType:
    """The type of a key column's values as they are compared: UUIDs are bytes, moments numbers."""
    # `pa.uuid()` is no `pa.ExtensionType`, which is the base of types that Python code defines.
    return storage_type(type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_)


def as_key_column(plain: pa.Array, type_: pa.DataType) -> pa.Array:
    """The way back from `key_type`: values of a key column in the column's own type."""
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, as_key_column(plain, type_.storage_type))
    return plain if plain.type == type_ else plain.view(type_)


def plain_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values of a key column as they are compared."""
    data = as_array(column)
    data = data.storage if isinstance(data, pa.ExtensionArray) else data
    plain = key_type(data.type)
    return data if plain == data.type else data.view(plain)
