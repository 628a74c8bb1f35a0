"""Rewrite of data files: their live rows are written to new files, which replace them in a separate
commit.

Compaction and tiering use it. It is the only module of both that prepares and swaps table metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.java_errors import REFUSED, is_a, java_exception_of
from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.config.spark_config import STAGING_CATALOG
from connectors.iceberg.protocol.faults import fault_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_classes import JavaClasses
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata

BEFORE_SWAP, AFTER_SWAP = "before_rewrite_swap", "after_rewrite_swap"  # fault points
_ATTEMPTS: Final = 5  # while other commits land between the base and the swap


class RewriteRefusedError(Exception):
    """The rewrite cannot be committed; the table is unchanged and the new files are deleted."""


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """Data files of one snapshot, and the files that hold the same rows."""

    ref: str
    read: Snapshot  # whose rows and deletes were read
    replaced: Sequence[Any]  # Java's data files
    new_files: Sequence[Any]  # Java's data files; no snapshot refers to them yet
    replaced_deletes: Sequence[Any] = ()  # Java's delete files that apply to no other data file
    summary: Mapping[str, str] = field(default_factory=dict)


def write_tasks(
    spark: SparkSession,
    java: JavaClasses,
    table: Any,
    tasks: Sequence[Any],
    *,
    open_file_bytes: int | None = None,
) -> list[Any]:
    """Write the live rows of scan tasks to new files and return Java's data files; no snapshot
    refers to them.

    Args: table: Java's table; its properties determine the location and the size of the new files.
        open_file_bytes: Weight of opening a file when tasks are packed into splits; None: the
        table's setting.
    """
    name = f"rewrite_{uuid.uuid4().hex}"
    sets, cache = (
        java.singleton("spark.ScanTaskSetManager"),
        java.singleton("spark.SparkTableCache"),
    )
    coordinator = java.singleton("spark.FileRewriteCoordinator")
    target = java.iceberg("util.PropertyUtil").propertyAsLong(
        table.properties(), "write.target-file-size-bytes", 512 << 20
    )
    cache.add(name, table)
    sets.stageTasks(table, name, java.objects(tasks))
    try:
        reader = spark.read.option("split-size", str(target))
        if open_file_bytes is not None:
            reader = reader.option("file-open-cost", str(open_file_bytes))
        rows = reader.table(f"{STAGING_CATALOG}.{name}")
        if order := _sort_columns(java, table):
            rows = rows.sortWithinPartitions(*order)
        rows.writeTo(f"{STAGING_CATALOG}.{name}").option("fanout-enabled", "true").append()
        return list(coordinator.fetchNewFiles(table, name))
    finally:
        sets.removeTasks(table, name)
        coordinator.clearRewrite(table, name)
        cache.remove(name)


def _sort_columns(java: JavaClasses, table: Any) -> list[Any]:
    """Return the leading sort fields of a table that are plain columns, as Spark's sort
    expressions."""
    from pyspark.sql import functions  # here: the coordinator imports this module and has no Spark

    columns: list[Any] = []
    for sort_field in java.each(table.sortOrder().fields()):
        if not sort_field.transform().isIdentity():
            break
        name = table.schema().findColumnName(sort_field.sourceId())
        column = functions.col(".".join(f"`{part}`" for part in name.split(".")))
        nulls_first = str(sort_field.nullOrder()) == "NULLS FIRST"
        if str(sort_field.direction()) == "ASC":
            columns.append(column.asc_nulls_first() if nulls_first else column.asc_nulls_last())
        else:
            columns.append(column.desc_nulls_first() if nulls_first else column.desc_nulls_last())
    return columns


def replace_files(
    table: JavaTable, rewrite: FileRewrite, refusal: Callable[[TableMetadata], str]
) -> int:
    """Commit the new files in place of the old files and return the snapshot ID.

    The commit is built on the newest metadata and validated from the snapshot that was read: if
    another commit since then removed a replaced file or deleted rows of it, the rewrite is refused.
    If the swap fails or its answer is lost, the table is read again before anything else happens: a
    commit cannot land any more once its ref has moved, and a catalog may refuse a commit that it
    has made. Manifests of refused attempts remain, and the search for orphan files removes them:
    such an attempt may have landed and expired, and a later snapshot may use its manifests.

    Args: refusal: Called with the metadata that the swap compares with; returns why the rewrite
        must not be committed,
            or an empty string.

    Raises: RewriteRefusedError: Another commit changed the rows, or others got in first too often,
        or `refusal` returned
            a reason. The new files are deleted.
        Exception: The outcome is unknown. The new files are kept, because the commit may still
            land.
    """
    existing_snapshots = set(table.metadata().snapshots)
    why = "other commits got in first"
    for _ in range(_ATTEMPTS):
        update = table.new_update()
        base = update.base()
        if reason := refusal(base):
            why = reason
            break
        try:
            update.rewrite(
                rewrite.ref,
                rewrite.read,
                rewrite.replaced,
                rewrite.new_files,
                rewrite.replaced_deletes,
                rewrite.summary,
            )
        except StaleAttemptError as failed:
            why = f"a concurrent commit changed rows of the rewritten files: {_message(failed)}"
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
            if metadata.head(rewrite.ref) == base.head(rewrite.ref) and not is_a(error, REFUSED):
                raise
    for path in {str(each.location()) for each in rewrite.new_files} - _new_references(
        table, existing_snapshots
    ):
        table.delete_file(path)
    raise RewriteRefusedError(why)


def _message(failed: StaleAttemptError) -> str:
    """Return the message of the Java exception; py4j's own begins with the ID of an object."""
    exception = None if failed.__cause__ is None else java_exception_of(failed.__cause__)
    return str(failed if exception is None else exception.getMessage())


def _new_references(table: JavaTable, existing_snapshots: Collection[int]) -> set[str]:
    """Return the files that manifests of newer snapshots refer to.

    A refused attempt may have landed and its snapshot may have expired since; then a later manifest
    has its files.
    """
    snapshots = [
        snapshot for snapshot in table.refresh().snapshots if snapshot not in existing_snapshots
    ]
    manifests = {
        str(each.path()): each for snapshot in snapshots for each in table.manifests(snapshot)
    }
    new_manifests = [
        each for each in manifests.values() if each.snapshotId() not in existing_snapshots
    ]
    return {path for each in new_manifests for path in table.files_of_manifest(each)}
