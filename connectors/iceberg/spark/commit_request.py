"""From staged files to one snapshot: what is asked, what came of it, and who may do it.

A commit is a compare-and-swap. The version that the caller read (table uuid, ledger snapshot, snapshot named by the
property) must still hold in the very transaction that lands; it is checked again in every retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from connectors.iceberg.protocol.ledger import TableVersion
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription, WriteMode

if TYPE_CHECKING:
    from connectors.iceberg.spark.staged_keys import StagedKeys

MAIN = "main"
SNAPSHOT_ID = "{snapshot-id}"  # in `CommitRequest.property_template`: the id of the new snapshot goes here
COMMIT_ID_KEY = "kafka.connect.commit-id"


class EngineName(Enum):
    """How a commit is made; the values are those of `iceberg.ext.commit-engine`."""

    AUTO = "auto"
    APPEND = "append"
    MERGE = "merge"
    DELTA = "delta"
    FULL_MERGE = "full merge"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One snapshot of one table. A request without files is valid: it writes the summary and the property only.

    After an unknown outcome the same request is made again; a commit that landed is then found by its id.
    """

    table: str
    commit_id: str  # also in `summary` as `kafka.connect.commit-id`; added if missing
    expected: TableVersion
    property_key: str  # name of the ledger in the summary and of the table property
    property_template: str  # text of the property, with `{snapshot-id}` where the new snapshot's id goes
    summary: Mapping[str, str]  # holds `property_key`
    files: Sequence[StagedFile] = ()
    mode: WriteMode = WriteMode.APPEND
    key_columns: Sequence[str] = ()  # MERGE only; those of tables that take them from records are unknown without files
    ordered: bool = False  # MERGE: staged rows say where they stand in the source, so a key may be staged twice
    properties: Mapping[str, str] = field(default_factory=dict)  # of the table, set in the same transaction
    ref: str = MAIN  # a branch that does not exist is created from main
    work_branch: str = "connect-work"  # MERGE engine only: `connect-<name>-<epoch>`
    file_prefix: str = "connect-"  # of delete files; that of the epoch's staged files, so that orphans are found
    attempt_limit: int = 8  # how often a commit is prepared anew because a foreign one came in between

    def __post_init__(self) -> None:
        if self.property_key not in self.summary:
            raise ValueError(f"the summary lacks {self.property_key}")
        if self.mode is WriteMode.MERGE and self.files and not self.key_columns:
            raise ValueError(f"table {self.table}: MERGE needs key columns")


class CommitStatus(Enum):
    """What became of a commit."""

    COMMITTED = "committed"
    CONFLICT = "conflict"  # our ledger, the property or the table is not what was expected: open the table again
    FAILED_RETRY = "failed, retry"  # foreign commits were in the way too often: ask again later
    UNKNOWN = "unknown"  # not among the ancestors now, and may still land: ask again with the same request


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What one commit did."""

    added_files: int = 0
    added_rows: int = 0
    replaced_rows: int = 0  # rows of the table that an upsert or a delete of this commit removed
    unmatched_patches: int = 0  # patched rows without a row to take the unavailable values from: these are null
    older_changes: int = 0  # changes that came too late by the order that the source tells, and were left out
    foreign_conflicts: int = 0  # times it was prepared anew
    milliseconds: int = 0


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The answer to a request."""

    status: CommitStatus
    engine: EngineName
    snapshot_id: int | None = None  # COMMITTED only
    reason: str = ""  # one line, for people
    counts: CommitCounts = field(default_factory=CommitCounts)
    because: str = ""  # why this engine


class CommitEngine(Protocol):
    """One way to make a commit. Called on the coordinator's thread only."""

    name: EngineName

    def commit(self, request: CommitRequest, staged: StagedKeys) -> CommitOutcome:
        """Try once to make one snapshot. `staged` are the keys of the request, for who needs them.

        Returns COMMITTED, CONFLICT, FAILED_RETRY or UNKNOWN; the caller repeats and looks for the commit id.

        Raises:
            TableMissingError, TableForbiddenError, TableUnsuitableError: It cannot be done.
            DuplicateKeyError: Two staged rows of one key.
            CatalogUnavailableError: Nothing was committed, and it may work later.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and why it was taken."""

    engine: EngineName
    reason: str  # one of few, without names: logs and metrics count by it


