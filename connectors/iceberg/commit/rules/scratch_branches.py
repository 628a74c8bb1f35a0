"""Removes the scratch branches on which earlier releases ran the MERGE.

See rule 40 of the commit protocol.
"""

from __future__ import annotations

import logging
from typing import Final

from connect_py.api.errors import ConnectError
from connect_py.plurals import pluralize
from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import CommitRule

log = logging.getLogger(__name__)

# summary entry of a scratch snapshot: the name of its branch
_SCRATCH_KEY: Final = "connect-py.scratch"
_STAGED_KEY: Final = "connect-py.staged"  # the same if the snapshot adds only staged files


class ScratchBranches(CommitRule):
    """Removes scratch branches that exist when a commit begins.

    A late MERGE by an earlier release may create another branch. A later commit removes it.
    """

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Remove this connector's scratch branches, and their snapshots, in the same commit."""
        base = update.base()
        snapshots: list[int] = []
        for name in base.refs:
            if not name.startswith(attempt.request.work_branch):
                continue
            update.remove_ref(name)
            # If the MERGE changed nothing, the branch points to a snapshot of main. A repeated
            # MERGE created several snapshots.
            snapshot = base.snapshots.get(base.refs[name])
            while snapshot is not None and snapshot["summary"].get(_SCRATCH_KEY) == name:
                snapshots.append(int(snapshot["snapshot-id"]))
                snapshot = base.snapshots.get(snapshot.get("parent-snapshot-id", -1))
        attempt.findings[ScratchBranches] = update.remove_snapshots(snapshots)

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Delete the files of the removed snapshots, which are no longer referenced."""
        removed = attempt.findings.get(ScratchBranches, ())
        if not removed:
            return
        log.info(
            "table %s: removed %s of an earlier release",
            table.name,
            pluralize(len(removed), "scratch snapshot"),
        )
        staged_files = {file.path for file in attempt.request.files}
        try:
            with translating(table.name):
                existing_snapshots = table.refresh().snapshots  # another swap may have landed
                for snapshot in removed:
                    if snapshot.snapshotId() in existing_snapshots:
                        continue
                    paths = set(table.own_metadata_files(snapshot))
                    if _STAGED_KEY not in table.java.json(snapshot.summary()):
                        paths.update(table.files_added_by(snapshot))
                    for path in paths - staged_files:
                        table.delete_file(path)
        except ConnectError as error:
            log.info(
                "table %s: files of scratch branches remain as orphan files: %s", table.name, error
            )
