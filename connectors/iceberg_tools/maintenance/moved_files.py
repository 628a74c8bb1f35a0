"""Moves data files to another location in one commit, with their deletes applied.

Iceberg's `rewrite_data_files` writes only to the location in the table's properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.iceberg.catalog.file_rewrite import RewriteRefusedError, replace_files, write_tasks
from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.catalog.table_update import TableChange
from connectors.iceberg.errors import CatalogUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_catalog import JavaTable


@dataclass(frozen=True, slots=True)
class FileMove:
    """Files to move and their new location."""

    ref: str
    condition: str  # SQL condition that selects all rows of one or more partitions
    location: str
    storage_class: str | None = None  # S3 storage class


def move_files(
    spark: SparkSession, catalog: str, table: JavaTable, request: FileMove
) -> tuple[int, int]:
    """Rewrite the selected files and return the numbers of replaced and new files.

    Files that were written with an earlier partition spec are not moved.

    Raises:
        CatalogUnavailableError: Another writer changed the rows, or too many commits conflicted.
            The new files are deleted.
    """
    java, metadata = table.java, table.metadata()
    head = metadata.head(request.ref)
    if head is None:
        return 0, 0
    snapshot = int(head["snapshot-id"])
    condition = java.condition(relation(catalog, table.name), request.condition)
    tasks = [
        task
        for task in table.scan_tasks(snapshot, condition)
        if task.file().specId() == metadata.spec["spec-id"]
    ]
    if not tasks:
        return 0, 0
    destination = table.elsewhere(request.location, _properties(request))
    new_files = write_tasks(spark, java, destination, tasks)
    replaced = [task.file() for task in tasks]
    rewrite = TableChange(files=new_files, replaced=replaced, read_snapshot=snapshot)
    try:
        replace_files(table, rewrite, request.ref, {}, lambda _: "")
    except RewriteRefusedError as refused:
        raise CatalogUnavailableError(
            f"table {table.name}: cannot move the files of {request.condition}: {refused}"
        ) from refused
    return len(tasks), len(new_files)


def _properties(request: FileMove) -> dict[str, str]:
    return (
        {} if request.storage_class is None else {"s3.write.storage-class": request.storage_class}
    )
