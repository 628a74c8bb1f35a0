"""What the state machines ask their owners to do. Order within a returned list matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TableVersion
from connectors.iceberg.protocol.messages import CoordinatorMessage, Need, TaskMessage
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition
from connectors.iceberg.table.table import StagedFile

# --- both sides


@dataclass(frozen=True, slots=True)
class Send:
    """Write one message to the channel."""

    message: CoordinatorMessage | TaskMessage


@dataclass(frozen=True, slots=True)
class Fail:
    """Something that a person must decide. End and report the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """Ask the cluster for the topics as they are now.

    A coordinator is answered with `on_topics` (ids, partition counts, log starts), a task with
    `on_topic_ids`.
    """


# --- coordinator


@dataclass(frozen=True, slots=True)
class Stop:
    """Another coordinator leads, or the ground has moved: end quietly, let a new life begin."""

    reason: str
    overtaken: bool = False  # another one leads


class EpochEndedError(Exception):
    """This epoch is over, for the reason that the action names."""

    def __init__(self, action: Stop | Fail) -> None:
        self.action = action


def failed(why: str) -> EpochEndedError:
    """The error that fails the task."""
    return EpochEndedError(Fail(why))


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Load the table from the catalog, never from a cache; answer with `on_table_loaded`."""

    table: str


@dataclass(frozen=True, slots=True)
class PrepareTable:
    """Open, create or evolve; answer with `on_table_prepared` or `on_table_refused`."""

    table: str
    need: Need
    schema: str  # JSON text of the task, opaque


@dataclass(frozen=True, slots=True)
class ReadGroupOffsets:
    """Read the group's offsets and marks of all partitions; answer with `on_group_offsets`."""


@dataclass(frozen=True, slots=True)
class ProveLeadership:
    """Write to the channel in a fresh transaction; answer with `on_leadership`."""

    token: str


@dataclass(frozen=True, slots=True)
class CommitTable:
    """Make one snapshot of one table; answer with `on_commit_outcome`. Asked again, it is the same
    object.

    `expected` must hold in the very transaction that lands, checked again in every retry. The
    summary carries `ledger` under our keys; the property of the same transaction is `property_text`
    with the snapshot's id.
    """

    table: str
    commit: str  # uuid
    expected: TableVersion
    ledger: Ledger
    opened: Mapping[TopicPartition, Position]
    files: Mapping[TopicPartition, Sequence[StagedFile]]
    valid_through_ms: int | None  # None: not every partition reported rows with a time

    def property_text(self, snapshot: str) -> str:
        """`snapshot`: its id, or what stands for it until it is known."""
        return LedgerProperty.template(self.ledger, self.opened, snapshot)


@dataclass(frozen=True, slots=True)
class CleanFiles:
    """Remove staged files of epochs below `epoch` under this table, never what a snapshot
    references."""

    table: str
    uuid: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """A table holds the floor back. For logs, metrics and a bounded number of tries."""

    table: str
    reason: str
    consecutive: int  # failed cycles in a row


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that the operator should know of; the connector goes on."""

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

# --- task


@dataclass(frozen=True, slots=True)
class Pause:
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Resume:
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Seek:
    """Make `offset` the next one read; rows of this partition already in hand are dropped."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Throw away what is staged for this partition and not yet reported."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class CloseFiles:
    """Close the staged files and describe the topics again, then call `report` with both."""

    cycle: int


@dataclass(frozen=True, slots=True)
class RequestCommit:
    """Ask the framework for a group commit soon: a mark of the new epoch is due."""


TaskAction = (
    Send | Fail | DescribeTopics | Pause | Resume | Seek | Discard | CloseFiles | RequestCommit
)
