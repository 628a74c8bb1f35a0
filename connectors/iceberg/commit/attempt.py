"""`Attempt`: one try of a commit on one head of the table, and how a commit is found in its
metadata."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.commit.cycle_rows import CycleRows
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.table_change import TableChange
from connectors.iceberg.protocol.commit_request import (
    COMMIT_ID_KEY,
    CommitRequest,
)
from connectors.iceberg.protocol.ledger import LedgerFormatError, LedgerProperty, table_version
from connectors.iceberg.protocol.table_metadata import TableMetadata


class LedgerMovedError(Exception):
    """The table has another version than the coordinator expects: another coordinator or a user
    changed it."""


@dataclass(slots=True)
class Attempt:
    """One try of a commit on one head of the table."""

    cycle: CycleTable
    reason: str  # for the strategy
    target_ref: str  # the ref of the new snapshot; the approval rule may redirect it
    rows: CycleRows
    change: TableChange
    reads_table: bool = False  # set by rules: their results depend on the rows at the head

    def check_valid_for(self, base: TableMetadata, request: CommitRequest) -> None:
        """Check that the change of this attempt can be applied to newer metadata (rule 16).

        Raises: StaleAttemptError: The commit ref was redirected or rolled back, or it moved
            although the rows or the change
                depend on the head.
        """
        ref, head = self.cycle.request.ref, self.cycle.head
        if request.ref != ref:
            raise StaleAttemptError(
                "commits that await approval were published or discarded meanwhile"
            )
        current = base.head(ref)
        number = None if head is None else head["snapshot-id"]
        if (None if current is None else current["snapshot-id"]) == number:
            return
        if head is not None and all(
            each["snapshot-id"] != number for each in base.ancestors(current)
        ):
            raise StaleAttemptError(f"{ref} was rolled back meanwhile")
        if self.reads_table or self.rows.reads_table:
            raise StaleAttemptError(f"{ref} moved after its rows were read")
        if self.change.is_bound_to_head:
            raise StaleAttemptError(
                f"{ref} moved, and the changes of the MERGE are valid only on the head it read"
            )


def find_commit(metadata: TableMetadata, request: CommitRequest) -> int | None:
    """Return the snapshot of a commit, or None if it has not landed."""
    if metadata.uuid != request.expected.uuid:
        return None
    snapshot_id = metadata.find_commit(request.ref, request.commit_id)
    if snapshot_id is None:  # it may have expired
        return _named_snapshot(metadata.properties.get(request.property_key), request.commit_id)
    return snapshot_id


def check_ledger(metadata: TableMetadata, request: CommitRequest) -> None:
    """Raise LedgerMovedError if the table does not have the expected version (rule 16)."""
    version = table_version(metadata.view(request.ref, request.property_key))
    if version != request.expected:
        raise LedgerMovedError(f"expected {request.expected}, found {version}")


def snapshot_summary(request: CommitRequest, rows: CycleRows) -> dict[str, str]:
    """Return the summary of the snapshot of a commit."""
    return {**request.summary, **rows.summary, COMMIT_ID_KEY: request.commit_id}


def _named_snapshot(text: str | None, commit_id: str) -> int | None:
    """Return the snapshot that the ledger property names, if the property was written by this
    commit."""
    if text is None or commit_id not in text:
        return None
    try:
        ledger_property = LedgerProperty.from_json(text)
    except LedgerFormatError:
        return None
    return ledger_property.snapshot if ledger_property.ledger.commit == commit_id else None
