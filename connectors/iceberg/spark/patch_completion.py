"""Rows with unavailable values become whole rows: what the source did not send is read from the table, with Arrow.

A row is looked up under its own key, or, if its key was changed, under the one it had: among the rows that were left in
this cycle, in the table as it is, then as it was before rows were removed from it, because the delete of the old key
may have been committed in an earlier cycle. What is found nowhere is null, and counted.

Rows that were left are those that a cycle changed before it changed their key: no snapshot of the table ever held them.
They are kept in a file of their own, which the summary of the snapshot names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.iceberg.spark.errors import TableUnsuitableError
from connectors.iceberg.spark.key_join import NotJoinable
from connectors.iceberg.spark.row_writer import RowWriter
from connectors.iceberg.spark.staged_columns import staged_names, with_order_under
from connectors.iceberg.spark.staged_keys import StagedKeys
from connectors.iceberg.spark.table_files import TableFiles
from connectors.iceberg.spark.table_reader import TableReader
from connectors.iceberg.staging.columns import any_true, as_array
from connectors.iceberg.staging.completion import OLD_KEY_COLUMN
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.staging.projection import project
from connectors.iceberg.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from connectors.iceberg.spark.commit_request import CommitRequest

log = logging.getLogger(__name__)

LARGEST_BYTES = 256 << 20  # of staged patches, compressed; more is work for Spark
FLUSH_BYTES = 128 << 20  # of values found, before they are written
_PATCH, _NUMBER = "__connect_py_patch", "__connect_py_row"


@dataclass(slots=True)
class _Patches:
    """The rows of one staged file."""

    rows: pa.Table  # the table's columns, and the order if there is one
    keys: pa.Table  # under which the rows are looked up, and `_PATCH`: the row, counted over all files
    lacking: tuple[str, ...]
    moved: bool
    optional: bool
    first: int  # number of the first row


class PatchCompletion:
    """For one request."""

    def __init__(self, request: CommitRequest, reader: TableReader, writer: RowWriter, files: TableFiles) -> None:
        self._request = request
        self._reader = reader
        self._writer = writer
        self._files = files
        self._required = {field.name for field in reader.schema if not field.nullable}
        self._keys = list(request.key_columns)
        self._truncated = any(file.kind is StagedKind.TRUNCATES for file in request.files)
        self._made: list[StagedFile] = []
        self._left: pa.Table | None = None
        self._take: Callable[[pa.Table], None] = self._write  # what becomes of completed rows
        self.unmatched = 0  # rows of which some value was found nowhere

    def left(self, files: Sequence[StagedFile]) -> str | None:
        """Keep the rows that were left in this cycle, for this one and later ones; returns the path of their file.

        Errors as for `complete`.
        """
        whole: list[pa.Table] = []
        parts: list[_Patches] = []
        for file in files:
            part = self._read(file, sum(each.rows.num_rows for each in parts))
            if file.unavailable:
                parts.append(part)
            else:
                whole.append(part.rows)
        done: set[int] = set()
        if parts:
            moved = [part for part in parts if part.moved]
            self._take = whole.append
            known = -1
            while moved and whole and len(done) > known:  # a key that was changed again and again is known step by step
                known = len(done)
                self._write_left(moved, _concatenated(whole), done)
            if not self._truncated:
                self._look_up(parts, None, done)
                self._look_back(moved, done)
            whole += [
                part.rows.take(pc.subtract(_without(part.keys, done).column(_PATCH), part.first)) for part in parts
            ]
            self._take = self._write
        if not whole:
            return None
        names = self._reader.schema.names
        self._left = _concatenated([rows.select([*names, *_order_of(rows)]) for rows in whole])
        return self._writer.again(self._left)[0]

    def complete(self, patches: Sequence[StagedFile]) -> list[StagedFile]:
        """The files that stand for these patches from now on. May be called again with fewer of them.

        Raises:
            NotJoinable: The table, or so many rows, are not for this process.
            TableUnsuitableError: A required column would be null.
            CatalogUnavailableError: Files cannot be read, or the catalog does not answer.
            OSError: Files cannot be written.
        """
        self._made, self.unmatched = [], 0
        if sum(file.size for file in patches) > LARGEST_BYTES:
            raise NotJoinable(f"more than {LARGEST_BYTES >> 20} MB of rows with unavailable values are staged")
        parts: list[_Patches] = []
        for file in patches:
            parts.append(self._read(file, sum(part.rows.num_rows for part in parts)))
        done: set[int] = set()
        moved = [part for part in parts if part.moved]
        if self._left is not None and moved:
            self._write_left(moved, self._left, done)
        if not self._truncated:  # else what the table has is from before
            known = set(done)
            self._look_up(parts, None, done)
            self._tell_of_living(moved, done - known)
            self._look_back(moved, done)
        self._write_unmatched(parts, done)
        return self._made

    def _read(self, file: StagedFile, first: int) -> _Patches:
        with self._files.open(file.path) as opened:
            rows = pq.read_table(opened, use_threads=False)
        names = staged_names(rows.schema, [self._reader.schema.field(key) for key in self._keys])
        names = [OLD_KEY_COLUMN + name for name in names] if file.moved else names
        columns = [self._reader.compared(key, rows.column(name)) for key, name in zip(self._keys, names, strict=True)]
        numbers = pa.array(range(first, first + len(rows)), pa.int64())
        keys = pa.table([*columns, numbers], names=[*self._keys, _PATCH])
        if file.moved:
            rows = rows.drop_columns(names)
        schema = self._reader.nullable
        if ORDER in rows.column_names:
            schema = schema.append(self._reader.order_field)
            rows = with_order_under(rows, self._reader.order_field)
        return _Patches(project(rows, schema), keys, tuple(file.unavailable), file.moved, file.optional, first)

    # --- finding

    def _look_up(
        self, parts: Sequence[_Patches], snapshot: str | None, done: set[int], matches: dict[str, bytes] | None = None
    ) -> None:
        """Complete what the table has at a snapshot (None: now) of these rows, if they are not done.

        `matches`: of `TableReader.matching`.
        """
        if not parts:
            return
        keys = _without(_keys_of(parts), done)
        columns = sorted({name for part in parts for name in part.lacking})
        if all(_order_of(part.rows) for part in parts):
            columns.append(ORDER)
        found: list[pa.Table] = []
        for values in self._reader.matching(keys, columns, snapshot, matches):
            found.append(values)
            if sum(each.nbytes for each in found) > FLUSH_BYTES:
                self._write_found(parts, keys, pa.concat_tables(found), done)
                found = []
        if found:
            self._write_found(parts, keys, pa.concat_tables(found), done)

    def _look_back(self, moved: Sequence[_Patches], done: set[int]) -> None:
        """Look for old keys whose delete was committed before, in the table as it was before each removal."""
        missing = {number for part in moved for number in part.keys.column(_PATCH).to_pylist()} - done
        matches: dict[str, bytes] = {}
        count = len(done)
        for snapshot, left in self._reader.before_removals(left_key(self._request)) if missing else ():
            if not missing - done:
                break
            if left is not None:
                self._take_left(left, moved, done)
            if snapshot is not None:
                if len(done) > count:  # fewer keys are looked for: files without any of them stay without
                    matches = {path: rows for path, rows in matches.items() if not rows}
                    count = len(done)
                self._look_up(moved, snapshot, done, matches)

    def _take_left(self, path: str, moved: Sequence[_Patches], done: set[int]) -> None:
        """Complete what the rows that an earlier cycle left have."""
        try:
            with self._files.open(path) as opened:
                rows = pq.read_table(opened, use_threads=False)
        except FileNotFoundError:
            log.warning(
                "table %s: %s is gone, which held rows whose key was changed: clean-up of others has to spare it",
                self._request.table, path, extra={"action": "left_rows_gone", "table": self._request.table},
            )  # fmt: skip
            return
        left = project(rows, self._reader.nullable)
        for name in _order_of(rows):
            left = left.append_column(self._reader.order_field, rows.column(name))
        self._write_left(moved, left, done)

    def _write(self, rows: pa.Table) -> None:
        self._made += self._writer.rows(rows)

    # --- writing

    def _write_left(self, moved: Sequence[_Patches], left: pa.Table, done: set[int]) -> None:
        """Complete what the rows that were left have: of a key that was left several times, the last one before."""
        if ORDER in left.column_names:
            left = left.take(pc.sort_indices(as_array(left.column(ORDER)).fill_null("")))
        self._write_found(moved, _keys_of(moved), left, done, left=True)

    def _write_found(
        self, parts: Sequence[_Patches], keys: pa.Table, found: pa.Table, done: set[int], left: bool = False
    ) -> None:
        plain = pa.table([self._reader.compared(k, found.column(k)) for k in self._keys], names=self._keys)
        plain = plain.append_column(_NUMBER, pa.array(range(len(plain)), pa.int64()))
        pairs = _without(keys, done).join(plain, self._keys, join_type="inner", use_threads=False)
        pairs = _before(pairs, parts, found)
        one = "max" if left else "min"  # the table may have several, too
        pairs = pairs.group_by(_PATCH, use_threads=False).aggregate([(_NUMBER, one)])
        numbers, sources = as_array(pairs.column(_PATCH)), as_array(pairs.column(f"{_NUMBER}_{one}"))
        for part in parts:
            mine = pc.and_(
                pc.greater_equal(numbers, part.first), pc.less(numbers, part.first + part.rows.num_rows)
            )  # fmt: skip
            if not any_true(mine):
                continue
            rows = part.rows.take(pc.subtract(numbers.filter(mine), part.first))
            values = found.take(sources.filter(mine))
            for name in part.lacking:
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), values.column(name))
            self._take(rows)
        done.update(numbers.to_pylist())

    def _tell_of_living(self, moved: Sequence[_Patches], found: set[int]) -> None:
        """Say how many values are of rows that the table still has after this commit, though their key was changed.

        The partition of the old key lags behind: nobody knows yet what it did to the row before.
        """
        taken = pa.array(sorted(found), pa.int64())
        parts = [part.keys.filter(pc.is_in(part.keys.column(_PATCH), value_set=taken)) for part in moved]
        if not sum(part.num_rows for part in parts):
            return
        staged = StagedKeys(self._request, self._reader.schema, self._files).table()
        living = pa.concat_tables(parts).join(
            pa.table([self._reader.compared(key, staged.column(key)) for key in self._keys], names=self._keys),
            self._keys, join_type="left anti", use_threads=False,
        )  # fmt: skip
        if living.num_rows:
            log.warning(
                "table %s: %d rows have values of rows that are still there under another key: the change of that key "
                "was not read yet, so they may be older than they should be", self._request.table, living.num_rows,
                extra={"action": "values_of_living_rows", "table": self._request.table},
            )  # fmt: skip

    def _write_unmatched(self, parts: Sequence[_Patches], done: set[int]) -> None:
        for part in parts:
            left = _without(part.keys, done)
            if not left.num_rows or part.optional:
                continue
            self.unmatched += left.num_rows if part.lacking else 0  # its columns may be gone from the table
            required = self._required.intersection(part.lacking)
            if required:
                raise TableUnsuitableError(
                    self._request.table,
                    f"{left.num_rows} rows lack a value that the source did not send, for the required column "
                    f"{min(required)}, and the table does not have these rows",
                )
            self._take(part.rows.take(pc.subtract(left.column(_PATCH), part.first)))
        if self.unmatched:
            log.warning(
                "table %s: %d rows have values that the source did not send, and that the table does not have: they "
                "are null", self._request.table, self.unmatched,
                extra={"action": "values_unavailable", "table": self._request.table},
            )  # fmt: skip


def left_key(request: CommitRequest) -> str:
    """The summary's member that names the file of rows that were left."""
    return "connect-py.left." + request.property_key.rpartition("ledger.")[2]


