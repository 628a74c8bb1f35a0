"""`CycleRows`: the staged files of one cycle as data files of the table, and as sources of its `MERGE`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import quoted, relation
from connectors.iceberg.catalog.staged_rows import content_file, data_file, staged_again
from connectors.iceberg.commit.cycle_order import FILE, CycleOrder, UnorderedKeysError
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.merge_statement import Source, last_deletes, replaced_rows
from connectors.iceberg.commit.partial_rows import CycleChanges
from connectors.iceberg.commit.rules.cycle_step import transformed
from connectors.iceberg.commit.rules.expectations import ExpectationCheck
from connectors.iceberg.commit.rules.rejected_rows import write_rejected
from connectors.iceberg.config.cycle_step import STAGED, CycleStep
from connectors.iceberg.errors import DuplicateKeyError, TableUnsuitableError
from connectors.iceberg.faults import fault_point
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.schema.table import StagedFile, StagedKind, WriteMode
from connectors.iceberg.staging.staged_changes import CHANGE, PARTIAL
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.staging.types import ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_NAMED = 3  # keys that an error message shows


class CycleRows:
    """For one attempt: prepared once, on one head."""

    def __init__(self, cycle: CycleTable, lending: str | None = None) -> None:
        """Read nothing yet.

        Args:
            cycle: The table at that head.
            lending: What names of branches begin with that show staged files to a Spark that is elsewhere; None: the
                `MERGE` runs in this one.
        """
        self._cycle = cycle
        self._request = cycle.request
        self._lending = lending
        self.data_files: list[Any] = []  # Java's
        self.written: list[Any] = []  # those of `data_files` that were written here
        self.superseded: list[Any] = []  # written here first, and again without the rows that are left out
        self.check = ExpectationCheck(cycle.request.table, cycle.request.expectations)
        self.changes: list[Source] = []  # what the MERGE reads
        self.order: str | None = None  # the column that tells the order of rows
        self.properties: dict[str, str] = {}  # of the table, to be set with the commit
        self.summary: dict[str, str] = {}  # of the snapshot
        self.added_rows = 0
        self.reads_table = False  # whether the rows depend on what the table had at the head that was read
        self.unmatched = 0  # completed rows of which some value was found nowhere
        self._changed: str | None = None  # the relation of the rows that the commit adds, where they are looked at
        self.older = 0  # changes that came too late by the order that the source tells

    def prepare(self, *, whole: bool) -> None:
        """Check keys, complete rows, and fill the members above. `whole`: the MERGE is to insert the rows itself.

        Raises:
            DuplicateKeyError: A key is staged twice, and nothing says which change is newer.
            TableUnsuitableError: The table lacks a key column.
            ExpectationFailedError: See `ExpectationCheck`.
        """
        cycle, request = self._cycle, self._request
        files = [file for file in request.files if file.path]
        rows = [file for file in files if file.kind is StagedKind.ROWS]
        if request.mode is WriteMode.MERGE and request.files:
            self._check_key_columns()
            if cycle.ordered:
                self.order = ORDER
                rows = self._ordered(files, rows)
            else:
                changes = [file for file in files if file.kind is not StagedKind.INSERTS]
                if len({_kafka_partition(file) for file in changes}) > 1:
                    self._check_duplicates(changes)
                self._complete(changes, None)
                self._insert_missing(files, changes)
        elif request.mode is WriteMode.MERGE:
            self._complete([], None)  # open pairs stay open
        if request.step is not None and (rows or self.written):
            rows = self._transformed(request.step, rows)
        if request.expectations and (rows or self.written):
            rows = self._as_expected(rows)
        if request.aggregates and (rows or self.written):
            self._changed = self._relation_of(rows)
            self.reads_table = True
        if request.mode is WriteMode.MERGE and request.files and cycle.target is not None:
            self._name_sources(files, rows, whole=whole)
        self.added_rows = sum(file.rows for file in rows) + _count(self.written)
        if not whole:
            self.data_files = [data_file(cycle.table, cycle.metadata, file) for file in rows] + self.written

    def ask(self, engine: EngineName) -> None:
        """Run the queries of expectations, once the MERGE has run on the scratch branch.

        Raises:
            ExpectationFailedError, TableUnsuitableError: See `ExpectationCheck`.
        """
        if not self.check.has_queries:
            return
        cycle, head = self._cycle, self._cycle.metadata.head(self._request.ref)
        table = cycle.spark.table(relation(cycle.catalog, self._request.table))
        before = table.limit(0)
        if head is not None:
            named = relation(cycle.catalog, self._request.table)
            before = cycle.spark.sql(f"SELECT * FROM {named} VERSION AS OF {head['snapshot-id']}")
        changed = self._changed_rows()
        deletes = [file for file in self._request.files if file.path and file.kind is StagedKind.DELETES]
        deleted = (cycle.staged(deletes) if deletes else table.limit(0)).select(
            *map(quoted, cycle.keys or table.columns)
        )
        after = self._rows_after(engine, before, changed)
        self.check.ask(cycle.spark, {"changed": changed, "deleted": deleted, "before": before, "after": after})

    def views(self, engine: EngineName) -> dict[str, DataFrame]:
        """What aggregates see, once the MERGE has run: the table as it is now, which the swap compares with the head.

        Rows of before have the present columns so, which a look at the head's snapshot would not show.
        """
        cycle, request = self._cycle, self._request
        table = relation(cycle.catalog, request.table, request.ref if request.ref in cycle.branches else None)
        before, changed = cycle.own_columns(cycle.spark.table(table)), self._changed_rows()
        removed = before if engine is EngineName.OVERWRITE else before.limit(0)
        if self.changes and cycle.target is not None:
            statement = replaced_rows(table, before.columns, cycle.keys, self.changes, self.order)
            removed = cycle.spark.sql(statement)
        after = self._rows_after(engine, before, changed)
        return {STAGED: changed, "removed": removed, "before": before, "after": after}

    def _changed_rows(self) -> DataFrame:
        cycle = self._cycle
        if self._changed is None:
            return cycle.own_columns(cycle.spark.table(relation(cycle.catalog, self._request.table))).limit(0)
        return cycle.own_columns(cycle.spark.table(self._changed))

    def _rows_after(self, engine: EngineName, before: DataFrame, changed: DataFrame) -> DataFrame:
        cycle = self._cycle
        merged = before if cycle.target is None else cycle.own_columns(cycle.spark.table(cycle.target))
        match engine:
            case EngineName.FULL_MERGE:
                return merged
            case EngineName.OVERWRITE:
                return changed
        return merged.unionByName(changed)

    def _transformed(self, step: CycleStep, rows: Sequence[StagedFile]) -> list[StagedFile]:
        """Have the user's step make other rows; returns the files that join the table as they are."""
        cycle = self._cycle
        fault_point("before_cycle_step")
        with transformed(cycle, step, cycle.own_columns(cycle.spark.table(self._relation_of(rows)))) as made:
            self.superseded, self.written = [*self.superseded, *self.written], cycle.write(made)
        self.reads_table = True  # perhaps
        fault_point("after_cycle_step")
        return []

    def _as_expected(self, rows: Sequence[StagedFile]) -> list[StagedFile]:
        """Leave out rows that are not as expected; returns the files that join the table as they are."""
        cycle = self._cycle
        self._changed = self._relation_of(rows)
        kept = self.check.leave_out(cycle.spark.table(self._changed))
        if kept is None:
            return list(rows)
        if self.check.rejected is not None:
            self.properties = {**self.properties, **write_rejected(cycle, self.check.rejected)}
        self.superseded, self.written = [*self.superseded, *self.written], cycle.write(kept)
        self._changed = self._relation_of([]) if self.written else None
        return []

    def _relation_of(self, rows: Sequence[StagedFile]) -> str:
        """All rows that the commit adds."""
        table = self._cycle.table
        files = [*map(content_file, rows), *map(table.content_file, self.written)]
        return self._cycle.stack.enter_context(table.staged(files))

    def _insert_missing(self, files: Sequence[StagedFile], changes: Sequence[StagedFile]) -> None:
        """Write the rows of replays whose key is neither in the table nor in this cycle."""
        inserts = [file for file in files if file.kind is StagedKind.INSERTS]
        if not inserts:
            return
        cycle, keys = self._cycle, list(self._cycle.keys)
        rows = cycle.staged(inserts).dropDuplicates(keys)
        taken = [_last_changes(cycle.staged(changes))] if changes else []
        if cycle.target is not None:
            taken.append(cycle.spark.table(cycle.target))
        for others in taken:
            rows = rows.join(others.select(*map(quoted, keys)), keys, "left_anti")
        made = cycle.write(rows)
        self.written += made
        self.reads_table = True
        log.info(
            "table %s: %d of %d rows of replays are inserted, the keys of the others are there",
            self._request.table, _count(made), sum(file.rows for file in inserts),
            extra={"action": "replays_inserted", "table": self._request.table},
        )  # fmt: skip

    def _ordered(self, files: Sequence[StagedFile], rows: Sequence[StagedFile]) -> list[StagedFile]:
        """Keep the last change per key; returns the files that join the table as they are."""
        order = CycleOrder(self._cycle)
        self.properties = order.properties
        later = self._rows_after_truncate(order)
        files, rows = [*files, *later], [*rows, *later]
        try:
            some_left_out = bool(files) and order.judge(files)
        except UnorderedKeysError as error:
            raise _not_ordered(self._request, error.rows) from None
        self.older = order.older
        self._complete(files, order)
        if not some_left_out or not rows:
            return list(rows)
        self.reads_table = True
        self.written += self._cycle.write(order.last_rows(rows))
        return []

    def _check_key_columns(self) -> None:
        names = self._cycle.metadata.column_names()
        for key in self._request.key_columns:
            if key not in names:
                raise TableUnsuitableError(
                    self._request.table, f"has no key column {key} (any more): rename it back, or set other id-columns"
                )

    def _rows_after_truncate(self, order: CycleOrder) -> list[StagedFile]:
        """Rows of the table that are later than this cycle's truncate, staged anew: a partition lagged behind."""
        cycle, head = self._cycle, self._cycle.metadata.head(self._request.ref)
        if not cycle.truncated or head is None:
            return []
        table = relation(cycle.catalog, self._request.table)
        rows = cycle.spark.sql(f"SELECT * FROM {table} VERSION AS OF {head['snapshot-id']}")
        found = order.later_rows(rows)
        if found is None:
            return []
        return [staged_again(cycle.table.content_file(file), cycle.metadata) for file in cycle.write(found)]

    def _name_sources(self, files: Sequence[StagedFile], rows: Sequence[StagedFile], *, whole: bool) -> None:
        upserts = [content_file(file) for file in rows]
        deletes = [content_file(file) for file in files if file.kind is StagedKind.DELETES]
        upserts += [self._cycle.table.content_file(file) for file in self.written]
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
        cycle = self._cycle
        if self._lending is None or not groups:
            return [cycle.stack.enter_context(cycle.table.staged(files)) for files in groups]
        branches = {f"{self._lending}s{number}": files for number, files in enumerate(groups)}
        cycle.table.stage_on_branches(branches)
        return [relation(cycle.catalog, self._request.table, branch) for branch in branches]

    def _complete(self, files: Sequence[StagedFile], order: CycleOrder | None) -> None:
        changes = CycleChanges(self._cycle, files, order)
        self.written = changes.complete()
        self.summary = changes.summary
        self.reads_table |= changes.reads_table
        self.unmatched = changes.unmatched

    def _check_duplicates(self, files: Sequence[StagedFile]) -> None:
        """One aggregation over the staged keys."""
        keys = [quoted(key) for key in self._cycle.keys]
        rows = _last_changes(self._cycle.staged(files)).selectExpr(*keys, f"input_file_name() AS {FILE}")
        found = rows.groupBy(*keys).agg({FILE: "count"}).where(f"`count({FILE})` > 1")
        if not found.isEmpty():
            raise _not_ordered(self._request, rows.join(found, list(self._cycle.keys), "left_semi"))


