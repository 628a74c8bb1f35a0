"""History of a table: snapshots of one ref, ledger properties, and data files in manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEDGER_PREFIX = "connect-py.ledger."
# summary entry of a snapshot that changes ledger positions and adds no rows; the value is `skip`
REWIND_KEY = "connect-py.rewind"
# summary entry of the first and last snapshots of a rebuild: the connector that loads the rows
REBUILD_KEY = "connect-py.rebuild"


def loading_group(loader: str) -> str:
    """Return the connect group ID of the connector that loads the rows of a rebuild."""
    return f"connect-{loader}"


@dataclass(frozen=True, slots=True)
class HistoricSnapshot:
    """One ancestor of the ref's head."""

    id: int
    timestamp_ms: int
    operation: str | None
    summary: Mapping[str, str]
    # epochs (`<number>-<nonce>`) in the names of the staged files that the snapshot added
    stagers: tuple[str, ...] = ()

    @property
    def groups(self) -> list[str]:
        """Connect groups with a ledger in the snapshot."""
        return sorted(
            key.removeprefix(LEDGER_PREFIX) for key in self.summary if key.startswith(LEDGER_PREFIX)
        )


@dataclass(frozen=True, slots=True)
class TableHistory:
    """History of a table at one point in time."""

    table: str
    ref: str
    uuid: str
    ref_exists: bool  # if False, this is the history of main
    properties: Mapping[str, str]  # connect group -> value of the ledger property
    ancestors: Sequence[HistoricSnapshot]  # newest first
    complete: bool  # False if the parent of the oldest ancestor has expired
    # ID of each existing snapshot -> connect groups with a ledger in the snapshot
    present: Mapping[int, frozenset[str]]
    live_files: int  # number of data files at the head
    live_twice: tuple[str, ...] = ()  # paths that the head's manifests contain more than once
    # files that two snapshots added: path, ID of the older snapshot, ID of the newer snapshot
    added_twice: tuple[tuple[str, int, int], ...] = ()
