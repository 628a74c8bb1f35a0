"""From staged files to one snapshot: what is asked, and what came of it.

A commit is a compare-and-swap. The version that the caller read (table uuid, ledger snapshot,
snapshot named by the property) must still hold in the very transaction that lands; it is checked
again in every retry.
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
# in `CommitRequest.property_template`: the id of the new snapshot goes here
SNAPSHOT_ID = "{snapshot-id}"
COMMIT_ID_KEY = "kafka.connect.commit-id"
TASK_ID_KEY = "kafka.connect.task-id"


class EngineName(Enum):
    """How a commit is made, for logs and metrics."""

    APPEND = "append"
    MERGE = "merge"
    FULL_MERGE = "full merge"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the configuration says of commits."""

    full_merge: bool = False  # `iceberg.ext.commit-engine=merge`
    refuse_foreign_rows: bool = False  # `iceberg.ext.foreign-writers=refuse`


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One snapshot of one table. A request without files is valid: it writes the summary and the
    property only.

    After an unknown outcome the same request is made again; a commit that landed is then found by
    its id.
    """

    table: str
    commit_id: str  # also in `summary` as `kafka.connect.commit-id`; added if missing
    expected: TableVersion
    property_key: str  # name of the ledger in the summary and of the table property
    property_template: (
        str  # text of the property, with `{snapshot-id}` where the new snapshot's id goes
    )
    summary: Mapping[str, str]  # holds `property_key`
    files: Sequence[StagedFile] = ()
    mode: WriteMode = WriteMode.APPEND
    key_columns: Sequence[
        str
    ] = ()  # MERGE only; those of tables that take them from records are unknown without files
    # MERGE: staged rows say where they stand in the source, so a key may be staged twice
    ordered: bool = False
    # of the table, set in the same transaction
    properties: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[TagRule] = ()  # that are due, or too old, change in the same transaction
    ledger_tag: str | None = None  # follows the commits if it is kept, else it is removed
    keep_ledger_tag: bool = False
    ref: str = MAIN  # a branch that does not exist is created from main
    # of commits that readers do not see; while it is ahead of `ref`, commits go there
    unpublished_branch: str | None = None
    expectations: Sequence[Expectation] = ()
    step: CycleStep | None = None  # of the user's own, over the rows
    aggregates: Sequence[CycleAggregate] = ()  # tables that follow this one
    # of what the step and aggregates return
    evolution: EvolutionPolicy = field(default_factory=dict)
    # whether the sink creates such tables: a new one gets the columns of the step
    creates: bool = False
    rejected_table: str = ""  # where rows go that are left out and kept
    # prefix of scratch branches that earlier releases left behind (rule 40)
    work_branch: str = "connect-work"
    file_prefix: str = "connect-"  # of the files that a commit writes; rule 18 finds them by it
    # how often a commit is prepared anew because a foreign one came in between
    attempt_limit: int = 8

    def __post_init__(self) -> None:
        if self.property_key not in self.summary:
            raise ValueError(f"the summary lacks {self.property_key}")
        if self.mode is WriteMode.MERGE and self.files and not self.key_columns:
            raise ValueError(f"table {self.table}: MERGE needs key columns")


class CommitStatus(Enum):
    """What became of a commit, as far as the committer can tell."""

    COMMITTED = "committed"
    # our ledger, the property or the table is not what was expected: open the table again
    CONFLICT = "conflict"
    FAILED_RETRY = "failed, retry"  # foreign commits were in the way too often: ask again later
    # not among the ancestors now, and may still land: ask again with the same request
    UNKNOWN = "unknown"
    MISSING = "missing"  # the table does not exist
    FAILED = "failed"  # certainly not landed: forbidden, invalid, out of space


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What one commit did."""

    added_files: int = 0
    added_rows: int = 0
    replaced_rows: int = 0  # rows of the table that an upsert or a delete of this commit removed
    # patched rows without a row to take the unavailable values from: these are null
    unmatched_patches: int = 0
    # changes that came too late by the order that the source tells, and were left out
    older_changes: int = 0
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
    # rows by expectation that was not met; of a query 0
    failed: Mapping[str, int] = field(default_factory=dict)
    unpublished: bool = False  # the snapshot is on the branch of unpublished commits
