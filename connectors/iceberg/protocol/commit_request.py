"""`CommitRequest` and `CommitOutcome`: request and outcome of a commit of staged files.

A commit creates one snapshot and is a compare-and-swap. Its transaction succeeds only if the table
still has the version that the caller read: the table UUID, the ID of the snapshot with the newest
ledger, and the snapshot ID in the table property. Every attempt checks this version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.config.cycle_step import CycleStep
from connectors.iceberg.config.expectations import Expectation
from connectors.iceberg.config.tag_schedule import TagRule
from connectors.iceberg.protocol.ledger import TableVersion
from connectors.iceberg.table.schema_change import EvolutionPolicy
from connectors.iceberg.table.table import StagedFile, WriteMode

MAIN = "main"
# placeholder for the ID of the new snapshot in `CommitRequest.property_template`
SNAPSHOT_ID = "{snapshot-id}"
COMMIT_ID_KEY = "kafka.connect.commit-id"
TASK_ID_KEY = "kafka.connect.task-id"


class EngineName(Enum):
    """Engine that performs a commit, as named in logs and metrics."""

    APPEND = "append"
    MERGE = "merge"
    FULL_MERGE = "full merge"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings for the choice of the commit engine and for the treatment of other writers."""

    full_merge: bool = False  # `iceberg.ext.commit-engine=merge`
    refuse_foreign_rows: bool = False  # `iceberg.ext.foreign-writers=refuse`


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Request for one snapshot of one table.

    A request without files is valid and writes only the summary and the property. If the outcome is
    unknown, the same request is repeated. A commit that has succeeded is recognized by its ID.
    """

    table: str
    commit_id: str  # also in `summary` under `kafka.connect.commit-id`; added if missing
    expected: TableVersion
    property_key: str  # key of the ledger in the summary, and name of the table property
    property_template: str  # value of the property, with the placeholder `SNAPSHOT_ID`
    summary: Mapping[str, str]  # contains `property_key`
    files: Sequence[StagedFile] = ()
    mode: WriteMode = WriteMode.APPEND
    # for MERGE; may be empty in a request without files if the records determine the key columns
    key_columns: Sequence[str] = ()
    # for MERGE; True if staged rows include their source position, so a key may occur repeatedly
    ordered: bool = False
    # table properties to set in the same transaction
    properties: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[TagRule] = ()  # due tags are created and outdated tags are removed
    # tag that is moved to the new snapshot if `keep_ledger_tag` is True, and removed otherwise
    ledger_tag: str | None = None
    keep_ledger_tag: bool = False
    ref: str = MAIN  # a missing branch is created from main
    # branch for commits awaiting approval; used instead of `ref` while it is ahead of `ref`
    unpublished_branch: str | None = None
    expectations: Sequence[Expectation] = ()
    step: CycleStep | None = None  # user-defined query or function that transforms the rows
    aggregates: Sequence[CycleAggregate] = ()  # tables that are updated by commits to this table
    # schema evolution for the results of the step and the aggregates
    evolution: EvolutionPolicy = field(default_factory=dict)
    # True if the sink creates missing tables; a new table gets its columns from the step's result
    creates: bool = False
    rejected_table: str = ""  # table for the rows that expectations reject
    # prefix of scratch branches from earlier releases (rule 40 of the commit protocol)
    work_branch: str = "connect-work"
    # prefix of the names of new files, which identifies files to delete under rule 18
    file_prefix: str = "connect-"
    # maximum number of attempts if other writers commit concurrently
    attempt_limit: int = 8

    def __post_init__(self) -> None:
        if self.property_key not in self.summary:
            raise ValueError(f"missing summary key {self.property_key}")
        if self.mode is WriteMode.MERGE and self.files and not self.key_columns:
            raise ValueError(f"table {self.table}: MERGE requires key columns")


class CommitStatus(Enum):
    """Outcome of a commit, as far as the committer can determine it."""

    COMMITTED = "committed"
    CONFLICT = "conflict"  # the table does not have the expected version; open it again
    FAILED_RETRY = "failed, retry"  # too many concurrent commits by other writers; retry later
    UNKNOWN = "unknown"  # not in the table's history, but may still succeed; repeat the request
    MISSING = "missing"  # the table does not exist
    FAILED = "failed"  # definitely not committed, for example forbidden, invalid, or out of space


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """Statistics for one commit."""

    added_files: int = 0
    added_rows: int = 0
    replaced_rows: int = 0  # rows that this commit's upserts and deletes removed
    # partial rows that matched no existing row, so their unavailable values are null
    unmatched_patches: int = 0
    older_changes: int = 0  # changes that were dropped because the table has newer changes
    foreign_conflicts: int = 0  # attempts that failed because of other writers
    milliseconds: int = 0


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """Outcome of a request."""

    status: CommitStatus
    engine: EngineName
    snapshot_id: int | None = None  # COMMITTED only
    reason: str = ""  # one line for users
    counts: CommitCounts = field(default_factory=CommitCounts)
    because: str = ""  # reason for the choice of the engine
    # number of violating rows by violated expectation; 0 for an expectation that is a query
    failed: Mapping[str, int] = field(default_factory=dict)
    unpublished: bool = False  # True if the commit awaits approval
