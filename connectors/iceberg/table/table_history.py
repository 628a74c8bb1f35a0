"""History of a table: snapshots of one ref, ledger properties, and data files of manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEDGER_PREFIX = "connect-py.ledger."
# in the summary of a snapshot with positions and without rows: `skip`
REWIND_KEY = "connect-py.rewind"
# in the summary of snapshots that begin and end a rebuild: the connector that loads
REBUILD_KEY = "connect-py.rebuild"


def loading_group(loader: str) -> str:
    """Return the connect group of the connector that loads a rebuild."""
    return f"connect-{loader}"


@dataclass(frozen=True, slots=True)
class HistoricSnapshot:
    """One ancestor of the ref's head."""

    id: int
    timestamp_ms: int
    operation: str | None
    summary: Mapping[str, str]
    stagers: tuple[
        str, ...
    ] = ()  # epochs (`<number>-<nonce>`) in the names of the staged files that it added

    @property
    def groups(self) -> list[str]:
        """Connect groups with a ledger in the snapshot."""
        return sorted(
            key.removeprefix(LEDGER_PREFIX) for key in self.summary if key.startswith(LEDGER_PREFIX)
        )


@dataclass(frozen=True, slots=True)
class TableHistory:
    """History of a table at one time."""

    table: str
    ref: str
    uuid: str
    ref_exists: bool  # False: the history is main's
    properties: Mapping[str, str]  # group -> text of the ledger property
    ancestors: Sequence[HistoricSnapshot]  # newest first
    complete: bool  # False: the oldest ancestor's parent was expired
    # existing snapshots -> groups with a ledger in the snapshot
    present: Mapping[int, frozenset[str]]
    live_files: int  # data files of the head
    live_twice: tuple[str, ...] = ()  # paths that the head's manifests contain more than once
    added_twice: tuple[
        tuple[str, int, int], ...
    ] = ()  # path, older and newer snapshot that added it
