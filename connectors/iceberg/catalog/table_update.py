"""`PreparedCommit`: one change of a table's metadata, checked against what it began from, and swapped once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.java_errors import VALIDATION, is_a
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata

SCRATCH_KEY: Final = "connect-py.scratch"  # in the summary of a scratch snapshot: the name of its branch


class ValidationFailed(Exception):  # noqa: N818 - an answer, not a defect
    """What was found on an older head does not hold on this one."""


class PreparedCommit:
    """A transaction on the newest metadata, and the change of the metadata that makes it visible."""

    def __init__(self, java: JavaClasses, table: Any, operations: Any) -> None:
        self._java = java
        self._table = table
        self._operations = operations
        self._transaction = table.newTransaction()
        self._base = self._transaction.startMetadata()
        self._after = self._base
        self._builder: Any = None
        self.snapshot: Any = None  # Java's, once one of the methods below made it

    def base(self) -> TableMetadata:
        """The metadata that the swap compares with: what is checked on it holds at the swap."""
        return self._java.metadata(self._base)

    def append(self, ref: str, summary: Mapping[str, str], files: Sequence[Any]) -> None:
        update = self._on(ref).newAppend()
        for file in files:
            update.appendFile(file)
        self._stage(update, ref, summary)

    def overwrite(self, ref: str, summary: Mapping[str, str], files: Sequence[Any]) -> None:
        """The files in place of every row that is there."""
        update = self._on(ref).newOverwrite()
        update.overwriteByRowFilter(self._java.every_row)
        for file in files:
            update.addFile(file)
        self._stage(update, ref, summary)

    def row_delta(
        self,
        ref: str,
        summary: Mapping[str, str],
        files: Sequence[Any],
        deletes: Sequence[Any],
        replaced: Sequence[Any],
        found_at: int | None,
        data_files: Sequence[str],
        *,
        refuse_foreign_rows: bool,
    ) -> None:
        """The files as new rows, and the deletes of rows that were found at a snapshot.

        Raises:
            ValidationFailed: A commit of others since then took what the deletes speak of.
        """
        update = self._on(ref).newRowDelta().validateDeletedFiles()
        if found_at is not None:
            update.validateFromSnapshot(found_at)
        if data_files:
            update.validateDataFilesExist(self._java.list(data_files))
        if refuse_foreign_rows:
            update.conflictDetectionFilter(self._java.every_row)
            update.validateNoConflictingDataFiles()
        for file in files:
            update.addRows(file)
        for file in deletes:
            update.addDeletes(file)
        for file in replaced:
            update.removeDeletes(file)
        self._stage(update, ref, summary)

    def rewrite(self, ref: str, read: Snapshot, replaced: Sequence[Any], files: Sequence[Any]) -> None:
        """The files in place of others, with the rows that those had at a snapshot.

        Raises:
            ValidationFailed: A commit of others since then took the others away, or deleted rows of them.
        """
        update = self._on(ref).newRewrite().validateFromSnapshot(read["snapshot-id"])
        for file in replaced:
            update.deleteFile(file)
        for file in files:
            update.addFile(file)
        if (sequence := read.get("sequence-number")) and self._base.formatVersion() > 1:
            update.dataSequenceNumber(sequence)
        self._stage(update, ref, {})

    def change(self) -> None:
        """A change of refs and snapshots alone."""
        self._builder = self._java.iceberg("TableMetadata").buildFrom(self._base)

    def publish(self, ref: str, snapshot: int) -> None:
        """Make a snapshot that is there already, on a branch of its own, the head of the ref."""
        self.snapshot = self._base.snapshot(snapshot)
        self._after = self._transaction.currentMetadata()
        self._builder = self._java.iceberg("TableMetadata").buildFrom(self._after).setBranchSnapshot(snapshot, ref)

    def stand_on(self, ref: str, snapshot: int, summary: Mapping[str, str]) -> None:
        """The ref goes back to a snapshot, on which stands a new one without rows."""
        branch = f"connect-py-rewind-{snapshot}"
        self._transaction.manageSnapshots().createBranch(branch, snapshot).commit()
        self._stage(self._transaction.newFastAppend(), branch, summary)
        self._builder.setBranchSnapshot(self.snapshot_id, ref).removeRef(branch)

    def begin_branch(self, name: str, snapshot: int | None) -> None:
        """Have a branch at this snapshot, before a snapshot is made on it; None: the table has none yet."""
        manage = self._transaction.manageSnapshots()
        if snapshot is None:
            if self._base.ref(name) is not None:
                manage.removeBranch(name).commit()
        elif self._base.ref(name) is None:
            manage.createBranch(name, snapshot).commit()
        else:
            manage.replaceBranch(name, snapshot).commit()

    def end_branch(self, name: str) -> None:
        """Remove a branch, before a snapshot is made."""
        self._transaction.manageSnapshots().removeBranch(name).commit()

    def _on(self, ref: str) -> Any:
        """The transaction, in which the branch exists: else Iceberg would count its files from zero."""
        head = self._base.currentSnapshot()
        if self._transaction.currentMetadata().ref(ref) is None and head is not None:
            self._transaction.manageSnapshots().createBranch(ref, head.snapshotId()).commit()
        return self._transaction

    def _stage(self, update: Any, ref: str, summary: Mapping[str, str]) -> None:
        for key, value in summary.items():
            update.set(key, value)
        try:
            update.toBranch(ref).commit()  # into the transaction: invisible
        except Exception as error:
            if is_a(error, VALIDATION):
                raise ValidationFailed(str(error).split("\n", 1)[0]) from error
            raise
        self._after = self._transaction.currentMetadata()
        self.snapshot = self._java.iceberg("util.SnapshotUtil").latestSnapshot(self._after, ref)
        self._builder = self._java.iceberg("TableMetadata").buildFrom(self._after)

    def remove(self, branches: Sequence[str], snapshots: Sequence[int]) -> list[Any]:
        """Take scratch branches and their snapshots out in the same change; returns Java's snapshots."""
        for name in branches:
            self.remove_ref(name)
        removed = [self._after.snapshot(snapshot) for snapshot in snapshots]
        if removed:
            self._builder.removeSnapshots(self._java.objects(removed))
        return removed

    def set_tag(self, name: str, snapshot: int, keep_ms: int | None) -> None:
        """`keep_ms`: the age of the snapshot at which an expiry removes the tag; None: never."""
        tag = self._java.iceberg("SnapshotRef").tagBuilder(snapshot)
        self._builder.setRef(name, (tag if keep_ms is None else tag.maxRefAgeMs(keep_ms)).build())

    def remove_ref(self, name: str) -> None:
        self._builder.removeRef(name)

    def remove_compared(self, branch: str) -> None:
        """Remove a branch, refused if it moved: a REST catalog compares the refs that a change sets, not the others."""
        self._builder.setBranchSnapshot(self.snapshot_id, branch)
        self.remove_ref(branch)

    @property
    def snapshot_id(self) -> int:
        return int(self.snapshot.snapshotId())

    def drop_properties(self, names: Collection[str]) -> None:
        """Take properties of the table out in the same change."""
        self._builder.removeProperties(self._java.set(names))

    def swap(self, properties: Mapping[str, str]) -> None:
        """One attempt, without a retry and without a clean-up inside."""
        builder = self._builder.setProperties(self._java.map(properties)) if properties else self._builder
        self._operations.commit(self._base, builder.build())
