"""Unavailable values of a cycle whose changes of a key come in several Kafka partitions, as far as it knows them.

The newest value before a change may be in another partition, and so may the delete after which none counts. Tasks,
which see their own partitions, therefore complete nothing here: they also stage the changes before the last ones of
their keys, and all are put in the order of the source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.iceberg.spark.row_writer import RowWriter
from connectors.iceberg.spark.staged_columns import projected, staged_names, with_order_under
from connectors.iceberg.spark.table_files import TableFiles
from connectors.iceberg.spark.table_reader import TableReader
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.columns import as_array
from connectors.iceberg.staging.completion import (
    CHANGE,
    LEAVES,
    OFFSET,
    OLD_KEY_COLUMN,
    SEPARATOR,
    UNAVAILABLE,
    Completion,
    Key,
    column_names,
    key_type,
)
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.staging.types import FIELD_ID
from connectors.iceberg.table import StagedFile, StagedKind

FILE, ROW = "__connect_py_file", "__connect_py_row"  # where a change is staged: number of the file, row in it
_LAST = (1 << 63) - 1  # offset of a key's last change in a partition, which its file does not say


class Completed(NamedTuple):
    """What a cycle knows of its last changes."""

    made: list[StagedFile]  # instead of `replaced`
    replaced: pa.Table  # `FILE` and `ROW` of last changes
    left: list[StagedFile]  # rows as they stood when their key was changed


class CycleCompletion:
    """For one request with ordering columns."""

    def __init__(self, reader: TableReader, writer: RowWriter, files: TableFiles, keys: Sequence[str]) -> None:
        self._reader = reader
        self._writer = writer
        self._files = files
        self._keys = list(keys)
        self._old_keys = [OLD_KEY_COLUMN + key for key in keys]
        self._schema = reader.nullable.append(reader.order_field)

    def complete(
        self,
        staged: Sequence[StagedFile],
        changes: pa.Table,
        beaten: pa.ChunkedArray | None,
        history: Sequence[StagedFile],
        without_old: Callable[[pa.Table], pa.Table],
    ) -> Completed:
        """Complete the last changes.

        Args:
            staged: The files that hold changes.
            changes: The last ones of each partition that count: key columns as they are compared, `FILE` and `ROW`.
            beaten: Those that are not the last of the cycle; None: all are.
            history: The files with changes before these.
            without_old: Leaves out changes that are older than a truncate, or than the table.

        Raises:
            OSError: A file cannot be read or written.
        """
        nothing = Completed([], changes.select([FILE, ROW]).slice(0, 0), [])
        patches = pa.array([n for n, file in enumerate(staged) if file.kind is StagedKind.PATCHES], pa.int64())
        if not len(patches) and not any(file.moved for file in history):
            return nothing
        last = changes if beaten is None else changes.filter(pc.invert(beaten))
        lacking = last.filter(pc.is_in(last.column(FILE), value_set=patches))
        whole = self._changes(staged, changes, history, without_old)
        if not whole.num_rows:
            return nothing
        moved = whole.filter(pc.and_(whole.column(self._old_keys[0]).is_valid(), whole.column(UNAVAILABLE).is_valid()))
        old_keys = moved.select([OFFSET, *self._old_keys]).rename_columns([OFFSET, *self._keys])
        leaves = whole.filter(whole.column(LEAVES)).column(OFFSET).to_pylist()
        completion = Completion(whole, self._keys, old_keys, leaves)
        left = completion.left()
        left_files = [
            dataclasses.replace(file, kind=StagedKind.LEFT)
            for file in self._staged_anew(left, completion.old_keys(left), staged[0], whole=False)
        ]
        rows = whole.filter(_are_in(whole, lacking))
        if not rows.num_rows:
            return Completed([], nothing.replaced, left_files)
        done = completion.complete(rows)
        keys = completion.old_keys(done)
        old_columns = [done.column(name).to_pylist() for name in self._old_keys]
        were = [None if old[0] is None else old for old in zip(*old_columns, strict=True)]
        texts = zip(rows.column(UNAVAILABLE).to_pylist(), done.column(UNAVAILABLE).to_pylist(), strict=True)
        places = [n for n, (before, now) in enumerate(texts) if before != now or were[n] != keys[n]]
        if not places:
            return Completed([], nothing.replaced, left_files)
        again = done.take(pa.array(places, pa.int64()))
        made = self._staged_anew(again, [keys[place] for place in places], staged[0], whole=True)
        return Completed(made, again.select([FILE, ROW]), left_files)

    # --- reading

    def _changes(
        self,
        staged: Sequence[StagedFile],
        changes: pa.Table,
        history: Sequence[StagedFile],
        without_old: Callable[[pa.Table], pa.Table],
    ) -> pa.Table:
        """All changes of keys that lack values or were changed, numbered as they stand in the source."""
        keys = self._concerned([*(file for file in staged if file.kind is StagedKind.PATCHES), *history])
        found = []
        last = changes.join(keys, self._keys, join_type="left semi", use_threads=False)
        for number, file in enumerate(staged):
            rows = as_array(last.filter(pc.equal(last.column(FILE), number)).column(ROW))
            if len(rows):
                found.append(self._rows(file, number, rows))
        for number, file in enumerate(history, len(staged)):
            part = self._history(file, number)
            told = self._compared(part, self._keys)
            for name in (ORDER, FILE, ROW):
                told = told.append_column(name, part.column(name))
            told = told.join(keys, self._keys, join_type="left semi", use_threads=False)
            if told.num_rows:
                found.append(part.filter(_are_in(part, without_old(told))))
        if not found:
            return self._schema.empty_table()
        whole = pa.concat_tables(found)
        # At one place a delete comes first, unless a partition's offsets say otherwise.
        whole = whole.sort_by([(ORDER, "ascending"), (OFFSET, "ascending"), (CHANGE, "descending")])
        numbers = pa.array(range(whole.num_rows), pa.int64())
        return whole.set_column(whole.schema.get_field_index(OFFSET), OFFSET, numbers)

    def _concerned(self, files: Sequence[StagedFile]) -> pa.Table:
        """The keys of patches, and of rows whose key was changed, the former ones too: each once."""
        found = []
        for file in files:
            if file.kind is StagedKind.HISTORY and not file.moved:
                continue
            with self._files.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
                names = staged_names(parquet.schema_arrow, [self._reader.schema.field(key) for key in self._keys])
                old = [OLD_KEY_COLUMN + name for name in names] if file.moved else []
                more = [LEAVES] if file.kind is StagedKind.HISTORY else []
                rows = parquet.read([*names, *old, *more], use_threads=False)
            rows = rows.select([*names, *old, *more]).rename_columns([*self._keys, *self._old_keys[: len(old)], *more])
            came = rows.filter(rows.column(self._old_keys[0]).is_valid()) if old else None
            if more and came is not None:
                rows = rows.filter(pc.or_(rows.column(LEAVES), rows.column(self._old_keys[0]).is_valid()))
            found.append(self._compared(rows, self._keys))
            if came is not None:
                found.append(self._compared(came.select(self._old_keys).rename_columns(self._keys), self._keys))
        keys = pa.concat_tables(found)
        return keys.group_by(self._keys, use_threads=False).aggregate([])

    def _compared(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        return pa.table([self._reader.compared(name, rows.column(name)) for name in names], names=list(names))

    def _read(self, file: StagedFile) -> pa.Table:
        with self._files.open(file.path) as opened:
            return with_order_under(pq.read_table(opened, use_threads=False), self._reader.order_field)

    def _history(self, file: StagedFile, number: int) -> pa.Table:
        staged = self._read(file)
        rows = projected(staged, self._schema, self._keys)
        text = as_array(rows.column(UNAVAILABLE))
        rows = rows.set_column(rows.schema.get_field_index(UNAVAILABLE), UNAVAILABLE, self._named(text, staged.schema))
        return self._complete_columns(rows, number, pa.array(range(rows.num_rows), pa.int64()))

    def _named(self, text: pa.StringArray, staged: pa.Schema) -> pa.StringArray:
        """The lists of unavailable columns with the columns' present names, without those that are gone."""
        names = {field.metadata[FIELD_ID]: field.name for field in self._reader.schema}
        encoded = text.dictionary_encode()
        made = []
        for each in encoded.dictionary.to_pylist():
            now = [names.get(staged.field(name).metadata[FIELD_ID]) for name in column_names(each)]
            made.append(_listed([name for name in now if name is not None]))
        return pa.array(made, pa.string()).take(encoded.indices)

    def _rows(self, file: StagedFile, number: int, rows: pa.Int64Array) -> pa.Table:
        """Some rows of a file with last changes, in the form of history."""
        read = projected(self._read(file).take(rows), self._schema, self._keys)
        change = Change.DELETE if file.kind is StagedKind.DELETES else Change.UPSERT
        text = pa.scalar(_listed(file.unavailable), pa.string())
        read = read.append_column(OFFSET, pa.repeat(pa.scalar(_LAST, pa.int64()), len(read)))
        read = read.append_column(CHANGE, pa.repeat(pa.scalar(int(change), pa.int8()), len(read)))
        read = read.append_column(UNAVAILABLE, pa.repeat(text, len(read)))
        read = read.append_column(LEAVES, pa.repeat(pa.scalar(False), len(read)))
        for key, name in zip(self._keys, self._old_keys, strict=True):
            if name not in read.column_names:
                read = read.append_column(name, pa.nulls(len(read), key_type(self._reader.schema.field(key).type)))
        return self._complete_columns(read, number, rows)

    def _complete_columns(self, rows: pa.Table, number: int, places: pa.Int64Array) -> pa.Table:
        """All parts alike, so that they can be put together."""
        order = as_array(rows.column(ORDER)).fill_null("")
        rows = rows.set_column(rows.schema.get_field_index(ORDER), self._reader.order_field, order)
        for key, name in zip(self._keys, self._old_keys, strict=True):
            kind = key_type(self._reader.schema.field(key).type)
            rows = rows.set_column(rows.schema.get_field_index(name), name, rows.column(name).cast(kind))
        rows = rows.append_column(FILE, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
        rows = rows.append_column(ROW, places)
        extra = [OFFSET, CHANGE, UNAVAILABLE, LEAVES, *self._old_keys, FILE, ROW]
        rows = rows.select([*self._schema.names, *extra])
        return rows.cast(pa.schema([*self._schema, *(pa.field(name, rows.schema.field(name).type) for name in extra)]))

    # --- writing

    def _staged_anew(
        self, rows: pa.Table, keys: Sequence[Key | None], like: StagedFile, *, whole: bool
    ) -> list[StagedFile]:
        """Rows as files, by what they lack and whether they are looked for under another key.

        `whole`: those that lack nothing are rows of the table.
        """
        groups: dict[tuple[str | None, bool], list[int]] = {}
        for row, (text, key) in enumerate(zip(rows.column(UNAVAILABLE).to_pylist(), keys, strict=True)):
            groups.setdefault((text, key is not None), []).append(row)
        made: list[StagedFile] = []
        for (text, moved), places in groups.items():
            part = rows.take(pa.array(places, pa.int64())).select(self._schema.names)
            if text is None and whole:
                made += self._writer.rows(part)
                continue
            for index, name in enumerate(self._keys) if moved else ():
                values = [old[index] for row in places if (old := keys[row]) is not None]
                kind = key_type(self._reader.schema.field(name).type)
                part = part.append_column(OLD_KEY_COLUMN + name, pa.array(values, kind))
            uri, size = self._writer.again(part)
            made.append(
                dataclasses.replace(
                    like, kind=StagedKind.PATCHES, path=uri, rows=part.num_rows, size=size, partition=(),
                    schema_id=self._reader.schema_id, unavailable=() if text is None else column_names(text),
                    optional=False, moved=moved,
                )
            )  # fmt: skip
        return made


def _listed(names: Sequence[str]) -> str | None:
    return SEPARATOR + SEPARATOR.join(names) + SEPARATOR if names else None


def _are_in(rows: pa.Table, some: pa.Table) -> pa.BooleanArray:
    """Which rows are among others, by file and row."""
    place = [pc.add(pc.multiply(t.column(FILE), 1 << 40), t.column(ROW)) for t in (rows, some)]
    return as_array(pc.is_in(place[0], value_set=as_array(place[1])))
