"""Step 4b: the rows that a commit adds, and the keys of the rows that it replaces.

A plain cycle takes the staged files unchanged. Rows with unavailable values are completed, rows of
replays are inserted if their key is missing, and changes that come in several partitions are
ordered; these rows are written again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.staged_rows import staged_again
from connectors.iceberg.commit.cycle_order import FILE, CycleOrder, UnorderedKeysError
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.merge_statement import MergeSource, last_deletes
from connectors.iceberg.commit.partial_rows import CycleChanges
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.errors import DuplicateKeyError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.staging.staged_changes import CHANGE, PARTIAL
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.table.table import StagedFile, StagedKind, WriteMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_SHOWN_KEYS = 3  # in an error message


@dataclass(frozen=True, slots=True)
class CycleRows:
    """The rows of one attempt."""

    staged: Sequence[StagedFile]  # files of whole rows that join the table unchanged
    deletes: Sequence[StagedFile] = ()  # files of the keys whose rows are removed
    written: Sequence[Any] = ()  # Java data files that the attempt wrote; they join the table
    order: str | None = None  # column that holds the order of the changes
    reads_table: bool = False  # the rows depend on the rows at the head
    has_unchecked_keys: bool = False  # the MERGE has to check that each key is staged once
    unmatched: int = 0  # completed rows with a value that was found nowhere
    older_changes: int = 0  # changes that were left out because the table has a later one
    summary: Mapping[str, str] = field(default_factory=dict)  # for the snapshot
    # of the table, to be set with the commit
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of rows that join the table."""
        return sum(file.rows for file in self.staged) + _count(self.written)

    @property
    def is_empty(self) -> bool:
        """Whether no rows join the table."""
        return not self.staged and not self.written


def complete_rows(cycle: CycleTable, *, rows_are_final: bool) -> CycleRows:
    """Check the keys of a cycle and complete its rows.

    Args:
        cycle: The table at the head.
        rows_are_final: No rule of the commit changes the rows, so the MERGE may check the keys.

    Raises:
        DuplicateKeyError: Two staged rows have the same key, and nothing defines their order.
        TableUnsuitableError: The table lacks a key column.
    """
    request = cycle.request
    files = [file for file in request.files if file.path]
    rows = [file for file in files if file.kind is StagedKind.ROWS]
    if request.mode is not WriteMode.MERGE:
        return CycleRows(rows)
    if not request.files:
        changes = CycleChanges(cycle, [], None)  # open pairs stay open
        return CycleRows(
            rows,
            written=changes.complete(),
            reads_table=changes.reads_table,
            summary=changes.summary,
        )
    _check_key_columns(cycle)
    if cycle.ordered:
        return _ordered_rows(cycle, files, rows)
    return _unordered_rows(cycle, files, rows, rows_are_final=rows_are_final)


def merge_sources(cycle: CycleTable, rows: CycleRows) -> list[MergeSource]:
    """Return the relations that a MERGE reads: upserted rows and deleted keys."""
    sources = []
    upserts = None
    if not rows.is_empty:
        upserts = cycle.relation_of(rows.staged, rows.written)
        sources.append(MergeSource(upserts, deletes=False))
    if rows.deletes:
        relation = cycle.relation_of(rows.deletes, [])
        if cycle.strategy is EngineName.FULL_MERGE and rows.order is not None:
            relation = last_deletes(relation, upserts, cycle.keys, rows.order)
        sources.append(MergeSource(relation, deletes=True))
    return sources


def check_duplicates(cycle: CycleTable) -> None:
    """Check that each key is staged once, with one aggregation over the staged keys.

    Raises:
        DuplicateKeyError: It names the first keys and their partitions.
    """
    keys = [quoted(key) for key in cycle.keys]
    rows = _last_changes(cycle.staged(_changes(cycle))).selectExpr(
        *keys, f"input_file_name() AS {FILE}"
    )
    duplicates = rows.groupBy(*keys).agg({FILE: "count"}).where(f"`count({FILE})` > 1")
    if not duplicates.isEmpty():
        raise _duplicate_keys(cycle.request, rows.join(duplicates, list(cycle.keys), "left_semi"))


def _changes(cycle: CycleTable) -> list[StagedFile]:
    return [
        file for file in cycle.request.files if file.path and file.kind is not StagedKind.INSERTS
    ]


def _unordered_rows(
    cycle: CycleTable,
    files: Sequence[StagedFile],
    rows: Sequence[StagedFile],
    *,
    rows_are_final: bool,
) -> CycleRows:
    """Return the rows of a cycle whose keys are staged once each: every key stays in one Kafka
    partition."""
    changes = _changes(cycle)
    deletes = [file for file in files if file.kind is StagedKind.DELETES]
    inserts = [file for file in files if file.kind is StagedKind.INSERTS]
    may_repeat_keys = len({_kafka_partition(file) for file in changes}) > 1
    is_plain = all(file.kind in (StagedKind.ROWS, StagedKind.DELETES) for file in files)
    merge_checks_keys = (
        may_repeat_keys and is_plain and rows_are_final and cycle.strategy is EngineName.MERGE
    )
    if may_repeat_keys and not merge_checks_keys:
        check_duplicates(cycle)
    partial = CycleChanges(cycle, changes, None)
    written = partial.complete()
    missing = _missing_inserts(cycle, inserts, changes)
    return CycleRows(
        rows,
        deletes,
        [*written, *missing],
        reads_table=partial.reads_table or bool(inserts),
        has_unchecked_keys=merge_checks_keys,
        unmatched=partial.unmatched,
        summary=partial.summary,
    )


