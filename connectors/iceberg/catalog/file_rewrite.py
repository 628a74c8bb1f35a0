"""Rewrites data files for compaction and tiering.

The live rows of the old files are written to new files, which replace the old files in a separate
commit. Compaction and tiering swap table metadata only through this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.java_catalog import JavaTable, scan_relation, write_files
from connectors.iceberg.catalog.java_errors import REFUSED, is_a, java_exception_of
from connectors.iceberg.catalog.table_update import StaleAttemptError, TableChange
from connectors.iceberg.protocol.faults import fault_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_classes import JavaClasses
    from connectors.iceberg.protocol.table_metadata import TableMetadata

BEFORE_SWAP, AFTER_SWAP = "before_rewrite_swap", "after_rewrite_swap"  # fault points
_ATTEMPTS: Final = 5  # maximum number of attempts if other commits land before the swap


class RewriteRefusedError(Exception):
    """The rewrite was not committed. The table is unchanged, and the new files were deleted."""


def write_tasks(
    spark: SparkSession,
    java: JavaClasses,
    table: Any,
    tasks: Sequence[Any],
    *,
    open_file_bytes: int | None = None,
) -> list[Any]:
    """Write the live rows of scan tasks to new files, and return the Java data files.

    No snapshot references the new files yet.

    Args:
        spark: The session.
        java: The Java classes of the session.
        table: The Java table. Its properties determine the location and the size of the new files.
        tasks: Java scan tasks for the table.
        open_file_bytes: Cost of opening a file, in bytes, when tasks are packed into splits. If
            None, the table's setting applies.
    """
    split_bytes = java.iceberg("util.PropertyUtil").propertyAsLong(
        table.properties(), "write.target-file-size-bytes", 512 << 20
    )
    reader = spark.read.option("split-size", str(split_bytes))
    if open_file_bytes is not None:
        reader = reader.option("file-open-cost", str(open_file_bytes))
    with scan_relation(java, table, tasks) as relation:
        rows = reader.table(relation)
        if order := _sort_columns(java, table):
            rows = rows.sortWithinPartitions(*order)
        return write_files(java, table, rows)


def _sort_columns(java: JavaClasses, table: Any) -> list[Any]:
    """Return the leading identity fields of the sort order as Spark sort expressions."""
    from pyspark.sql import functions  # local: the coordinator imports this module without Spark

    columns: list[Any] = []
    for field in java.each(table.sortOrder().fields()):
        if not field.transform().isIdentity():
            break
        name = table.schema().findColumnName(field.sourceId())
        direction = str(field.direction()).lower()  # asc or desc
        nulls = str(field.nullOrder()).lower().replace(" ", "_")  # nulls_first or nulls_last
        column = functions.col(".".join(f"`{part}`" for part in name.split(".")))
        columns.append(getattr(column, f"{direction}_{nulls}")())
    return columns


def replace_files(
    table: JavaTable,
    rewrite: TableChange,
    ref: str,
    summary: Mapping[str, str],
    refusal: Callable[[TableMetadata], str],
) -> int:
    """Replace the old files with the new files in one commit, and return the snapshot ID.

    The commit is built on the newest metadata, and validated against all commits since the snapshot
    that was read. If another commit has removed a replaced file or deleted some of its rows, the
    rewrite is rejected.

    If the swap fails or its response is lost, the table is read again before another attempt,
    because a catalog may report a failure for a commit that was in fact committed. A commit cannot
    land after its ref has moved. The manifests of rejected attempts remain until the search for
    orphan files removes them. They are not deleted here, because a rejected attempt may in fact
    have been committed. Even if its snapshot has expired since then, a later snapshot may use its
    manifests.

    Args:
        table: The table.
        rewrite: The old and the new files.
        ref: The branch that contains the old files.
        summary: Entries for the summary of the new snapshot.
        refusal: Called with the metadata that the swap replaces. Returns the reason why the rewrite
            must not be committed, or an empty string.

    Raises:
        RewriteRefusedError: Another commit changed the rows, other commits landed first too often,
            or `refusal` returned a reason. The new files are deleted.
        Exception: The outcome is unknown. The new files remain, because the commit may still land.
    """
    old_snapshots = set(table.metadata().snapshots)
    reason = "other commits landed first"
    for _ in range(_ATTEMPTS):
        update = table.new_update()
        base = update.base()
        if refused := refusal(base):
            reason = refused
            break
        try:
            update.add(rewrite, ref, summary)
        except StaleAttemptError as error:
            # use the Java message, because py4j's message begins with an object ID
            exception = None if error.__cause__ is None else java_exception_of(error.__cause__)
            reason = (
                "a concurrent commit changed rows of the rewritten files: "
                f"{error if exception is None else exception.getMessage()}"
            )
            break
        fault_point(BEFORE_SWAP)
        try:
            update.swap({})
            fault_point(AFTER_SWAP)
            return update.snapshot_id
        except Exception as error:
            metadata = table.refresh()
            if update.snapshot_id in metadata.snapshots:
                return update.snapshot_id
            if metadata.head(ref) == base.head(ref) and not is_a(error, REFUSED):
                raise
    # A rejected attempt may have landed, and its snapshot may have expired since then. If so, a
    # manifest of a later snapshot references the attempt's files.
    manifests = {
        str(manifest.path()): manifest
        for snapshot in table.refresh().snapshots.keys() - old_snapshots
        for manifest in table.manifests(snapshot)
        if manifest.snapshotId() not in old_snapshots
    }
    referenced = {path for each in manifests.values() for path in table.files_of_manifest(each)}
    for path in {str(each.location()) for each in rewrite.files} - referenced:
        table.delete_file(path)
    raise RewriteRefusedError(reason)
