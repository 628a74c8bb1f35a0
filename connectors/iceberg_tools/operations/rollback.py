"""Roll back a branch to an earlier snapshot, or preview the effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry, entries
from connectors.iceberg_tools.history.table_point import NotInHistoryError, find_point, resolve_ref
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    TableArguments,
    TableOperation,
    TableTarget,
)
from connectors.iceberg_tools.refs.ledger_check import ConnectorEffect, effects
from connectors.iceberg_tools.refs.ref_changes import move_branch


class PreviewRollbackArguments(TableArguments, frozen=True, kw_only=True):
    """Selects the snapshot to roll back to."""

    to: str
    branch: Name | None = None  # None for the connector's branch


@dataclass(frozen=True, slots=True)
class RollbackPreview:
    """The effects of a rollback."""

    table: str
    ref: str
    head: int
    snapshot: int
    leaving: list[SnapshotEntry]  # snapshots that leave the history, newest first
    effects: list[ConnectorEffect]
    refused: str

    def to_json(self) -> dict[str, Any]:
        """Return the preview in the JSON form that the commands print."""
        return {
            "table": self.table,
            "ref": self.ref,
            "from": self.head,
            "to": self.snapshot,
            "leaving": [entry.to_json() for entry in self.leaving],
            "connectors": [each.to_json() for each in self.effects],
            "refused": self.refused or None,
        }


def preview_rollback(target: TableTarget, arguments: PreviewRollbackArguments) -> RollbackPreview:
    """Return the effects of a rollback. Read only.

    Raises:
        NotInHistoryError: The snapshot or the branch does not exist.
    """
    ref = arguments.branch or target.ref
    return preview_of(target.table, target.metadata(), ref, arguments.to, target.own_ref)


def preview_of(
    table: str, metadata: TableMetadata, ref: str, to: str, own_ref: Mapping[str, str] | None
) -> RollbackPreview:
    """Return the effects of rolling back a table with this metadata.

    Raises:
        NotInHistoryError: The snapshot or the branch does not exist.
    """
    head = resolve_ref(metadata, ref)
    if metadata.has_unpublished(ref):
        raise NotInHistoryError(
            "the table has unpublished commits; publish or reject them first with `connect-py gate`"
        )
    if ref in metadata.tags:
        raise NotInHistoryError(f"{ref} is a tag; move it with `connect-py tag --move`")
    snapshot = find_point(metadata, to, ref)
    history = entries(metadata, ref)
    numbers = [entry.id for entry in history]
    if snapshot not in numbers:
        refused = f"snapshot {snapshot} is not in the history of {ref}"
        return RollbackPreview(table, ref, head, snapshot, [], [], refused)
    changed = effects(metadata, ref, snapshot, own_ref) if snapshot != head else []
    refused = next(
        (f"connector group {each.group}: {each.refused}" for each in changed if each.refused), ""
    )
    return RollbackPreview(
        table, ref, head, snapshot, history[: numbers.index(snapshot)], changed, refused
    )


class RollbackArguments(TableArguments, frozen=True, kw_only=True):
    """A rollback that a user has previewed."""

    ref: Name
    head: int  # head of the ref; the rollback is refused if it has changed
    snapshot: int


def rollback(target: TableTarget, arguments: RollbackArguments) -> int:
    """Check the rollback again, apply it, and return the new head.

    Raises:
        NotInHistoryError: The branch does not exist.
        TableUnsuitableError: The table has changed, or a connector could not resume from the
            snapshot.
    """
    metadata, ref, snapshot = target.metadata(), arguments.ref, arguments.snapshot
    resolve_ref(metadata, ref)
    if ref in metadata.tags or snapshot not in {entry.id for entry in entries(metadata, ref)}:
        raise TableUnsuitableError(
            target.table, f"snapshot {snapshot} is not in the history of branch {ref}"
        )
    target.lake.run(target.table, move_branch, ref, arguments.head, snapshot, target.own_ref)
    return snapshot


PREVIEW_ROLLBACK = TableOperation(
    "preview-rollback", PreviewRollbackArguments, RollbackPreview, preview_rollback
)
ROLLBACK = TableOperation("rollback", RollbackArguments, int, rollback)