def _missing_inserts(
    cycle: CycleTable, inserts: Sequence[StagedFile], changes: Sequence[StagedFile]
) -> Sequence[Any]:
    """Write the rows of replays whose key is neither in the table nor in this cycle."""
    if not inserts:
        return []
    keys = list(cycle.keys)
    rows = cycle.staged(inserts).dropDuplicates(keys)
    taken = [_last_changes(cycle.staged(changes))] if changes else []
    if cycle.target is not None:
        taken.append(cycle.spark.table(cycle.target))
    for others in taken:
        rows = rows.join(others.select(*map(quoted, keys)), keys, "left_anti")
    written = cycle.write(rows)
    log.info(
        "table %s: inserted %d of %d replayed rows; the keys of the others exist",
        cycle.request.table,
        _count(written),
        sum(file.rows for file in inserts),
        extra={"action": "replays_inserted", "table": cycle.request.table},
    )
    return written


def _ordered_rows(
    cycle: CycleTable, files: Sequence[StagedFile], rows: Sequence[StagedFile]
) -> CycleRows:
    """Return the last change per key, by the order of the source."""
    order = CycleOrder(cycle)
    later = _rows_after_truncate(cycle, order)
    files, rows = [*files, *later], [*rows, *later]
    try:
        leaves_rows_out = bool(files) and order.judge(files)
    except UnorderedKeysError as error:
        raise _duplicate_keys(cycle.request, error.rows) from None
    partial = CycleChanges(cycle, files, order)
    written = partial.complete()
    leaves_rows_out = leaves_rows_out and bool(rows)
    if leaves_rows_out:
        written, rows = [*written, *cycle.write(order.last_rows(rows))], []
        cycle.superseded += [file.path for file in later]
    return CycleRows(
        rows,
        [file for file in files if file.kind is StagedKind.DELETES],
        written,
        order=ORDER,
        reads_table=partial.reads_table or leaves_rows_out,
        unmatched=partial.unmatched,
        older_changes=order.older,
        summary=partial.summary,
        properties=order.properties,
    )


def _rows_after_truncate(cycle: CycleTable, order: CycleOrder) -> list[StagedFile]:
    """Stage the rows of the table that are later than this cycle's truncate: a partition lagged
    behind."""
    if not cycle.truncated or cycle.head is None:
        return []
    rows = order.later_rows(cycle.head_rows())
    if rows is None:
        return []
    return [
        staged_again(cycle.table.content_file(file), cycle.metadata) for file in cycle.write(rows)
    ]


def _check_key_columns(cycle: CycleTable) -> None:
    names = cycle.metadata.column_names()
    for key in cycle.keys:
        if key not in names:
            raise TableUnsuitableError(
                cycle.request.table,
                f"has no key column {key} (any more): rename it back, or set other id-columns",
            )


def _count(files: Sequence[Any]) -> int:
    """Return the number of rows in Java data files."""
    return sum(int(file.recordCount()) for file in files)


def _last_changes(rows: DataFrame) -> DataFrame:
    """Return the rows of staged files that are the last change of their key, without those that
    complete others."""
    return rows.where(f"coalesce({PARTIAL}, {CHANGE} IS NULL)")


def _kafka_partition(file: StagedFile) -> object:
    """Return the Kafka partition in the name of a file, or the path if the name has none."""
    name = StagedFileName.decode(file.path.rpartition("/")[2])
    return file.path if name is None else name.partition


def _duplicate_keys(request: CommitRequest, rows: DataFrame) -> DuplicateKeyError:
    """Return the error for keys that are staged more than once; `rows` has the keys and the file of
    each."""
    grouped = rows.groupBy(*map(quoted, request.key_columns)).agg({FILE: "collect_set"})
    duplicates = grouped.limit(_SHOWN_KEYS + 1).collect()
    shown = []
    for row in duplicates[:_SHOWN_KEYS]:
        key = tuple(row[name] for name in request.key_columns)
        names = [
            StagedFileName.decode(path.rpartition("/")[2]) for path in row[f"collect_set({FILE})"]
        ]
        partitions = sorted({"?" if name is None else str(name.partition) for name in names})
        shown.append(f"{key} in partitions {' and '.join(partitions)}")
    count = f"more than {_SHOWN_KEYS}" if len(duplicates) > _SHOWN_KEYS else str(len(duplicates))
    return DuplicateKeyError(
        request.table,
        f"{count} keys are staged more than once in one cycle, the first are {', '.join(shown)}: "
        "nothing says which change is newer (iceberg.ext.ordering-columns would)",
    )
