"""The engine for changes: rows are replaced by position, and nothing is rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.iceberg.faults import fault_point
from connectors.iceberg.spark.commit_request import CommitOutcome, CommitRequest, EngineName
from connectors.iceberg.spark.table_commit import BEFORE_SWAP, outcome, to_json

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver


class DeltaEngine:
    """A join that reads the table's key columns only, then one `RowDelta`.

    It is a MERGE in all but the statement. The join yields file and position of each row with a staged key; these
    become deletion vectors (format v3) or position deletes (v2), and the staged rows join the table as they are.
    """

    name = EngineName.DELTA

    def __init__(self, driver: SparkDriver, refuse_foreign_rows: bool) -> None:
        self._driver = driver
        self._refuse_foreign_rows = refuse_foreign_rows

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """See `CommitEngine.commit`."""
        more = {
            "refuse_foreign_rows": self._refuse_foreign_rows,
            "file_prefix": request.file_prefix + request.commit_id,
        }
        prepared = self._driver.call(request.table, "TableCommit", "prepareDelta", to_json(request, **more))
        fault_point(BEFORE_SWAP)
        return outcome(self.name, self._driver.call(request.table, "TableCommit", "swap", prepared["prepared"]))
