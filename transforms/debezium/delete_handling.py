"""Handling of delete events and tombstones when envelopes are unwrapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Deletes(Enum):
    """Result of unwrapping a delete event."""

    DROP = "drop"
    NULL = "null"  # a null value with the schema of the row
    TOMBSTONE = "tombstone"  # a null value without a schema
    REWRITE = "rewrite"  # the row before the delete, marked as deleted


@dataclass(frozen=True, slots=True)
class DeleteHandling:
    """Defines how one delete handling mode treats delete events and tombstones."""

    deletes: Deletes
    drop_tombstones: bool

    @property
    def rewrites(self) -> bool:
        """Return True if rows have the field `__deleted`."""
        return self.deletes is Deletes.REWRITE


MODES: Mapping[str, DeleteHandling] = {
    "drop": DeleteHandling(Deletes.DROP, drop_tombstones=True),
    "tombstone": DeleteHandling(Deletes.NULL, drop_tombstones=True),
    "rewrite": DeleteHandling(Deletes.REWRITE, drop_tombstones=True),
    "rewrite-with-tombstone": DeleteHandling(Deletes.REWRITE, drop_tombstones=False),
    "delete-to-tombstone": DeleteHandling(Deletes.TOMBSTONE, drop_tombstones=True),
}
LEGACY_MODES: Mapping[str, Deletes] = {
    "drop": Deletes.DROP,
    "rewrite": Deletes.REWRITE,
    "none": Deletes.NULL,
}
