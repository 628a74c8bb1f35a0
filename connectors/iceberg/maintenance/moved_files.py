"""Data files of a condition, written anew at another place, deletes applied; the table has them there by one commit.

Iceberg's `rewrite_data_files` writes where the table's properties say, and nowhere else.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.java_errors import REFUSED, is_a
from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.config.spark_config import STAGING_CATALOG
from connectors.iceberg.errors import CatalogUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_classes import JavaClasses
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.protocol.table_metadata import Snapshot

_ATTEMPTS: Final = 5  # while commits of others come in between


@dataclass(frozen=True, slots=True)
class FileMove:
    """Which files go where."""

    ref: str
    condition: str  # SQL; the rows of whole partitions
    location: str
    storage_class: str | None = None  # of S3


def move_files(spark: SparkSession, catalog: str, table: JavaTable, request: FileMove) -> tuple[int, int]:
    """Write the files that hold rows of the condition anew; returns how many went, and how many came.

    Files of an earlier partition spec stay where they are.

    Raises:
        CatalogUnavailableError: Another writer changed their rows, or was in the way too often; no file is left.
    """
    java, metadata = table.java, table.metadata()
    head = metadata.head(request.ref)
    if head is None:
        return 0, 0
    snapshot = int(head["snapshot-id"])
    condition = java.condition(spark, relation(catalog, table.name), request.condition)
    tasks = [task for task in table.scan_tasks(snapshot, condition) if task.file().specId() == metadata.spec["spec-id"]]
    if not tasks:
        return 0, 0
    moved = table.elsewhere(request.location, _properties(request))
    written = _written(spark, java, moved, tasks)
    _replace(table, request, head, [task.file() for task in tasks], written)
    return len(tasks), len(written)


def _replace(table: JavaTable, request: FileMove, read: Snapshot, files: list[Any], written: list[Any]) -> None:
    """Commit the written files in place of the others, as these were read at a snapshot.

    A catalog's answer may be lost, and its refusal wrong: the table, read again, says what became of the attempt. One
    that may still land leaves the written files, and the search for orphan files removes them if it does not. A commit
    cannot land once its ref moved; that the table's metadata moved says nothing at a REST catalog.

    Raises:
        CatalogUnavailableError: Another writer changed their rows, or was in the way too often.
    """
    known = table.metadata().snapshots.keys()
    why = "commits of others came in between"
    for _ in range(_ATTEMPTS):
        prepared = table.new_update()
        base = prepared.base().head(request.ref)
        try:
            prepared.rewrite(request.ref, read, files, written)
        except StaleAttemptError:
            why = f"rows of {request.condition} were changed"
            break
        try:
            prepared.swap({})
            return
        except Exception as error:
            now = table.refresh()
            if prepared.snapshot_id in now.snapshots:
                return
            if now.head(request.ref) == base and not is_a(error, REFUSED):
                raise
    for path in {str(file.location()) for file in written} - _named_since(table, known):
        table.delete_file(path)
    raise CatalogUnavailableError(f"table {table.name}: {why}")


def _named_since(table: JavaTable, known: Collection[int]) -> set[str]:
    """Files that manifests name which are younger than the snapshots that were known."""
    new = [snapshot for snapshot in table.refresh().snapshots if snapshot not in known]
    manifests = {str(each.path()): each for snapshot in new for each in table.manifests(snapshot)}
    young = [each for each in manifests.values() if each.snapshotId() not in known]
    return {path for each in young for path in table.files_of_manifest(each)}


def _properties(request: FileMove) -> dict[str, str]:
    return {} if request.storage_class is None else {"s3.write.storage-class": request.storage_class}


def _written(spark: SparkSession, java: JavaClasses, table: Any, tasks: list[Any]) -> list[Any]:
    """Java's data files with the rows of these tasks, by their partitions; no snapshot refers to them yet."""
    name = f"moved_{uuid.uuid4().hex}"
    sets, cache = java.iceberg("spark.ScanTaskSetManager").get(), java.iceberg("spark.SparkTableCache").get()
    made = java.iceberg("spark.FileRewriteCoordinator").get()
    target = java.iceberg("util.PropertyUtil").propertyAsLong(
        table.properties(), "write.target-file-size-bytes", 512 << 20
    )
    cache.add(name, table)
    sets.stageTasks(table, name, java.objects(tasks))
    try:
        rows = spark.read.option("split-size", str(target)).table(f"{STAGING_CATALOG}.{name}")
        rows.writeTo(f"{STAGING_CATALOG}.{name}").option("fanout-enabled", "true").append()
        return list(made.fetchNewFiles(table, name))
    finally:
        sets.removeTasks(table, name)
        made.clearRewrite(table, name)
        cache.remove(name)
