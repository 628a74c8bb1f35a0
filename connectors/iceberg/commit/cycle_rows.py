"""Commit step 4b: determine the rows that a commit adds and the keys of the rows that it replaces.

A plain cycle commits the staged files unchanged. Other cycles rewrite rows: rows with unavailable
values are completed, replayed rows are inserted if their key is missing, and changes to one key in
several partitions are ordered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.commit.attempt import Attempt, CycleRows
from connectors.iceberg.commit.cycle_order import (
    FILE,
    CycleOrder,
    UnorderedKeysError,
    with_files,
)
from connectors.iceberg.commit.partial_rows import complete_changes, has_open_pairs
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.errors import DuplicateKeyError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.staging.staged_changes import CHANGE, PARTIAL
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.table.table import StagedFile, StagedKind, WriteMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_SHOWN_KEYS = 3  # maximum number of keys in an error message


def rows_of_cycle(attempt: Attempt, *, are_final: bool) -> CycleRows:
    """Check the keys of an attempt, and return the rows that it adds and the keys that it removes.

    Args:
        attempt: The attempt.
        are_final: True if no rule changes the rows afterward, so that the MERGE can check the keys.

    Raises:
        DuplicateKeyError: Two staged rows have the same key, and nothing defines their order.
        TableUnsuitableError: The table lacks a key column.
    """
    files = [file for file in attempt.request.files if file.path]
    rows = [file for file in files if file.kind is StagedKind.ROWS]
    if attempt.request.mode is not WriteMode.MERGE:
        return CycleRows(rows)
    for key in attempt.keys:
        if key not in attempt.metadata.column_names():
            raise TableUnsuitableError(
                attempt.request.table,
                f"has no key column {key}: undo its rename, or set other id-columns",
            )
    if attempt.is_ordered:
        return _ordered_rows(attempt, files, rows)
    deletes = [file for file in files if file.kind is StagedKind.DELETES]
    is_plain = len(rows) + len(deletes) == len(files) and not has_open_pairs(attempt)
    merge_checks_keys = is_plain and are_final and attempt.strategy is EngineName.MERGE
    is_spread = len(_partitions(_changes(attempt))) > 1
    if is_spread and not merge_checks_keys:
        check_duplicates(attempt)
    return CycleRows(
        rows,
        deletes,
        written=() if is_plain else _completed_rows(attempt, files),
        has_unchecked_keys=is_spread and merge_checks_keys,
    )


def _partitions(files: list[StagedFile]) -> set[int | str]:
    """Return the Kafka partitions of the files.

    A file without a partition in its name counts as a separate partition.
    """
    names = {file.path: StagedFileName.decode(file.path.rpartition("/")[2]) for file in files}
    return {path if name is None else name.partition for path, name in names.items()}


def check_duplicates(attempt: Attempt) -> None:
    """Check that no key is staged twice, with one aggregation over the staged keys.

    Raises:
        DuplicateKeyError: A key is staged twice. The message names the first such keys and their
            partitions.
    """
    keys = [quoted(key) for key in attempt.keys]
    rows = with_files(_last_changes(attempt.staged(_changes(attempt)))).select(*keys, FILE)
    duplicates = rows.groupBy(*keys).agg({FILE: "count"}).where(f"`count({FILE})` > 1")
    if not duplicates.isEmpty():
        raise _duplicate_keys(attempt, rows.join(duplicates, attempt.keys, "left_semi"))


def _changes(attempt: Attempt) -> list[StagedFile]:
    return [
        file for file in attempt.request.files if file.path and file.kind is not StagedKind.INSERTS
    ]


def _last_changes(rows: DataFrame) -> DataFrame:
    """Return the staged rows that are the last change to their key.

    Changes that only complete other rows are excluded.
    """
    return rows.where(f"coalesce({PARTIAL}, {CHANGE} IS NULL)")


def _completed_rows(attempt: Attempt, files: list[StagedFile]) -> list[Any]:
    """Write those rows of a cycle that depend on other rows.

    This function requires that all changes to a key are in one Kafka partition.
    """
    changes = _changes(attempt)
    written = complete_changes(attempt, changes, None)
    if inserts := [file for file in files if file.kind is StagedKind.INSERTS]:
        written += _missing_inserts(attempt, inserts, changes)
    return written


def _missing_inserts(
    attempt: Attempt, inserts: list[StagedFile], changes: list[StagedFile]
) -> list[Any]:
    """Write the replayed rows whose key is neither in the table nor in this cycle."""
    attempt.reads_table = True
    rows = attempt.staged(inserts).dropDuplicates(attempt.keys)
    existing_rows = [_last_changes(attempt.staged(changes))] if changes else []
    if attempt.target is not None:
        existing_rows.append(attempt.spark.table(attempt.target))
    for each in existing_rows:
        rows = rows.join(each.select(*map(quoted, attempt.keys)), attempt.keys, "left_anti")
    written = attempt.write(rows)
    log.info(
        "table %s: inserted %d of %s; the keys of the other rows exist",
        attempt.request.table,
        sum(int(file.recordCount()) for file in written),
        pluralize(sum(file.rows for file in inserts), "replayed row"),
        extra={"action": "replays_inserted", "table": attempt.request.table},
    )
    return written


def _ordered_rows(attempt: Attempt, files: list[StagedFile], rows: list[StagedFile]) -> CycleRows:
    """Return the last change to each key in source order."""
    order = CycleOrder(attempt)
    later_files: list[StagedFile] = []
    if attempt.is_truncate and attempt.head is not None:
        # If a partition lagged behind, the table has rows that are newer than the truncate.
        later_rows = order.later_rows(attempt.head_rows())
        if later_rows is not None:
            later_files = [*map(attempt.table.as_staged, attempt.write(later_rows))]
    files, rows = [*files, *later_files], [*rows, *later_files]
    try:
        leaves_rows_out = bool(files) and order.rank(files)
    except UnorderedKeysError as error:
        raise _duplicate_keys(attempt, error.rows) from None
    written = complete_changes(attempt, files, order)
    if leaves_rows_out and rows:
        attempt.reads_table = True
        written += attempt.write(order.last_rows(rows))
        attempt.superseded += [file.path for file in later_files]
        rows = []
    deletes = [file for file in files if file.kind is StagedKind.DELETES]
    return CycleRows(rows, deletes, written, order=ORDER)


def _duplicate_keys(attempt: Attempt, rows: DataFrame) -> DuplicateKeyError:
    """Return the error for keys that are staged more than once.

    `rows` contains the keys and the file of each change.
    """
    grouped = rows.groupBy(*map(quoted, attempt.keys)).agg({FILE: "collect_set"})
    duplicates = grouped.limit(_SHOWN_KEYS + 1).collect()
    keys = []
    for row in duplicates[:_SHOWN_KEYS]:
        names = [
            StagedFileName.decode(path.rpartition("/")[2]) for path in row[f"collect_set({FILE})"]
        ]
        partitions = sorted({"?" if name is None else str(name.partition) for name in names})
        key = tuple(row[name] for name in attempt.keys)
        noun = "partition" if len(partitions) == 1 else "partitions"
        keys.append(f"{key} in {noun} {' and '.join(partitions)}")
    count = f"more than {_SHOWN_KEYS}" if len(duplicates) > _SHOWN_KEYS else str(len(duplicates))
    return DuplicateKeyError(
        attempt.request.table,
        f"duplicate keys in one cycle ({count}): {', '.join(keys)}; the order of their changes is "
        "unknown, set iceberg.ext.ordering-columns to define it",
    )