def _keys_of(parts: Sequence[_Patches]) -> pa.Table:
    return pa.concat_tables([part.keys for part in parts])


def _without(keys: pa.Table, done: set[int]) -> pa.Table:
    if not done:
        return keys
    return keys.filter(pc.invert(pc.is_in(keys.column(_PATCH), value_set=pa.array(sorted(done), pa.int64()))))


def _order_of(rows: pa.Table) -> list[str]:
    """The column of the order, if the rows have one."""
    return [name for name in (ORDER,) if name in rows.column_names]


def _concatenated(parts: Sequence[pa.Table]) -> pa.Table:
    """With the order where all parts have one."""
    if all(_order_of(rows) for rows in parts):
        return pa.concat_tables(parts)
    return pa.concat_tables([rows.drop_columns(_order_of(rows)) for rows in parts])


def _before(pairs: pa.Table, parts: Sequence[_Patches], found: pa.Table) -> pa.Table:
    """The pairs of a patch and a row that was found, where both say their order, without rows that came later."""
    if not _order_of(found) or not all(_order_of(part.rows) for part in parts):
        return pairs
    told = [
        pa.table([range(part.first, part.first + part.rows.num_rows), part.rows.column(ORDER)], names=[_PATCH, ORDER])
        for part in parts
    ]
    joined = pairs.join(pa.concat_tables(told), _PATCH, join_type="inner", use_threads=False)
    order = as_array(found.column(ORDER)).take(as_array(joined.column(_NUMBER)))
    return joined.filter(pc.less_equal(order, joined.column(ORDER)).combine_chunks().fill_null(True))