def _count(files: Sequence[Any]) -> int:
    """Rows of Java's data files."""
    return sum(int(file.recordCount()) for file in files)


def _last_changes(rows: DataFrame) -> DataFrame:
    """Of staged files, the rows that are the last change of their key: all but those that complete others."""
    return rows.where(f"coalesce({PARTIAL}, {CHANGE} IS NULL)")


def _kafka_partition(file: StagedFile) -> object:
    """The Kafka partition that a file's name tells; the path where it tells none."""
    name = StagedFileName.decode(file.path.rpartition("/")[2])
    return file.path if name is None else name.partition


def _not_ordered(request: CommitRequest, rows: DataFrame) -> DuplicateKeyError:
    """`rows`: the keys that are staged more than once, and the files of each."""
    grouped = rows.groupBy(*map(quoted, request.key_columns)).agg({FILE: "collect_set"})
    found = grouped.limit(_NAMED + 1).collect()
    named = []
    for row in found[:_NAMED]:
        key = tuple(row[name] for name in request.key_columns)
        names = [StagedFileName.decode(path.rpartition("/")[2]) for path in row[f"collect_set({FILE})"]]
        where = sorted({"?" if name is None else str(name.partition) for name in names})
        named.append(f"{key} in partitions {' and '.join(where)}")
    count = f"more than {_NAMED}" if len(found) > _NAMED else str(len(found))
    return DuplicateKeyError(
        request.table,
        f"{count} keys are staged more than once in one cycle, the first are {', '.join(named)}: nothing says which "
        "change is newer (iceberg.ext.ordering-columns would)",
    )
