"""Count the files that a scan with a condition skips. Reads only metadata."""

from __future__ import annotations

from connectors.iceberg_tools.history.scan_levels import ScanReport, ScanRequest, scan_levels
from connectors.iceberg_tools.history.table_point import LAST, find_point
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    TableArguments,
    TableOperation,
    TableTarget,
)


class ScanArguments(TableArguments, frozen=True, kw_only=True):
    """The condition and the snapshot of a scan."""

    where: Name
    at: str = LAST
    branch: str | None = None


def scan(target: TableTarget, arguments: ScanArguments) -> ScanReport:
    """Count the files and rows that remain after pruning by partitions, bounds, and bloom filters.

    Raises:
        NotInHistoryError: The snapshot does not exist.
        TableUnsuitableError: The condition is not a SQL predicate on columns of the table.
    """
    metadata = target.metadata()
    ref = target.commit_ref(metadata, arguments.branch)
    snapshot = None if metadata.head(ref) is None else find_point(metadata, arguments.at, ref)
    target.progress("reading manifests and footers")
    report: ScanReport = target.lake.run(
        target.table, scan_levels, ScanRequest(arguments.where, snapshot)
    )
    return report


SCAN = TableOperation("scan", ScanArguments, ScanReport, scan)
