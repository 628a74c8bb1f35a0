"""The portable engine, and the oracle of the delta engine: a SQL MERGE, invisible until it is swapped in.

The MERGE runs on a branch of the epoch, which begins at the head whose ledger was checked. What makes it visible is one
change of the table's metadata: the ref moves to the branch's snapshot if it is still where the branch began, the
property is set, and the branch goes. A MERGE into the ref itself would repeat by itself on a newer head and win over
another coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.iceberg.faults import fault_point
from connectors.iceberg.spark.commit_request import (
    COMMIT_ID_KEY,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.spark.table_commit import BEFORE_SWAP, outcome, to_json

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver
    from connectors.iceberg.spark.staged_keys import StagedKeys

_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."  # holds for every commit of the session until unset
_UPSERT, _DELETE = 0, 1  # codes of the source rows; patches count up from there


class MergeEngine:
    """Prepare a branch, MERGE into it, publish it."""

    name = EngineName.MERGE

    def __init__(self, driver: SparkDriver) -> None:
        self._driver = driver

    def commit(self, request: CommitRequest, staged: StagedKeys) -> CommitOutcome:
        """See `CommitEngine.commit`."""
        prepared = self._call(request, "SparkMerge", "prepareMerge", to_json(request, work_branch=request.work_branch))
        if prepared["status"] != CommitStatus.COMMITTED.value:
            return outcome(self.name, prepared)
        summary = {**request.summary, COMMIT_ID_KEY: request.commit_id}
        settings = {_SNAPSHOT_PROPERTY + key: value for key, value in summary.items()}
        try:
            if prepared["sets"]:  # else the branch was emptied, and that is all
                self._driver.set_conf(settings)
                self._driver.sql(self._statement(request, prepared))
        finally:
            self._driver.unset_conf(list(settings))
            sets = to_json(request, sets=[part["set"] for part in prepared["sets"]])
            self._call(request, "SparkMerge", "endMerge", sets)
        fault_point(BEFORE_SWAP)
        published = to_json(request, work_branch=request.work_branch, base=prepared["base"])
        return outcome(self.name, self._call(request, "TableCommit", "publish", published))

    def _call(self, request: CommitRequest, name: str, method: str, text: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._driver.call(request.table, name, method, text)
        return answer

    def _statement(self, request: CommitRequest, prepared: Mapping[str, Any]) -> str:
        name = [self._driver.config.catalog, *request.table.split("."), f"branch_{request.work_branch}"]
        columns, keys = prepared["columns"], request.key_columns
        return merge_statement(".".join(map(quoted, name)), columns, keys, prepared["sets"])


def merge_statement(target: str, columns: Sequence[str], keys: Sequence[str], sets: Sequence[Mapping[str, Any]]) -> str:
    """The statement for staged sets, as `SparkMerge` describes them; the set's name is quoted already."""
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
