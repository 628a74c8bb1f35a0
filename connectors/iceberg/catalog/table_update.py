"""Changes to a table: files recorded from a MERGE, and the update that swaps the metadata."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.java_errors import VALIDATION, is_a
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.config.spark_config import RECORDED_CATALOG
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.table_metadata import TableMetadata


class StaleAttemptError(Exception):
    """The change is based on an older state of the table and is not valid for the current state."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Files that a MERGE into a recorded table wrote and removed."""

    is_empty: bool  # True if no row of the table matched
    is_overwrite: bool  # True if data files were replaced without delete files (copy-on-write)
    locations: Sequence[str]  # locations of the files that the MERGE wrote
    replaced_rows: int
    data_files: int  # number of added and removed data files
    names_every_file: bool  # True if each delete file references one data file


class RecordedTable:
    """A table object in the driver's JVM that records a MERGE instead of committing it.

    See `RecordedTable.java`.
    """

    def __init__(self, java: JavaClasses, java_table: Any, name: str) -> None:
        """Wrap an unregistered table object. Spark's UI and event log show the table name."""
        self.java_table = java_table
        self._java = java
        self._key = f"{name}-{uuid.uuid4().hex[:12]}"
        self.relation = f"{RECORDED_CATALOG}.{quoted(self._key)}"  # name of the table in Spark SQL

    @contextmanager
    def registered(self) -> Iterator[Self]:
        """Register the table with Spark SQL within the `with` block."""
        catalog = self._java("connectpy.RecordedCatalog")
        catalog.add(self._key, self.java_table)
        try:
            yield self
        finally:
            catalog.remove(self._key)

    def recording(self) -> Recording:
        """Return the files that have been recorded."""
        return Recording(**self._java.json(self.java_table.report()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """Data and delete files for one snapshot, and the conditions for adding them.

    See rule 16 of the commit protocol.
    """

    files: Sequence[Any] = ()  # Java data files with new rows, or with the live rows of `replaced`
    replaced: Sequence[Any] = ()  # Java data and delete files that are rewritten
    replaces_all: bool = False  # True if the new rows replace all existing rows
    recorded: RecordedTable | None = None  # its recorded files are part of the change
    is_overwrite: bool = False  # see `Recording`
    replaced_rows: int = 0
    is_bound_to_head: bool = False  # True if the change is valid only for the head that was read
    # snapshot that the MERGE or the rewrite read; None if the table was empty
    read_snapshot: int | None = None
    # True if rows that other writers have added since `read_snapshot` are conflicts
    refuses_foreign_rows: bool = False


class TableUpdate:
    """Changes the newest metadata in a transaction, and publishes it with one metadata swap.

    Nothing is visible to other readers before `swap`. A crash before the swap leaves manifests that
    no metadata references.
    """

    def __init__(self, java: JavaClasses, table: Any, operations: Any) -> None:
        self._java = java
        self._operations = operations
        self._transaction = table.newTransaction()
        self._base = self._transaction.startMetadata()
        self._builder: Any = None
        self._properties: dict[str, str] = {}
        self.after = self._base  # the Java metadata with the new snapshot
        self.snapshot: Any = None  # the Java snapshot, once a method has created it

    def base(self) -> TableMetadata:
        """Return the metadata that the swap replaces.

        The swap fails if this metadata is no longer current at that time.
        """
        return self._java.metadata(self._base)

    @property
    def snapshot_id(self) -> int:
        """The ID of the new snapshot."""
        return int(self.snapshot.snapshotId())

    # --- snapshots

    def add(self, change: TableChange, ref: str, summary: Mapping[str, str]) -> None:
        """Add a snapshot to a branch.

        Raises:
            StaleAttemptError: Since the snapshot that was read, another commit removed data files
                that the change references, deleted rows in replaced files, or added rows although
                the change does not allow them.
        """
        transaction, head = self._transaction, self._base.currentSnapshot()
        if head is not None and transaction.currentMetadata().ref(ref) is None:
            # Create the missing branch first. Otherwise, the totals in the summaries of its
            # snapshots would start from zero.
            transaction.manageSnapshots().createBranch(ref, head.snapshotId()).commit()
        if change.replaces_all or change.is_overwrite:
            update = transaction.newOverwrite()
            if change.replaces_all:
                update.overwriteByRowFilter(self._java.every_row)
            add_file = update.addFile
        elif change.replaced:
            update = transaction.newRewrite()
            add_file = update.addFile
        elif change.recorded is None and not change.refuses_foreign_rows:
            update = transaction.newAppend()
            add_file = update.appendFile
        else:
            update = transaction.newRowDelta().validateDeletedFiles()
            add_file = update.addRows
        if change.recorded is not None:
            change.recorded.java_table.addTo(update)
        if change.read_snapshot is not None:
            update.validateFromSnapshot(change.read_snapshot)
        if change.refuses_foreign_rows:
            update.conflictDetectionFilter(self._java.every_row)
            update.validateNoConflictingDataFiles()
        for file in change.replaced:
            update.deleteFile(file)
        for file in change.files:
            add_file(file)
        # None if the snapshot has expired; then the validation fails
        read = self._base.snapshot(change.read_snapshot) if change.replaced else None
        if read is not None and read.sequenceNumber() and self._base.formatVersion() > 1:
            update.dataSequenceNumber(read.sequenceNumber())  # newer equality deletes still apply
        self._stage(update, ref, summary)

    def _stage(self, update: Any, ref: str, summary: Mapping[str, str]) -> None:
        for key, value in summary.items():
            update.set(key, value)
        try:
            update.toBranch(ref).commit()  # to the transaction, so it is not visible yet
        except Exception as error:
            if is_a(error, VALIDATION):
                raise StaleAttemptError(str(error).split("\n", 1)[0]) from error
            raise
        self.after = self._transaction.currentMetadata()
        self.snapshot = self._java.iceberg("util.SnapshotUtil").latestSnapshot(self.after, ref)
        self.change()

    # --- refs and properties

    def change(self) -> None:
        """Start a change to refs and properties. Adding a snapshot also starts a change."""
        self._builder = self._java.iceberg("TableMetadata").buildFrom(self.after)

    def publish(self, ref: str, snapshot: int) -> None:
        """Set a ref to a snapshot that exists on another branch."""
        self.snapshot = self._base.snapshot(snapshot)
        self.change()
        self._builder.setBranchSnapshot(snapshot, ref)

    def stand_on(self, ref: str, snapshot: int, summary: Mapping[str, str]) -> None:
        """Reset a ref to a snapshot, and add a snapshot without new rows."""
        branch = f"connect-py-rewind-{snapshot}"
        self._transaction.manageSnapshots().createBranch(branch, snapshot).commit()
        self._stage(self._transaction.newFastAppend(), branch, summary)
        self._builder.setBranchSnapshot(self.snapshot_id, ref).removeRef(branch)

    def begin_branch(self, name: str, snapshot: int | None) -> None:
        """Create a branch at a snapshot, or reset it, before a snapshot is added to the branch.

        `snapshot` is None if the table has no snapshot.
        """
        manage = self._transaction.manageSnapshots()
        if snapshot is None:
            if self._base.ref(name) is not None:
                manage.removeBranch(name).commit()
        elif self._base.ref(name) is None:
            manage.createBranch(name, snapshot).commit()
        else:
            manage.replaceBranch(name, snapshot).commit()

    def remove_snapshots(self, snapshots: Sequence[int]) -> list[Any]:
        """Remove snapshots in the same change, and return the Java snapshots."""
        removed = [self.after.snapshot(snapshot) for snapshot in snapshots]
        if removed:
            self._builder.removeSnapshots(self._java.objects(removed))
        return removed

    def set_tag(self, name: str, snapshot: int, keep_ms: int | None) -> None:
        """Set a tag. Expiration removes it at the age `keep_ms`, or never if `keep_ms` is None."""
        tag = self._java.iceberg("SnapshotRef").tagBuilder(snapshot)
        self._builder.setRef(name, (tag if keep_ms is None else tag.maxRefAgeMs(keep_ms)).build())

    def remove_ref(self, name: str) -> None:
        """Remove a branch or a tag."""
        self._builder.removeRef(name)

    def remove_compared(self, branch: str) -> None:
        """Remove a branch. The swap is rejected if the branch has moved.

        The branch is set before it is removed, because a REST catalog compares only refs that a
        change sets.
        """
        self._builder.setBranchSnapshot(self.snapshot_id, branch)
        self.remove_ref(branch)

    def drop_properties(self, names: Collection[str]) -> None:
        """Remove table properties in the same change."""
        self._builder.removeProperties(self._java.set(names))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties in the same change."""
        self._properties.update(properties)

    def swap(self, properties: Mapping[str, str]) -> None:
        """Swap the metadata once. `TableOperations.commit` neither retries nor cleans up.

        Args:
            properties: Table properties to set in the same change, in addition to those that
                `set_properties` has added.
        """
        if properties := {**self._properties, **properties}:
            self._builder.setProperties(self._java.map(properties))
        self.after = self._builder.build()
        self._operations.commit(self._base, self.after)

    def changed_refs(self) -> list[str]:
        """Return the branches and tags, except main, that the swap sets or removes."""
        before, after = self.base().refs, self._java.metadata(self.after).refs
        names = {*before, *after} - {MAIN}
        return sorted(name for name in names if before.get(name) != after.get(name))
