"""`TaskActions`: executes the decisions of `TaskState`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.protocol.actions import (
    CloseFiles,
    DescribeTopics,
    Discard,
    Fail,
    Pause,
    RequestCommit,
    Resume,
    Seek,
    Send,
    TaskAction,
)
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.messages import Message, Need
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.task.pending_records import PendingRecords

log = logging.getLogger(__name__)


def now_ms() -> int:
    """Return the time of a monotonic clock in milliseconds."""
    return int(time.monotonic() * 1000)


def epoch_of(state: TaskState) -> Epoch:
    """Return the coordinator's epoch, which the task receives before any rows."""
    if state.epoch is None:
        raise ConnectError("rows were delivered before the coordinator's epoch was received")
    return state.epoch


def place(batch: Batch, row: int) -> str:
    """Return the topic, partition, and offset of a row for error messages."""
    origin = batch.origin
    return (
        f"topic '{origin.topic}' partition {origin.partitions[row]} at offset {origin.offsets[row]}"
    )


class Hold(NamedTuple):
    """Reason for holding a partition, and the request that is sent to the coordinator."""

    table: str
    need: Need
    request: str


class MessageWriter(Protocol):
    """Writes messages to the coordinator. Messages may be lost."""

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages in order."""


class StagingGuard:
    """Context manager that records whether staging failed partway.

    After such a failure, the staged rows do not match `TaskState`, so a report from this task would
    lose rows. After a restart, the task reads the offsets of the open cycle again.
    """

    def __init__(self) -> None:
        self._failed = False

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._failed = self._failed or kind is not None

    def check(self) -> None:
        """Raise ConnectError if an earlier attempt to stage a poll or close a cycle failed."""
        if self._failed:
            raise ConnectError("staging failed earlier; restart the task")


class TaskActions:
    """Executes actions. Used by the task thread only."""

    def __init__(
        self,
        context: SinkTaskContext,
        state: TaskState,
        staging: StagingArea,
        pending: PendingRecords,
        writer: MessageWriter,
    ) -> None:
        self._context = context
        self._state = state
        self._staging = staging
        self._pending = pending
        self._writer = writer
        self.guard = StagingGuard()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Request the positions of assigned partitions from the coordinator."""
        # A topic that cannot be described now is described again while the task waits.
        topic_ids = self.topic_ids({p.topic for p in partitions}) or {}
        ids = {p: topic_ids.get(p.topic, "") for p in partitions}
        self.carry_out(self._state.assign(ids, self._committed(partitions), now_ms()))

    def _committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetMetadata | None]:
        """Return the metadata that the consumer group committed with its offsets."""
        try:
            committed = self._context.committed(partitions)
        except RetriableError as error:  # the coordinator looks up missing metadata
            log.warning("failed to fetch the committed offsets of the consumer group: %s", error)
            committed = {}
        marks = {p: OffsetMetadata.from_text(at.metadata) for p, at in committed.items()}
        foreign = [p for p, mark in marks.items() if mark is None]
        if foreign:
            log.warning(
                "the offsets of %s were not committed by this connector; once its tables have a "
                "ledger, it uses the ledger and ignores offsets that other tools set",
                ", ".join(map(str, foreign)),
            )
        return {p: marks.get(p) for p in partitions}

    def carry_out(self, actions: Iterable[TaskAction]) -> None:
        """Execute actions in order.

        Raises:
            ConnectError: The task must fail.
        """
        for action in actions:
            match action:
                case Send(message):
                    self._writer.send([message])
                case Pause(partitions):
                    self._context.pause(*partitions)
                case Resume(partitions):
                    self._context.resume(*partitions)
                case Seek(partition, offset):
                    self._pending.drop(partition)
                    self._context.offset({partition: offset})
                case Discard(partition):
                    self._pending.drop(partition)
                    self._staging.discard(partition)
                case RequestCommit():
                    self._context.request_commit()
                case DescribeTopics():
                    topic_ids = self.topic_ids()
                    if topic_ids is not None:
                        self.carry_out(self._state.on_topic_ids(topic_ids, now_ms()))
                case CloseFiles(cycle):
                    self._close_files(cycle)
                case Fail(reason):
                    raise ConnectError(reason)

    def hold(self, partition: TopicPartition, hold: Hold) -> None:
        """Pause a partition at the offset where the poll began, until the coordinator responds."""
        self._pending.drop(partition)
        self.carry_out(self._state.hold(partition, *hold, now_ms()))

    def _close_files(self, cycle: int) -> None:
        """Describe the topics again, close the files, and report them (step 2 of the cycle).

        The topics are described first because nothing may fail between closing and reporting the
        files. No rows are read in between. If the cluster does not respond or credentials have
        expired, this task skips the cycle, and a later cycle commits the rows.

        Raises:
            ConnectError: Writing failed. The task must fail. After a restart, it reads the rows
                again.
        """
        epoch, topic_ids = self._state.epoch, self.topic_ids()
        if epoch is None or topic_ids is None:
            return
        fault_point("before_close_files")
        try:
            with self.guard:
                self._staging.renew(self._state.answer)
                expired = self._staging.expired()
                staged = {} if expired else self._staging.close_cycle(cycle)
        except (OSError, ConnectError) as error:
            raise ConnectError(f"failed to write staged files of cycle {cycle}: {error}") from error
        if expired:
            log.warning(
                "skipping cycle %d: the vended credentials for %s have expired, and the catalog "
                "has not provided newer ones yet",
                cycle,
                ", ".join(expired),
                extra={"action": "keys_ended"},
            )
            return
        fault_point("after_close_files")
        self.carry_out(self._state.report(cycle, staged, topic_ids, now_ms()))
        fault_point("after_report")

    def topic_ids(self, topics: Iterable[str] | None = None) -> dict[str, str] | None:
        """Return the current IDs of the topics, or of all assigned topics by default.

        The ID of a deleted topic is empty, unlike the ID of any existing topic. Return None if the
        cluster does not respond.
        """
        if topics is None:
            topics = {p.topic for p in self._context.assignment()}
        ids = {}
        for topic in topics:
            try:
                ids[topic] = self._context.topic_id(topic)
            except NotFoundError:
                ids[topic] = ""
            except RetriableError as error:
                log.warning("failed to describe topic %s: %s", topic, error)
                return None
        return ids
