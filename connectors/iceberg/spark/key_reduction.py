"""One change per key, where the changes of a key come in several Kafka partitions: the one that is last in the source.

Tasks reduce their own partitions; here those of a cycle meet, and meet what the table says of rows that are there. A
change that is older than a truncate, or than the row in the table, is left out: a partition may lag behind the others.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.iceberg.spark.cycle_completion import FILE, ROW, CycleCompletion
from connectors.iceberg.spark.key_join import NotJoinable
from connectors.iceberg.spark.row_writer import RowWriter
from connectors.iceberg.spark.staged_columns import read_staged
from connectors.iceberg.spark.staged_keys import not_ordered
from connectors.iceberg.spark.table_files import TableFiles
from connectors.iceberg.spark.table_reader import TableReader
from connectors.iceberg.staging.columns import any_true, as_array
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from connectors.iceberg.spark.commit_request import CommitRequest

log = logging.getLogger(__name__)

TRUNCATED = "connect-py.truncated."  # and the connect group id: property that says where the last truncate stood
_RANK = "__connect_py_rank"
_DELETES, _REST = "0", "1"  # of one position in the source, the delete comes first: its key was changed


class KeyReduction:
    """For one request with ordering columns."""

    def __init__(
        self,
        request: CommitRequest,
        properties: Mapping[str, str],
        reader: TableReader,
        writer: RowWriter,
        files: TableFiles,
    ) -> None:
        """`properties`: the table's."""
        self._request = request
        self._reader = reader
        self._writer = writer
        self._files = files
        self._keys = list(request.key_columns)
        self._property = TRUNCATED + request.property_key.rpartition("ledger.")[2]
        self.older = 0  # changes that were left out because a truncate, or the row in the table, is later
        self._known = properties.get(self._property, "")  # a place of truncates before

    def reduce(self) -> CommitRequest:
        """The request with one change per key at most.

        Raises:
            DuplicateKeyError: Nothing says which of a key's changes is the last.
            CatalogUnavailableError: Files cannot be read, or the catalog does not answer.
            OSError: Files cannot be written.
        """
        request = self._request
        truncates = [file for file in request.files if file.kind is StagedKind.TRUNCATES]
        left = [file for file in request.files if file.kind is StagedKind.LEFT]
        history = [file for file in request.files if file.kind is StagedKind.HISTORY]
        others = (StagedKind.TRUNCATES, StagedKind.LEFT, StagedKind.HISTORY)
        staged = [file for file in request.files if file.kind not in others]
        limit = max([self._known, *(file.order for file in truncates)])
        if truncates and limit:
            staged += self._later(limit)
        if not staged:
            return self._placed(request, truncates, limit)
        changes = self._changes(staged)

        def divided(some: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
            return self._divided(some, limit, compare=not truncates)

        changes, lost = divided(changes)
        self.older = sum(part.num_rows for part in lost)
        if self.older:
            log.info(
                "table %s: %d changes are older than a truncate or than the rows that are there: they are left out",
                request.table, self.older, extra={"action": "older_changes", "table": request.table},
            )  # fmt: skip
        beaten = self._beaten(changes, staged)
        if beaten is not None:
            lost.append(changes.filter(beaten))
        completion = CycleCompletion(self._reader, self._writer, self._files, self._keys)
        completed = completion.complete(staged, changes, beaten, history, lambda some: divided(some)[0])
        gone = pa.concat_tables([part.select([FILE, ROW]) for part in [*lost, completed.replaced]])
        staged = [*(self._without(staged, gone) if gone.num_rows else staged), *completed.made]
        files = [*truncates[:1], *left, *completed.left, *staged]
        return self._placed(dataclasses.replace(request, files=files), truncates, limit)

    def _divided(self, changes: pa.Table, limit: str, *, compare: bool) -> tuple[pa.Table, list[pa.Table]]:
        """The changes that count, and those that are older than a truncate or, if `compare`, than the table's rows."""
        old = pc.and_(pc.less(changes.column(ORDER), limit), pc.not_equal(changes.column(ORDER), ""))
        lost = [changes.filter(old)] if any_true(as_array(old)) else []
        changes = changes.filter(pc.invert(old)) if lost else changes
        behind = self._behind_the_table(changes) if compare else None
        if behind is not None:
            lost.append(changes.filter(behind))
            changes = changes.filter(pc.invert(behind))
        return changes, lost

    def _placed(self, request: CommitRequest, truncates: Sequence[StagedFile], limit: str) -> CommitRequest:
        """With the place of a truncate as a property of the table: rows of a partition that lags are older."""
        if not truncates or limit == self._known:
            return request
        return dataclasses.replace(request, properties={**request.properties, self._property: limit})

    def _later(self, limit: str) -> list[StagedFile]:
        """Rows of the table that are later than a truncate, staged anew."""
        try:
            found = list(self._reader.later(limit))
        except NotJoinable as why:
            log.warning("table %s is emptied, with what came after the truncate: %s", self._request.table, why)
            return []
        return list(self._writer.rows(pa.concat_tables(found))) if found else []

    def _changes(self, staged: Sequence[StagedFile]) -> pa.Table:
        """Key columns, `ORDER`, `_RANK`, and where the row is, of every staged row."""
        keys = [self._reader.schema.field(name) for name in self._keys]
        parts = []
        for number, file in enumerate(staged):
            with self._files.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
                read = read_staged(parquet, keys, ORDER)
            rank = _DELETES if file.kind is StagedKind.DELETES else _REST
            columns = [self._reader.compared(name, read.column(name)) for name in self._keys]
            columns += [as_array(read.column(ORDER)).fill_null(""), pa.repeat(rank, len(read))]
            columns += [pa.repeat(pa.scalar(number, pa.int64()), len(read)), pa.array(range(len(read)), pa.int64())]
            parts.append(pa.table(columns, names=[*self._keys, ORDER, _RANK, FILE, ROW]))
        return pa.concat_tables(parts, promote_options="permissive")

    def _behind_the_table(self, changes: pa.Table) -> pa.ChunkedArray | None:
        """The changes that are older than the row in the table."""
        keys = changes.filter(pc.not_equal(changes.column(ORDER), ""))
        try:
            found = [part for part in self._reader.matching(keys, [ORDER]) if part.column(ORDER).null_count < len(part)]
        except NotJoinable as why:
            log.info("table %s: changes are not compared with its rows: %s", self._request.table, why)
            return None
        if not found:
            return None
        rows = pa.concat_tables(found)
        plain = [self._reader.compared(name, rows.column(name)) for name in self._keys]
        there = pa.table([*plain, rows.column(ORDER)], names=[*self._keys, "there"])
        there = there.group_by(self._keys, use_threads=False).aggregate([("there", "max")])
        joined = changes.join(there, self._keys, join_type="inner", use_threads=False)
        older = pc.and_(
            pc.greater(joined.column("there_max"), joined.column(ORDER)), pc.not_equal(joined.column(ORDER), "")
        )  # fmt: skip
        older = joined.filter(older.combine_chunks().fill_null(False))
        return _is_one_of(changes, older) if older.num_rows else None

    def _beaten(self, changes: pa.Table, staged: Sequence[StagedFile]) -> pa.ChunkedArray | None:
        """The changes of keys that have a later one; None: every key has one change."""
        counted = changes.group_by(self._keys, use_threads=False).aggregate([([], "count_all")])
        if counted.num_rows == changes.num_rows:
            return None
        place = pc.binary_join_element_wise(changes.column(ORDER), changes.column(_RANK), "\x00")
        placed = changes.append_column("place", place)
        last = placed.group_by(self._keys, use_threads=False).aggregate([("place", "max"), ([], "count_all")])
        several = last.filter(pc.greater(last.column("count_all"), 1))
        joined = placed.join(several, self._keys, join_type="inner", use_threads=False)
        winners = joined.filter(pc.equal(joined.column("place"), joined.column("place_max")))
        unsaid = pc.equal(winners.column(ORDER), "")
        if winners.num_rows > several.num_rows or any_true(as_array(unsaid)):
            raise not_ordered(
                self._request.table, self._keys, joined, [staged[i] for i in as_array(joined.column(FILE)).to_pylist()]
            )
        beaten = joined.filter(pc.less(joined.column("place"), joined.column("place_max")))
        return _is_one_of(changes, beaten)

    def _without(self, staged: Sequence[StagedFile], lost: pa.Table) -> list[StagedFile]:
        """The files without the rows that lost; those that lose some are written anew."""
        left = []
        for number, file in enumerate(staged):
            rows = as_array(lost.filter(pc.equal(lost.column(FILE), number)).column(ROW))
            if not len(rows):
                left.append(file)
                continue
            if len(rows) == file.rows:
                continue
            with self._files.open(file.path) as opened:
                whole = pq.read_table(opened, use_threads=False)
            places = pa.array(range(len(whole)), pa.int64())
            uri, size = self._writer.again(whole.filter(pc.invert(pc.is_in(places, value_set=rows))))
            left.append(dataclasses.replace(file, path=uri, rows=file.rows - len(rows), size=size))
        return left


def _is_one_of(changes: pa.Table, some: pa.Table) -> pa.ChunkedArray:
    """Which rows of `changes` are in `some`, by file and row."""
    names = [FILE, ROW]
    marked = some.select(names).append_column("marked", pa.repeat(pa.scalar(True), some.num_rows))
    numbered = changes.select(names).append_column("at", pa.array(range(changes.num_rows), pa.int64()))
    joined = numbered.join(marked, names, join_type="left outer", use_threads=False).sort_by("at")
    return joined.column("marked").fill_null(False)
