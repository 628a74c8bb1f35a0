"""Commit step 4c: build the table change, with one `MERGE INTO` that finds the replaced rows.

The statements read their sources through subqueries, because temporary views fail on copy-on-write
tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.catalog.sql_names import literal, quoted, same_key
from connectors.iceberg.catalog.table_update import TableChange
from connectors.iceberg.commit.attempt import MERGES, Attempt
from connectors.iceberg.commit.cycle_rows import check_duplicates
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName, EngineSettings
from connectors.iceberg.protocol.table_metadata import WRITE_MODES, TableMetadata
from connectors.iceberg.table.table import StagedKind, WriteMode

# up to this number of rows, reading all keys in one task is faster than a shuffle
_SMALL_CYCLE_ROWS: Final = 50_000
DUPLICATE_KEY: Final = "connect-py: a key is staged twice"  # in the message from a failed check
_DELETED: Final = "__connect_py_deleted"
_COUNT: Final = "__connect_py_count"


@dataclass(frozen=True, slots=True)
class MergeSource:
    """A relation whose keys identify the rows of the table to change."""

    relation: str  # a name, or a query in parentheses
    deletes: bool  # True if the rows with these keys are removed, not replaced


def choose_strategy(
    table: JavaTable, metadata: TableMetadata, request: CommitRequest, settings: EngineSettings
) -> tuple[EngineName, str]:
    """Return the strategy for a commit, and the reason for it, which is logged."""
    if request.mode is WriteMode.APPEND:
        return EngineName.APPEND, "rows are appended"
    if not request.files:
        return EngineName.APPEND, "the cycle has no rows"
    if any(file.kind is StagedKind.TRUNCATES for file in request.files):
        return EngineName.OVERWRITE, "the table is truncated"
    if metadata.is_empty(request.ref) and not table.has_data_files(metadata.head(request.ref)):
        return EngineName.APPEND, "the table is empty"
    if metadata.format_version < 2:
        return EngineName.FULL_MERGE, "the table's format does not support deletes"
    if settings.full_merge:
        return EngineName.FULL_MERGE, "iceberg.ext.commit-engine=merge"
    if metadata.properties.get(WRITE_MODES[0], "copy-on-write").lower() != "merge-on-read":
        return EngineName.FULL_MERGE, "the table is copy-on-write"
    return EngineName.MERGE, "rows may replace existing rows"


def build_change(attempt: Attempt, settings: EngineSettings) -> TableChange:
    """Return the table change that commits the rows of an attempt.

    For upserts and deletes, one MERGE runs on the recorded table. The row counts that tasks
    reported are checked against the footers of their files.

    Raises:
        DuplicateKeyError: The MERGE found a key that is staged twice.
        TableUnsuitableError: Spark rewrote data files of a merge-on-read table, or the row count
            of a file differs from the reported count.
    """
    table, rows = attempt.table, attempt.rows
    is_full_merge = attempt.strategy is EngineName.FULL_MERGE  # the MERGE inserts the rows
    files = [] if is_full_merge else [*map(table.data_file, rows.staged), *rows.written]
    if attempt.strategy is EngineName.OVERWRITE:
        summary = {} if attempt.head is None else attempt.head["summary"]
        records, deletes = summary.get("total-records", 0), summary.get("total-position-deletes", 0)
        return TableChange(
            files=files, replaces_all=True, replaced_rows=int(records) - int(deletes)
        )
    refuses = settings.refuse_foreign_rows and attempt.request.mode is WriteMode.MERGE
    sources = merge_sources(attempt) if attempt.strategy in MERGES else []
    if sources:
        _run_merge(attempt, sources)
        recording = attempt.recorded.recording()
        attempt.written += recording.locations
        if recording.data_files and not is_full_merge:
            raise TableUnsuitableError(
                table.name,
                "the MERGE rewrote data files although the table is merge-on-read; nothing was "
                "committed",
            )
        if not recording.is_empty:
            return TableChange(
                files=files,
                recorded=attempt.recorded,
                is_overwrite=recording.is_overwrite,
                replaced_rows=recording.replaced_rows,
                is_bound_to_head=is_full_merge or not recording.names_every_file,
                read_snapshot=attempt.head_id,
                refuses_foreign_rows=refuses and not is_full_merge,
            )
    if refuses and files:
        return TableChange(files=files, read_snapshot=attempt.head_id, refuses_foreign_rows=True)
    return TableChange(files=files)


def merge_sources(attempt: Attempt) -> list[MergeSource]:
    """Return the source relations of a MERGE: upserted rows and deleted keys."""
    rows = attempt.rows
    sources: list[MergeSource] = []
    upserts: str | None = None
    if rows.added:
        upserts = attempt.relation_of(rows.added)
        sources.append(MergeSource(upserts, deletes=False))
    if rows.deletes:
        relation = attempt.relation_of(rows.deletes)
        if attempt.strategy is EngineName.FULL_MERGE and rows.order is not None:
            relation = last_deletes(relation, upserts, attempt.keys, rows.order)
        sources.append(MergeSource(relation, deletes=True))
    return sources


def _run_merge(attempt: Attempt, sources: list[MergeSource]) -> None:
    relation, keys, rows = attempt.recorded.relation, attempt.keys, attempt.rows
    if attempt.strategy is EngineName.FULL_MERGE:
        attempt.spark.sql(
            full_merge(relation, attempt.metadata.column_names(), keys, sources, rows.order)
        )
        return
    statement = delete_matched(
        relation,
        keys,
        sources,
        rows.order,
        checks_keys=rows.has_unchecked_keys,
        in_one_task=sum(file.rows for file in attempt.request.files) <= _SMALL_CYCLE_ROWS,
    )
    try:
        attempt.spark.sql(statement)
    except Exception as error:
        if rows.has_unchecked_keys and DUPLICATE_KEY in str(error):
            check_duplicates(attempt)  # raises an error that names the keys
        raise


def delete_matched(
    target: str,
    keys: Sequence[str],
    sources: Sequence[MergeSource],
    order: str | None = None,
    *,
    checks_keys: bool = False,
    in_one_task: bool = False,
) -> str:
    """Return the statement that deletes the existing rows with the staged keys.

    It inserts no rows, because the staged files already contain the new rows.

    Args:
        target: The recorded table.
        keys: The key columns.
        sources: The relations with the staged keys.
        order: The column with the source order of the changes, or None. A table row that is newer
            than the staged row with the same key is not deleted.
        checks_keys: True to fail with `DUPLICATE_KEY` if a key is staged twice.
        in_one_task: True if one Spark task reads the keys, which avoids a shuffle in small cycles.
    """
    source, same = _matches(keys, sources, order)
    if checks_keys:
        columns = ", ".join(map(quoted, keys))
        hint = "/*+ COALESCE(1) */ " if in_one_task else ""
        counted = (
            f"SELECT {columns}, count(*) AS {_COUNT} FROM (SELECT {hint}{columns} FROM "
            f"({source})) GROUP BY {columns}"
        )
        source = (
            f"SELECT {columns} FROM ({counted}) WHERE assert_true({_COUNT} = 1, "
            f"{literal(DUPLICATE_KEY)}) IS NULL"
        )
    return f"MERGE INTO {target} t USING ({source}) s ON {same} WHEN MATCHED THEN DELETE"


def replaced_rows(
    table: str,
    columns: Sequence[str],
    keys: Sequence[str],
    sources: Sequence[MergeSource],
    order: str | None,
) -> str:
    """Return a query for the rows that `delete_matched` or `full_merge` removes or replaces."""
    names = ", ".join(f"t.{quoted(name)}" for name in columns)
    source, same = _matches(keys, sources, order)
    return f"SELECT {names} FROM {table} t LEFT SEMI JOIN ({source}) s ON {same}"


def full_merge(
    target: str,
    columns: Sequence[str],
    keys: Sequence[str],
    sources: Sequence[MergeSource],
    order: str | None,
) -> str:
    """Return a MERGE that inserts, updates, and deletes rows in any format and write mode."""
    selects = []
    staged = {*keys, order}
    for source in sources:
        names = ", ".join(
            quoted(name) if name in staged or not source.deletes else f"NULL AS {quoted(name)}"
            for name in columns
        )
        deleted = f"{str(source.deletes).lower()} AS {_DELETED}"
        selects.append(f"SELECT {names}, {deleted} FROM {source.relation}")
    assignments = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"s.{quoted(name)}" for name in columns)
    _, same = _matches(keys, sources, order)
    return (
        f"MERGE INTO {target} t USING ({' UNION ALL '.join(selects)}) s ON {same} "
        f"WHEN MATCHED AND s.{_DELETED} THEN DELETE WHEN MATCHED THEN UPDATE SET {assignments} "
        f"WHEN NOT MATCHED AND NOT s.{_DELETED} THEN INSERT ({names}) VALUES ({values})"
    )


def last_deletes(deletes: str, upserts: str | None, keys: Sequence[str], order: str) -> str:
    """Return a source with one delete for each key that is not upserted.

    A full MERGE fails if a table row matches several source rows.
    """
    columns = ", ".join(f"d.{quoted(key)}" for key in keys)
    without = f" LEFT ANTI JOIN {upserts} u ON {same_key(keys, 'd', 'u')}" if upserts else ""
    newest = f"max(d.{quoted(order)}) AS {quoted(order)}"
    return f"(SELECT {columns}, {newest} FROM {deletes} d{without} GROUP BY {columns})"


def _matches(
    keys: Sequence[str], sources: Sequence[MergeSource], order: str | None
) -> tuple[str, str]:
    """Return a query for the changed keys (`s`), and its join condition with the table (`t`)."""
    columns, same = [*keys], same_key(keys)
    if order is not None:
        columns.append(order)
        same += f" AND NOT coalesce(t.{quoted(order)} > s.{quoted(order)}, false)"
    names = ", ".join(map(quoted, columns))
    query = " UNION ALL ".join(f"SELECT {names} FROM {source.relation}" for source in sources)
    return query, same
