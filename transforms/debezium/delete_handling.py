"""What becomes of delete events and tombstones when envelopes are unwrapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Deletes(Enum):
    """What a delete event becomes."""

    DROP = "drop"
    NULL = "null"  # a null value that keeps the schema of the row
    TOMBSTONE = "tombstone"  # neither value nor schema
    REWRITE = "rewrite"  # the row before, marked as deleted


@dataclass(frozen=True, slots=True)
class DeleteHandling:
    """One mode: what delete events become, and whether tombstones are dropped."""

    deletes: Deletes
    drop_tombstones: bool

    @property
    def rewrites(self) -> bool:
        """Rows carry the member `__deleted`."""
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
