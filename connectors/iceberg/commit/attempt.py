"""What the attempts at one commit found and made, and small questions about snapshots and summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.table_update import SCRATCH_KEY, PreparedCommit
from connectors.iceberg.commit.cycle_rows import CycleRows
from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY, CommitRequest, EngineName
from connectors.iceberg.protocol.ledger import LedgerFormatError, LedgerProperty

if TYPE_CHECKING:
    from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata


class LedgerMovedError(Exception):
    """The table is not the version that this coordinator knows."""


@dataclass(slots=True)
class Found:
    """What steps 1 and 2 made of one head."""

    engine: EngineName
    because: str
    ref: str  # where the head is: the commit ref, or the branch of unpublished commits
    head: int | None
    rows: CycleRows
    branch: str | None = None
    scratch: int | None = None  # the branch's snapshot, if the MERGE changed anything
    deletes: Sequence[Any] = ()  # Java's delete files
    replaced_deletes: Sequence[Any] = ()  # delete files that `deletes` include
    data_files: Sequence[str] = ()  # those that `deletes` name
    names_all: bool = True  # each of `deletes` names its data file
    replaced_rows: int = 0
    pending: str = ""  # of the tables that follow this one: see `CycleAggregates`


@dataclass(slots=True)
class Attempts:
    """What one call of `commit` left behind so far."""

    found: list[Found] = field(default_factory=list)
    swaps: list[tuple[PreparedCommit, list[Any], Found]] = field(default_factory=list)
    open: bool = False  # a swap was sent and nothing was read since
    foreign: int = 0  # how often commits of others came in between


def own_snapshots(metadata: TableMetadata, branches: Sequence[str]) -> list[int]:
    """Scratch snapshots of these branches; one whose MERGE changed nothing points at a snapshot of main."""
    found = []
    for name in branches:
        snapshot = metadata.snapshots.get(metadata.refs[name])
        while snapshot is not None and snapshot["summary"].get(SCRATCH_KEY) == name:  # a repeated MERGE made several
            found.append(int(snapshot["snapshot-id"]))
            snapshot = metadata.snapshots.get(snapshot.get("parent-snapshot-id", -1))
    return found


def summary_of(request: CommitRequest, rows: CycleRows) -> dict[str, str]:
    """Of the snapshot of a commit with these rows."""
    return {**request.summary, **rows.summary, COMMIT_ID_KEY: request.commit_id}


def named_commit(text: str | None, commit_id: str) -> int | None:
    """The snapshot that the property names, if the property is of this commit."""
    if text is None or commit_id not in text:
        return None
    try:
        named = LedgerProperty.from_json(text)
    except LedgerFormatError:
        return None
    return named.snapshot if named.ledger.commit == commit_id else None


def count_in(snapshot: Snapshot, key: str) -> int:
    """A number in the summary of a snapshot; 0: it has none."""
    return int(snapshot["summary"].get(key, "0"))
