"""`CycleRows`: the staged files of one cycle as data files of the table, and as sources of its `MERGE`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from connectors.iceberg.commit_request import CommitRequest
from connectors.iceberg.errors import DuplicateKeyError, TableUnsuitableError
from connectors.iceberg.spark.cycle_changes import CycleChanges, open_pairs, open_pairs_key
from connectors.iceberg.spark.cycle_order import FILE, CycleOrder, UnorderedKeysError
from connectors.iceberg.spark.cycle_table import CycleTable
from connectors.iceberg.spark.iceberg_java import JavaTable
from connectors.iceberg.spark.merge_statement import Source, last_deletes
from connectors.iceberg.spark.sql_names import quoted, relation
from connectors.iceberg.spark.staged_rows import content_file, data_file, staged_again, staged_relation
from connectors.iceberg.staging.staged_changes import CHANGE, PARTIAL
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.staging.types import ORDER
from connectors.iceberg.table import StagedFile, StagedKind, WriteMode
from connectors.iceberg.table_metadata import TableMetadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_NAMED = 3  # keys that an error message shows


class CycleRows:
    """For one attempt: prepared once, on one head."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        table: JavaTable,
        metadata: TableMetadata,
        request: CommitRequest,
        target: str | None,
        stack: ExitStack,
        lending: str | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            target: The scratch branch, from which unavailable values are taken; None: the table has no rows.
            lending: What names of branches begin with that show staged files to a Spark that is elsewhere; None: the
                `MERGE` runs in this one.
            stack: Owns the relations of staged files, for as long as the statements run.
        """
        self._spark = spark
        self._catalog = catalog
        self._table = table
        self._metadata = metadata
        self._request = request
        self._target = target
        self._stack = stack
        self._lending = lending
        self.data_files: list[Any] = []  # Java's
        self.written: list[Any] = []  # those of `data_files` that were written here
        self.changes: list[Source] = []  # what the MERGE reads
        self.order: str | None = None  # the column that tells the order of rows
        self.properties: dict[str, str] = {}  # of the table, to be set with the commit
        self.summary: dict[str, str] = {}  # of the snapshot
        self.added_rows = 0
        self._reads_table = False
        self.unmatched = 0  # completed rows of which some value was found nowhere
        self.older = 0  # changes that came too late by the order that the source tells

    @property
    def reads_table(self) -> bool:
        """Whether the rows depend on what the table had at the head that was read."""
        return self._reads_table

    def prepare(self, *, whole: bool) -> None:
        """Check keys, complete rows, and fill the members above. `whole`: the MERGE is to insert the rows itself.

        Raises:
            DuplicateKeyError: A key is staged twice, and nothing says which change is newer.
            TableUnsuitableError: The table lacks a key column.
        """
        files = [file for file in self._request.files if file.path]
        rows = [file for file in files if file.kind is StagedKind.ROWS]
        if self._request.mode is WriteMode.MERGE and self._request.files:
            self._check_key_columns()
            truncated = any(file.kind is StagedKind.TRUNCATES for file in self._request.files)
            target = None if truncated else self._target
            cycle = CycleTable(self._spark, self._table, self._metadata, self._request, target, self._stack)
            if cycle.ordered:
                self.order = ORDER
                rows = self._ordered(cycle, files, rows)
            else:
                changes = [file for file in files if file.kind is not StagedKind.INSERTS]
                if len({_kafka_partition(file) for file in changes}) > 1:
                    self._check_duplicates(cycle, changes)
                self._complete(cycle, changes, None)
                self._insert_missing(cycle, files)
            if self._target is not None:
                self._name_sources(files, rows, whole=whole)
        elif self._request.mode is WriteMode.MERGE:
            key = self._request.property_key
            if (path := open_pairs(self._metadata, key, self._request.ref)) is not None:
                self.summary = {open_pairs_key(key): path}
        self.added_rows = sum(file.rows for file in rows) + sum(int(file.recordCount()) for file in self.written)
        if not whole:
            self.data_files = [data_file(self._table, self._metadata, file) for file in rows] + self.written

    def _insert_missing(self, cycle: CycleTable, files: Sequence[StagedFile]) -> None:
        """Write the rows of replays whose key is neither in the table nor in this cycle."""
        inserts = [file for file in files if file.kind is StagedKind.INSERTS]
        if not inserts:
            return
        keys = list(cycle.keys)
        rows = cycle.staged(inserts).dropDuplicates(keys)
        changes = [file for file in files if file.kind is not StagedKind.INSERTS]
        taken = [_last_changes(cycle.staged(changes))] if changes else []
        if cycle.target is not None:
            taken.append(self._spark.table(cycle.target))
        for others in taken:
            rows = rows.join(others.select(*map(quoted, keys)), keys, "left_anti")
        made = cycle.write(rows)
        self.written += made
        self._reads_table = True
        staged = sum(file.rows for file in inserts)
        log.info(
            "table %s: %d of %d rows of replays are inserted, the keys of the others are there",
            self._request.table, sum(int(file.recordCount()) for file in made), staged,
            extra={"action": "replays_inserted", "table": self._request.table},
        )  # fmt: skip

    def _ordered(self, cycle: CycleTable, files: Sequence[StagedFile], rows: Sequence[StagedFile]) -> list[StagedFile]:
        """Keep the last change per key; returns the files that join the table as they are."""
        order = CycleOrder(cycle, files)
        self.properties = order.properties
        files, rows = [*files], [*rows]
        if later := self._rows_after_truncate(cycle, order):
            files, rows = [*files, *later], [*rows, *later]
        try:
            some_left_out = bool(files) and order.judge(files)
        except UnorderedKeysError as error:
            raise _not_ordered(self._request, error.rows) from None
        self.older = order.older
        self._complete(cycle, files, order)
        if not some_left_out or not rows:
            return list(rows)
        self._reads_table = True
        self.written += cycle.write(order.last_rows(rows))
        return []

    def _check_key_columns(self) -> None:
        names = self._metadata.column_names()
        for key in self._request.key_columns:
            if key not in names:
                raise TableUnsuitableError(
                    self._request.table, f"has no key column {key} (any more): rename it back, or set other id-columns"
                )

    def _rows_after_truncate(self, cycle: CycleTable, order: CycleOrder) -> list[StagedFile]:
        """Rows of the table that are later than this cycle's truncate, staged anew: a partition lagged behind."""
        head = self._metadata.head(self._request.ref)
        if not cycle.truncated or head is None:
            return []
        table = relation(self._catalog, self._request.table)
        rows = self._spark.sql(f"SELECT * FROM {table} VERSION AS OF {head['snapshot-id']}")
        found = order.later_rows(rows)
        if found is None:
            return []
        made = [self._table.content_file(file) for file in cycle.write(found)]
        return [staged_again(content, self._metadata) for content in made]

    def _name_sources(self, files: Sequence[StagedFile], rows: Sequence[StagedFile], *, whole: bool) -> None:
        upserts = [content_file(file) for file in rows]
        deletes = [content_file(file) for file in files if file.kind is StagedKind.DELETES]
        upserts += [self._table.content_file(file) for file in self.written]
        relations = iter(self._sources([files for files in (upserts, deletes) if files]))
        named = next(relations) if upserts else None
        if named is not None:
            self.changes.append(Source(named, False))
        if deletes:
            removed = next(relations)
            if whole and self.order is not None:
                removed = last_deletes(removed, named, self._request.key_columns, self.order)
            self.changes.append(Source(removed, True))

    def _sources(self, groups: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
        """Relations for the Spark that runs the `MERGE`."""
        if self._lending is None or not groups:
            return [self._relation(files) for files in groups]
        branches = {f"{self._lending}s{number}": files for number, files in enumerate(groups)}
        self._table.stage_on_branches(branches)
        return [relation(self._catalog, self._request.table, branch) for branch in branches]

    def _relation(self, files: Sequence[Mapping[str, Any]]) -> str:
        return self._stack.enter_context(staged_relation(self._table, files))

    def _complete(self, cycle: CycleTable, files: Sequence[StagedFile], order: CycleOrder | None) -> None:
        changes = CycleChanges(cycle, files, order)
        self.written = changes.complete()
        self.summary = changes.summary
        self._reads_table |= changes.reads_table
        self.unmatched = changes.unmatched

    def _check_duplicates(self, cycle: CycleTable, files: Sequence[StagedFile]) -> None:
        """One aggregation over the staged keys."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        keys = [F.col(quoted(key)) for key in self._request.key_columns]
        rows = _last_changes(cycle.staged(files)).select(*keys, F.input_file_name().alias(FILE))
        counted = rows.groupBy(*keys).agg(F.count("*").alias("changes"))
        found = counted.where("changes > 1")
        if not found.isEmpty():
            raise _not_ordered(self._request, rows.join(found, list(self._request.key_columns), "left_semi"))


def _last_changes(rows: DataFrame) -> DataFrame:
    """Of staged files, the rows that are the last change of their key: all but those that complete others."""
    return rows.where(f"coalesce({PARTIAL}, {CHANGE} IS NULL)")


def _kafka_partition(file: StagedFile) -> object:
    """The Kafka partition that a file's name tells; the path where it tells none."""
    name = StagedFileName.decode(file.path.rpartition("/")[2])
    return file.path if name is None else name.partition


def _not_ordered(request: CommitRequest, rows: DataFrame) -> DuplicateKeyError:
    """`rows`: the keys that are staged more than once, and the files of each."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    keys = [F.col(quoted(key)) for key in request.key_columns]
    grouped = rows.groupBy(*keys).agg(F.collect_set(FILE).alias("files"))
    found = grouped.limit(_NAMED + 1).collect()
    named = []
    for row in found[:_NAMED]:
        key = tuple(row[name] for name in request.key_columns)
        names = [StagedFileName.decode(path.rpartition("/")[2]) for path in row["files"]]
        where = sorted({"?" if name is None else str(name.partition) for name in names})
        named.append(f"{key} in partitions {' and '.join(where)}")
    count = f"more than {_NAMED}" if len(found) > _NAMED else str(len(found))
    return DuplicateKeyError(
        request.table,
        f"{count} keys are staged more than once in one cycle, the first are {', '.join(named)}: nothing says which "
        "change is newer (iceberg.ext.ordering-columns would)",
    )
