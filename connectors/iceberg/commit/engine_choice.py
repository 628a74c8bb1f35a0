"""Which statements make a commit: decided by the table's properties and by what is staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.protocol.table_metadata import WRITE_MODES, TableMetadata
from connectors.iceberg.schema.table import StagedKind, WriteMode

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_catalog import JavaTable


def choose_engine(
    table: JavaTable, metadata: TableMetadata, request: CommitRequest, full_merge: str
) -> tuple[EngineName, str]:
    """Pick one, and say why. `full_merge`: why Spark's MERGE is to insert rows itself; empty: it is not."""
    if request.mode is WriteMode.APPEND:
        return EngineName.APPEND, "rows are appended"
    if not request.files:
        return EngineName.APPEND, "there are no rows"
    if any(file.kind is StagedKind.TRUNCATES for file in request.files):
        return EngineName.OVERWRITE, "the table is truncated"
    if metadata.is_empty(request.ref) and not table.has_data_files(metadata.head(request.ref)):
        return EngineName.APPEND, "the table is empty"
    if metadata.format_version < 2:
        return EngineName.FULL_MERGE, "the table's format has no deletes"
    if full_merge:
        return EngineName.FULL_MERGE, full_merge
    if metadata.properties.get(WRITE_MODES[0], "copy-on-write").lower() != "merge-on-read":
        return EngineName.FULL_MERGE, "the table is copy-on-write"
    return EngineName.MERGE, "rows may replace others"