@dataclass(frozen=True, slots=True)
class TableState:
    """What the choice of an engine depends on, of the table and the ref that is committed to."""

    empty: bool  # it holds no rows
    copy_on_write: bool = False  # its owner says so
    order_hidden: bool = False  # its rows have an order, and no column that SQL would keep it in
    foreign_rows_refused: bool = False  # so that rows of others must be looked for, though it is empty
    holds_deletes: bool = True  # its format knows of them


def choose_engine(
    wanted: EngineName,
    mode: WriteMode,
    files: Sequence[StagedFile],
    table: TableState,
    remote: bool = False,
) -> EngineChoice:
    """Pick the engine of one commit.

    Facts, claims without files, and upserts into an empty table need no look at the table's rows. Upserts alone are not
    enough otherwise: a snapshot that is taken again, or a topic that is read again, brings keys that are there. Whether
    they are is what the delta engine finds out; see `as_it_went`.

    Args:
        wanted: `iceberg.ext.commit-engine`.
        mode: Of the table.
        files: What is staged.
        table: What is there.
        remote: Spark is behind Spark Connect, so only SQL reaches it.

    Raises:
        ValueError: Append was asked for, and there are rows to replace; or delta, and the format has no deletes.
    """
    only_rows = all(file.kind is StagedKind.ROWS for file in files)
    if mode is WriteMode.APPEND:
        return EngineChoice(EngineName.APPEND, "rows are appended")
    if not files:
        return EngineChoice(EngineName.APPEND, "there are no rows")
    if wanted is EngineName.APPEND and not only_rows:
        raise ValueError("commit engine 'append' cannot replace or delete rows")
    if wanted is EngineName.DELTA and not table.holds_deletes:
        raise ValueError("commit engine 'delta' needs a table of format version 2 or above")
    if wanted is not EngineName.AUTO:
        return EngineChoice(wanted, "the configuration says so")
    if table.empty and only_rows and not table.foreign_rows_refused:
        return EngineChoice(EngineName.APPEND, "the table is empty")
    if remote:
        return EngineChoice(EngineName.MERGE, "Spark is behind Spark Connect")
    if not table.holds_deletes:
        return EngineChoice(EngineName.MERGE, "the table's format has no deletes")
    if table.copy_on_write and table.order_hidden:
        return EngineChoice(EngineName.DELTA, "SQL would lose the order of rows")
    if table.copy_on_write:
        return EngineChoice(EngineName.MERGE, "the table is copy-on-write")
    return EngineChoice(EngineName.DELTA, "rows may replace others")


def may_merge_by_sql(wanted: EngineName, table: TableDescription, remote: bool) -> bool:
    """Whether some commit to the table may be a SQL MERGE: then the order of its rows has to be a column of it."""
    if table.mode is not WriteMode.MERGE or wanted not in (EngineName.AUTO, EngineName.MERGE):
        return False
    return wanted is EngineName.MERGE or remote or says_copy_on_write(table) or not holds_deletes(table)


def holds_deletes(table: TableDescription) -> bool:
    """Whether rows can be marked as deleted, and need not be rewritten."""
    return table.format_version >= 2


def why_not_merged(table: TableDescription, wanted: EngineName) -> str | None:
    """Why no engine can replace rows of a table, and what to do about it; None: one can."""
    if table.mode is not WriteMode.MERGE or holds_deletes(table):
        return None
    if wanted is EngineName.DELTA:
        return (
            "is of format version 1, which has no deletes: set the table's property format-version to 2, or "
            "iceberg.ext.commit-engine=auto"
        )
    if table.properties.get("write.merge.mode", "").lower() == "merge-on-read":
        return (
            "is of format version 1, which has no deletes, and its property write.merge.mode says merge-on-read: set "
            "format-version to 2, or write.merge.mode to copy-on-write"
        )
    return None


def says_copy_on_write(table: TableDescription) -> bool:
    """Whether its owner wants files rewritten; Iceberg's default, also copy-on-write, is no word of anybody."""
    return table.properties.get("write.merge.mode", "").lower() == "copy-on-write"


def as_it_went(choice: EngineChoice, wanted: EngineName, files: Sequence[StagedFile], replaced: int) -> EngineChoice:
    """What a delta turned out to be: with no staged key in the table its snapshot is an append, for Iceberg too."""
    if wanted is not EngineName.AUTO or choice.engine is not EngineName.DELTA or replaced:
        return choice
    if any(file.kind is not StagedKind.ROWS for file in files):
        return choice
    return EngineChoice(EngineName.APPEND, "no staged key is in the table")
