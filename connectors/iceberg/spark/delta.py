"""The engine for changes: rows are replaced by position, and nothing is rewritten."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connectors.iceberg.faults import fault_point
from connectors.iceberg.spark.commit_request import CommitOutcome, CommitRequest, EngineName
from connectors.iceberg.spark.table_commit import BEFORE_SWAP, land, to_json
from connectors.iceberg.table import StagedKind

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver
    from connectors.iceberg.spark.staged_keys import StagedKeys

log = logging.getLogger(__name__)

LARGEST = 2_000_000  # staged keys that the coordinator's process holds; 100 MB of long texts


class DeltaEngine:
    """A join that reads the table's key columns only, then one `RowDelta`.

    It is a MERGE in all but the statement. The join yields file and position of each row with a staged key; these
    become deletion vectors (format v3) or position deletes (v2), and the staged rows join the table as they are. The
    join is Arrow's, in this process, or Spark's where that has to be (`KeyJoin` says when).
    """

    name = EngineName.DELTA

    def __init__(self, driver: SparkDriver, refuse_foreign_rows: bool) -> None:
        self._driver = driver
        self._refuse_foreign_rows = refuse_foreign_rows

    def commit(self, request: CommitRequest, staged: StagedKeys) -> CommitOutcome:
        """See `CommitEngine.commit`."""
        from connectors.iceberg.spark.key_join import NotJoinable

        planned = self._plan(request)
        try:
            found = self._rows(request, staged, planned)
        except NotJoinable as why:
            log.info("table %s: Spark looks for the rows: %s", request.table, why, extra={"table": request.table})
            if self._driver.start_session():
                planned = self._plan(request)
            self._driver.call(request.table, "SparkJoin", "join", planned["delta"])
            found = b""
        prepared = self._call(request, "prepareDelta", planned["delta"], bytearray(found))
        fault_point(BEFORE_SWAP)
        return land(self._driver, request, self.name, "swap", prepared["prepared"])

    def _plan(self, request: CommitRequest) -> Mapping[str, Any]:
        more = {
            "refuse_foreign_rows": self._refuse_foreign_rows,
            "file_prefix": request.file_prefix + request.commit_id,
        }
        return self._call(request, "planDelta", to_json(request, **more))

    def _rows(self, request: CommitRequest, staged: StagedKeys, planned: Mapping[str, Any]) -> bytes:
        """The rows with staged keys, as `RowDeletes.addAll` takes them.

        Raises:
            NotJoinable: Only Spark can find them.
        """
        from connectors.iceberg.spark.key_join import KeyJoin, NotJoinable

        if any(file.kind is StagedKind.PATCHES for file in request.files):
            raise NotJoinable("rows with unavailable values are completed from the table")
        if not planned["files"]:
            return b""
        if not planned["plain"]:
            raise NotJoinable("the table has equality deletes, or files that are not Parquet")
        if not self._driver.config.local or staged.rows > LARGEST:
            raise NotJoinable(f"spark.master is a cluster, or more than {LARGEST} keys are staged")
        join = KeyJoin(staged.table(), planned["key_ids"], staged.files)
        # a bit per row: dense where keys are hot, nearly nothing once compressed where they are not
        return zlib.compress(b"".join(join.rows(file["path"], file["rows"]) for file in planned["files"]), 1)

    def _call(self, request: CommitRequest, method: str, *arguments: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._driver.call(request.table, "TableCommit", method, *arguments)
        return answer
