"""The portable engine, and the oracle of the delta engine: a SQL MERGE, invisible until it is swapped in.

The MERGE runs on a branch that begins at the head whose ledger was checked, and reads staged files as branches of the
same table: so the Spark that runs it may be this JVM's, a cluster's, or one behind Spark Connect. What makes it visible
is one change of the table's metadata: the ref moves to the branch's snapshot if it is still where the branch began, the
property is set, and the branches go. A MERGE into the ref itself would repeat by itself on a newer head and win over
another coordinator.

Each attempt has branches of its own: a MERGE that nobody waits for any more finds its own gone.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.faults import fault_point
from connectors.iceberg.spark.commit_request import (
    COMMIT_ID_KEY,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.spark.errors import CatalogUnavailableError
from connectors.iceberg.spark.table_commit import BEFORE_SWAP, land, outcome, to_json

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver
    from connectors.iceberg.spark.staged_keys import StagedKeys

log = logging.getLogger(__name__)

AFTER_MERGE_PREPARED = "after_merge_prepared"  # fault point: branches are there, and nothing is merged
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."  # holds for every commit of the session until unset
_UPSERT, _DELETE = 0, 1  # codes of the source rows; patches count up from there


class MergeEngine:
    """Prepare branches, MERGE, publish."""

    name = EngineName.MERGE

    def __init__(self, driver: SparkDriver) -> None:
        self._driver = driver

    def commit(self, request: CommitRequest, staged: StagedKeys) -> CommitOutcome:
        """See `CommitEngine.commit`."""
        self._driver.start_session()  # first: a Spark that is away leaves no branches at each new attempt
        work = request.work_branch + uuid.uuid4().hex[:8]
        branches = [work, *(f"{work}s{number}" for number in range(len(request.files)))]  # as many as there may be
        try:
            prepared = self._merged(request, work)
        except CommitStateUnknownError as error:  # of a branch that only this attempt knows
            self._discard(request, branches)
            raise CatalogUnavailableError(str(error)) from error
        except ConnectError:
            self._discard(request, branches)
            raise
        if prepared["status"] != CommitStatus.COMMITTED.value:
            return outcome(self.name, prepared)
        fault_point(BEFORE_SWAP)
        published = to_json(request, branches=branches, base=prepared["base"])
        try:
            made = land(self._driver, request, self.name, "publish", published)
        except CommitStateUnknownError:
            raise  # it may yet land, on the metadata as they are
        except ConnectError:
            self._discard(request, branches)
            raise
        if made.status is not CommitStatus.COMMITTED:
            self._discard(request, branches)
        return made

    def _merged(self, request: CommitRequest, work: str) -> Mapping[str, Any]:
        """Have the result on the branch `work`, which nobody else reads. Answers as `BranchMerge.prepare` does."""
        prepared = self._call(request, "BranchMerge", "prepare", to_json(request, work_branch=work))
        if prepared["status"] != CommitStatus.COMMITTED.value:
            return prepared
        fault_point(AFTER_MERGE_PREPARED)
        if prepared["sets"]:  # else the branch was emptied, and that is all
            summary = {**request.summary, COMMIT_ID_KEY: request.commit_id}
            settings = {_SNAPSHOT_PROPERTY + key: value for key, value in summary.items()}
            self._driver.sql(self._statement(request, work, prepared), settings, request.table)
        return prepared

    def _discard(self, request: CommitRequest, branches: Sequence[str]) -> None:
        """Drop the branches now; where that fails, the next epoch does it."""
        try:
            self._driver.call(request.table, "BranchMerge", "discard", to_json(request, branches=list(branches)))
        except ConnectError as error:
            log.info("table %s: branches of a merge that came to nothing stay: %s", request.table, error)

    def _call(self, request: CommitRequest, name: str, method: str, text: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._driver.call(request.table, name, method, text)
        return answer

    def _statement(self, request: CommitRequest, work: str, prepared: Mapping[str, Any]) -> str:
        table = [self._driver.config.catalog, *request.table.split(".")]

        def branch(name: str) -> str:
            return ".".join(map(quoted, [*table, f"branch_{name}"]))

        sets = [{**part, "set": branch(part["branch"])} for part in prepared["sets"]]
        return merge_statement(branch(work), prepared["columns"], request.key_columns, sets)


def merge_statement(target: str, columns: Sequence[str], keys: Sequence[str], sets: Sequence[Mapping[str, Any]]) -> str:
    """The statement for staged sets, as `BranchMerge` describes them; the set's name is quoted already."""
    sources, updates, absent = [], [], [_DELETE]
    for number, part in enumerate(sets):
        given = set(keys) if part["kind"] == "deletes" else set(columns) - set(part["unavailable"])
        code = {"rows": _UPSERT, "deletes": _DELETE}.get(part["kind"], _DELETE + 1 + number)
        listed = ", ".join(quoted(c) if c in given else f"NULL AS {quoted(c)}" for c in columns)
        sources.append(f"SELECT {code} AS `connect-op`, {listed} FROM {part['set']}")
        if part.get("optional"):
            absent.append(code)
        if code > _DELETE:
            assigned = ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in columns if c in given)
            updates.append(f"WHEN MATCHED AND s.`connect-op` = {code} THEN UPDATE SET {assigned}")
    every = ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in columns)
    values = ", ".join(f"s.{quoted(c)}" for c in columns)
    return "\n".join(
        [
            f"MERGE INTO {target} t",
            f"USING ({' UNION ALL '.join(sources)}) s",
            "ON " + " AND ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in keys),
            f"WHEN MATCHED AND s.`connect-op` = {_DELETE} THEN DELETE",
            *updates,
            f"WHEN MATCHED THEN UPDATE SET {every}",
            f"WHEN NOT MATCHED AND s.`connect-op` NOT IN ({', '.join(map(str, absent))}) THEN",
            f"INSERT ({', '.join(map(quoted, columns))}) VALUES ({values})",
        ]
    )


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
