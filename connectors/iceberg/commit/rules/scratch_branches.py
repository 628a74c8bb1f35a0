"""Rule 40: commits remove the scratch branches of releases that ran the MERGE on a branch."""

from __future__ import annotations

import logging
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.protocol.commit_request import CommitRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)

# in the summary of a scratch snapshot: the name of its branch
_SCRATCH_KEY: Final = "connect-py.scratch"
_STAGED_KEY: Final = "connect-py.staged"  # the same, if the snapshot only references staged files


class ScratchBranches(CommitRule):
    """Removes scratch branches with every commit: a late MERGE of the earlier release may still
    create one."""

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks for every commit."""
        return _ScratchBranchesRun(request.work_branch)


class _ScratchBranchesRun(RuleRun):
    def __init__(self, work_branch: str) -> None:
        self._work_branch = work_branch
        self._removed: list[Any] = []  # Java snapshots that the last update removes

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Remove the branches of this connector and their snapshots, in the change that commits the
        cycle."""
        base = update.base()
        branches = [name for name in base.refs if name.startswith(self._work_branch)]
        for name in branches:
            update.remove_ref(name)
        snapshots = [
            snapshot
            for snapshot in _scratch_snapshots(base, branches)
            if snapshot != update.snapshot_id
        ]
        self._removed = update.remove_snapshots(snapshots)

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Delete the files of the removed snapshots: no metadata references them any more."""
        if not self._removed:
            return
        log.info(
            "table %s: removed %d scratch snapshots of an earlier release",
            table.name,
            len(self._removed),
        )
        try:
            with translating(table.name):
                for snapshot in self._removed:
                    paths = set(table.own_metadata_files(snapshot))
                    if _STAGED_KEY not in table.java.json(snapshot.summary()):
                        paths.update(table.files_added_by(snapshot))
                    for path in paths - {file.path for file in attempt.cycle.request.files}:
                        table.delete_file(path)
        except ConnectError as error:
            log.info(
                "table %s: files of scratch branches remain as orphan files: %s", table.name, error
            )


def _scratch_snapshots(metadata: TableMetadata, branches: list[str]) -> list[int]:
    """Return the scratch snapshots of branches. The branch of a MERGE that changed nothing is at a
    snapshot of main."""
    snapshots = []
    for name in branches:
        snapshot = metadata.snapshots.get(metadata.refs[name])
        # a repeated MERGE made several
        while snapshot is not None and snapshot["summary"].get(_SCRATCH_KEY) == name:
            snapshots.append(int(snapshot["snapshot-id"]))
            snapshot = metadata.snapshots.get(snapshot.get("parent-snapshot-id", -1))
    return snapshots
