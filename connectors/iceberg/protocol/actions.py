"""Actions that the state machines return. Their owners perform them in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TableVersion
from connectors.iceberg.protocol.messages import CoordinatorMessage, Need, TaskMessage
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition
from connectors.iceberg.table.table import StagedFile

# Coordinator and task


@dataclass(frozen=True, slots=True)
class Send:
    """Write a message to the channel."""

    message: CoordinatorMessage | TaskMessage


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the task or connector with a reason. A user must decide how to continue."""

    reason: str


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """Describe the source topics.

    The owner of a coordinator passes topic IDs, partition counts, and log start offsets to
    `on_topics`. The owner of a task passes topic IDs to `on_topic_ids`.
    """


# Coordinator


@dataclass(frozen=True, slots=True)
class Stop:
    """End this run without an error, and start a new run.

    Either another coordinator is the leader, or a change requires a restart.
    """

    reason: str
    overtaken: bool = False  # True if another coordinator is the leader


class EpochEndedError(Exception):
    """Raised to end the epoch. The action contains the reason."""

    def __init__(self, action: Stop | Fail) -> None:
        self.action = action


def failed(reason: str) -> EpochEndedError:
    """Return the error that ends the epoch and fails the connector."""
    return EpochEndedError(Fail(reason))


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Load a table from the catalog, never from a cache, and call `on_table_loaded`."""

    table: str


@dataclass(frozen=True, slots=True)
class PrepareTable:
    """Open, create, or evolve a table.

    Then, call `on_table_prepared`, `on_table_refused`, or `on_table_waits`.
    """

    table: str
    need: Need
    schema: str  # opaque schema from the task


@dataclass(frozen=True, slots=True)
class ReadGroupOffsets:
    """Read the group offsets and their metadata, and call `on_group_offsets`."""


@dataclass(frozen=True, slots=True)
class ProveLeadership:
    """Write to the channel in a new transaction, and call `on_leadership` with the result."""

    token: str


@dataclass(frozen=True, slots=True)
class CommitTable:
    """Commit one snapshot of a table, and call `on_commit_outcome`.

    The transaction may succeed only if the table has the version `expected`. Every attempt checks
    this. The transaction also writes `ledger` to the snapshot summary under the connector's key,
    and `property_text` with the snapshot ID to the table property. If the commit is repeated, the
    action is the same object.
    """

    table: str
    commit: str  # UUID
    expected: TableVersion
    ledger: Ledger
    opened: Mapping[TopicPartition, Position]
    files: Mapping[TopicPartition, Sequence[StagedFile]]
    # Unix time up to which the table will have all records, or None if unknown
    valid_through_ms: int | None

    def property_text(self, snapshot: str) -> str:
        """Encode the table property. `snapshot` is the snapshot ID or its placeholder."""
        return LedgerProperty.template(self.ledger, self.opened, snapshot)


@dataclass(frozen=True, slots=True)
class CleanFiles:
    """Delete files of a table that were staged before `epoch` and are not part of a snapshot."""

    table: str
    uuid: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """Log and count a failed commit. The floor does not advance until the table has caught up."""

    table: str
    reason: str
    consecutive: int  # number of consecutive failed cycles


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a warning. The connector continues."""

    text: str


CoordinatorAction = (
    Send
    | Warn
    | Stop
    | Fail
    | LoadTable
    | PrepareTable
    | ReadGroupOffsets
    | DescribeTopics
    | ProveLeadership
    | CommitTable
    | CleanFiles
    | ReportFailure
)

# Task


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the consumer for these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the consumer for these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Seek:
    """Seek to an offset in a partition, and drop the records that were polled from it."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop a partition's staged rows that have not been reported."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class CloseFiles:
    """Close the staged files, describe the topics, and call `report` with both results."""

    cycle: int


@dataclass(frozen=True, slots=True)
class RequestCommit:
    """Request an offset commit soon, because the new epoch requires new offset metadata."""


TaskAction = (
    Send | Fail | DescribeTopics | Pause | Resume | Seek | Discard | CloseFiles | RequestCommit
)
