"""The engine for facts: staged files become data files as they are. No job, no rewrite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.iceberg.faults import fault_point
from connectors.iceberg.spark.commit_request import CommitOutcome, CommitRequest, EngineName
from connectors.iceberg.spark.table_commit import BEFORE_SWAP, land, to_json

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver
    from connectors.iceberg.spark.staged_keys import StagedKeys


class AppendEngine:
    """One `AppendFiles` and the property, in one transaction."""

    name = EngineName.APPEND

    def __init__(self, driver: SparkDriver) -> None:
        self._driver = driver

    def commit(self, request: CommitRequest, staged: StagedKeys) -> CommitOutcome:
        """See `CommitEngine.commit`."""
        prepared = self._driver.call(request.table, "TableCommit", "prepareAppend", to_json(request))
        fault_point(BEFORE_SWAP)
        return land(self._driver, request, self.name, "swap", prepared["prepared"])
