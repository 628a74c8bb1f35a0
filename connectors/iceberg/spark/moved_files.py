"""Data files of a condition, written anew at another place, deletes applied; the table has them there by one commit.

Iceberg's `rewrite_data_files` writes where the table's properties say, and nowhere else.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.iceberg.config.spark_config import STAGING_CATALOG
from connectors.iceberg.errors import CatalogUnavailableError
from connectors.iceberg.spark.java_errors import EXCEPTIONS, VALIDATION, is_a
from connectors.iceberg.spark.sql_names import relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.spark.iceberg_java import JavaTable
    from connectors.iceberg.spark.java_classes import JavaClasses


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
        CatalogUnavailableError: Another writer changed their rows meanwhile; nothing is left of this attempt.
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
    rewrite = table.new_rewrite(snapshot)
    for task in tasks:
        rewrite.deleteFile(task.file())
    for file in written:
        rewrite.addFile(file)
    if metadata.format_version > 1:
        rewrite.dataSequenceNumber(int(head["sequence-number"]))
    try:
        rewrite.toBranch(request.ref).commit()
    except Exception as error:
        if not is_a(error, f"{EXCEPTIONS}CommitStateUnknownException"):
            for file in written:
                table.delete_file(str(file.location()))
        if is_a(error, VALIDATION):
            raise CatalogUnavailableError(f"table {table.name}: rows of {request.condition} were changed") from error
        raise
    return len(tasks), len(written)


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
