"""Staged files as Iceberg's content files, and as relations that Spark SQL reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connectors.iceberg.staging.staged_changes import FIELD_IDS, PLAIN
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.protocol.table_metadata import TableMetadata


def content_file(file: StagedFile) -> dict[str, Any]:
    """A staged file in Iceberg's JSON form of content files, for reading: without partition and
    metrics."""
    return {
        "spec-id": 0,
        "content": "DATA",
        "file-path": file.path,
        "file-format": "PARQUET",
        "partition": {},
        "file-size-in-bytes": file.size,
        "record-count": file.rows,
    }


def data_file(java: JavaTable, metadata: TableMetadata, file: StagedFile) -> Any:
    """A staged file of whole rows as Java's data file of the table."""
    fields = metadata.spec_of(file.spec_id)["fields"]
    values = zip(fields, file.partition, strict=True)
    partition = {
        str(field["field-id"]): json.loads(text) for field, text in values if text is not None
    }
    content = {**content_file(file), "spec-id": file.spec_id, "partition": partition}
    return java.data_file(content, file.spec_id, file.path, file.size, file.rows)


def staged_again(content: Mapping[str, Any], metadata: TableMetadata) -> StagedFile:
    """A file of whole rows that was written here, as if a task had staged it."""
    return StagedFile(
        StagedKind.ROWS,
        content["file-path"],
        content["record-count"],
        content["file-size-in-bytes"],
        metadata.schema["schema-id"],
        content["spec-id"],
        tuple(None if value is None else json.dumps(value) for value in content["partition"]),
    )


def extra_columns() -> list[dict[str, Any]]:
    """Columns of staged files that the table does not have, as fields of Iceberg's schema JSON."""
    return [
        {"id": FIELD_IDS[name], "name": name, "required": False, "type": type_}
        for name, type_ in PLAIN
    ]
