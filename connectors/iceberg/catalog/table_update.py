"""`TableUpdate`: one change of a table's metadata, checked against its base and swapped in once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.java_errors import VALIDATION, is_a
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata

if TYPE_CHECKING:
    from connectors.iceberg.catalog.recorded_table import RecordedTable


class StaleAttemptError(Exception):
    """The change was computed for an older state of the table and is not valid for the current
    one."""


class TableUpdate:
    """A transaction on the newest metadata, and the change of the metadata that makes it visible.

    Nothing is visible to others before `swap`. A crash before it leaves manifests that no metadata
    references.
    """

    def __init__(self, java: JavaClasses, table: Any, operations: Any) -> None:
        self._java = java
        self._table = table
        self._operations = operations
        self._transaction = table.newTransaction()
        self._base = self._transaction.startMetadata()
        self._after = self._base
        self._builder: Any = None
        self._properties: dict[str, str] = {}
        self.snapshot: Any = None  # the Java snapshot, once one of the methods below has created it

    def base(self) -> TableMetadata:
        """The metadata that the swap compares with: what is checked on it holds at the swap."""
        return self._java.metadata(self._base)

    def append(self, ref: str, summary: Mapping[str, str], files: Sequence[Any]) -> None:
        update = self._transaction_on(ref).newAppend()
        for file in files:
            update.appendFile(file)
        self._stage(update, ref, summary)

    def overwrite(self, ref: str, summary: Mapping[str, str], files: Sequence[Any]) -> None:
        """The files in place of every row that is there."""
        update = self._transaction_on(ref).newOverwrite()
        update.overwriteByRowFilter(self._java.every_row)
        for file in files:
            update.addFile(file)
        self._stage(update, ref, summary)

    def row_delta(
        self,
        ref: str,
        summary: Mapping[str, str],
        files: Sequence[Any],
        recorded: RecordedTable | None,
        read_snapshot: int | None,
        *,
        refuse_foreign_rows: bool,
    ) -> None:
        """Add data files, and the deletes that a MERGE recorded.

        Args:
            ref: The branch of the new snapshot.
            summary: Entries for its summary.
            files: Java data files with new rows.
            recorded: The recorded table; None: there are no deletes.
            read_snapshot: The snapshot that the MERGE read; None: the table was empty.
            refuse_foreign_rows: Whether rows that other writers added since then are a conflict.

        Raises: StaleAttemptError: Another commit since then removed data files that the deletes
            reference.
        """
        transaction = self._transaction_on(ref)
        update = transaction.newRowDelta()
        if recorded is not None:
            recorded.add_to(update)
        update.validateDeletedFiles()
        if read_snapshot is not None:
            update.validateFromSnapshot(read_snapshot)
        if refuse_foreign_rows:
            update.conflictDetectionFilter(self._java.every_row)
            update.validateNoConflictingDataFiles()
        for file in files:
            update.addRows(file)
        self._stage(update, ref, summary)

    def take(
        self,
        ref: str,
        summary: Mapping[str, str],
        recorded: RecordedTable,
        read_snapshot: int | None,
    ) -> None:
        """Add everything that a full MERGE recorded. The caller has checked that the ref has not
        moved since."""
        transaction = self._transaction_on(ref)
        update = transaction.newOverwrite() if recorded.is_overwrite else transaction.newRowDelta()
        recorded.add_to(update)
        if read_snapshot is not None:
            update.validateFromSnapshot(read_snapshot)
        self._stage(update, ref, summary)

    def rewrite(
        self,
        ref: str,
        read: Snapshot,
        replaced: Sequence[Any],
        files: Sequence[Any],
        replaced_deletes: Sequence[Any] = (),
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Replace data files by new files that hold the same rows as the old files did at a
        snapshot.

        Args: replaced_deletes: Delete files that apply to no other data file; they are removed as
            well.

        Raises:
            StaleAttemptError: A commit since then removed a replaced file, or deleted rows of it.
        """
        update = self._transaction_on(ref).newRewrite().validateFromSnapshot(read["snapshot-id"])
        for file in replaced:
            update.deleteFile(file)
        for file in replaced_deletes:
            update.deleteFile(file)
        for file in files:
            update.addFile(file)
        if (sequence := read.get("sequence-number")) and self._base.formatVersion() > 1:
            update.dataSequenceNumber(sequence)
        self._stage(update, ref, summary)

    def change(self) -> None:
        """A change of refs and snapshots alone."""
        self._builder = self._java.iceberg("TableMetadata").buildFrom(self._base)

    def publish(self, ref: str, snapshot: int) -> None:
        """Make a snapshot that is there already, on a branch of its own, the head of the ref."""
        self.snapshot = self._base.snapshot(snapshot)
        self._after = self._transaction.currentMetadata()
        self._builder = (
            self._java.iceberg("TableMetadata")
            .buildFrom(self._after)
            .setBranchSnapshot(snapshot, ref)
        )

    def stand_on(self, ref: str, snapshot: int, summary: Mapping[str, str]) -> None:
        """The ref goes back to a snapshot, on which stands a new one without rows."""
        branch = f"connect-py-rewind-{snapshot}"
        self._transaction.manageSnapshots().createBranch(branch, snapshot).commit()
        self._stage(self._transaction.newFastAppend(), branch, summary)
        self._builder.setBranchSnapshot(self.snapshot_id, ref).removeRef(branch)

    def begin_branch(self, name: str, snapshot: int | None) -> None:
        """Have a branch at this snapshot, before a snapshot is made on it; None: the table has none
        yet."""
        manage = self._transaction.manageSnapshots()
        if snapshot is None:
            if self._base.ref(name) is not None:
                manage.removeBranch(name).commit()
        elif self._base.ref(name) is None:
            manage.createBranch(name, snapshot).commit()
        else:
            manage.replaceBranch(name, snapshot).commit()

    def start_branch(self, name: str, ref: str) -> None:
        """Let a branch start at the head of another ref, before a snapshot is added to it. No-op if
        they are equal."""
        if name != ref:
            head = self.base().head(ref)
            self.begin_branch(name, None if head is None else head["snapshot-id"])

    def _transaction_on(self, ref: str) -> Any:
        """The transaction, in which the branch exists: else Iceberg would count its files from
        zero."""
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
                raise StaleAttemptError(str(error).split("\n", 1)[0]) from error
            raise
        self._after = self._transaction.currentMetadata()
        self.snapshot = self._java.iceberg("util.SnapshotUtil").latestSnapshot(self._after, ref)
        self._builder = self._java.iceberg("TableMetadata").buildFrom(self._after)

    def remove_snapshots(self, snapshots: Sequence[int]) -> list[Any]:
        """Remove snapshots in the same change; return the Java snapshots."""
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
        """Remove a branch, refused if it moved: a REST catalog compares the refs that a change
        sets, not the others."""
        self._builder.setBranchSnapshot(self.snapshot_id, branch)
        self.remove_ref(branch)

    @property
    def snapshot_id(self) -> int:
        return int(self.snapshot.snapshotId())

    def drop_properties(self, names: Collection[str]) -> None:
        """Take properties of the table out in the same change."""
        self._builder.removeProperties(self._java.set(names))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table in the same change."""
        self._properties.update(properties)

    def swap(self, properties: Mapping[str, str]) -> None:
        """Swap the metadata once: `TableOperations.commit` neither retries nor cleans up.

        Args: properties: Properties of the table to set in the same change, in addition to those of
            `set_properties`.
        """
        properties = {**self._properties, **properties}
        builder = (
            self._builder.setProperties(self._java.map(properties)) if properties else self._builder
        )
        self._after = builder.build()
        self._operations.commit(self._base, self._after)

    def changed_refs(self) -> list[str]:
        """Return the branches and tags except main that the swap sets or removes."""
        before, after = self.base().refs, self._java.metadata(self._after).refs
        names = {*before, *after} - {MAIN}
        return sorted(name for name in names if before.get(name) != after.get(name))
