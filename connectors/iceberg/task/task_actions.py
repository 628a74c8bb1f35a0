"""`TaskActions`: carries out what `TaskState` decides."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

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
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.task.poll import Poll

log = logging.getLogger(__name__)


def now_ms() -> int:
    """Of a clock that only goes forward."""
    return int(time.monotonic() * 1000)


class MessageWriter(Protocol):
    """Where messages for the coordinator go; they may be lost."""

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages in order."""


class StagingGuard:
    """Remembers that a step of staging, which runs `with` it, broke off: what is staged is not what
    the state says.

    Offsets given up in a closing commit are read again by the next task; a report of now would hide
    rows.
    """

    def __init__(self) -> None:
        self._broken = False

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._broken = self._broken or kind is not None

    def check(self) -> None:
        """Refuse to go on after a poll was staged, or a cycle closed, in part."""
        if self._broken:
            raise ConnectError("staging broke off earlier; the task must start again")


class TaskActions:
    """Used by the task thread only."""

    def __init__(
        self,
        context: SinkTaskContext,
        state: TaskState,
        stage: Stage,
        poll: Poll,
        writer: MessageWriter,
    ) -> None:
        self._context = context
        self._state = state
        self._stage = stage
        self._poll = poll
        self._writer = writer
        self.guard = StagingGuard()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask the coordinator where these partitions stand."""
        # Topics that cannot be described now are asked for again while we wait to be attached.
        topic_ids = self.topic_ids({p.topic for p in partitions}) or {}
        ids = {p: topic_ids.get(p.topic, "") for p in partitions}
        self.carry_out(self._state.assign(ids, self._committed(partitions), now_ms()))

    def _committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetMetadata | None]:
        """What stands beside the group's offsets."""
        try:
            committed = self._context.committed(partitions)
        except RetriableError as error:  # marks only spare a detour: the coordinator reads them too
            log.warning("the group's offsets are not known now: %s", error)
            committed = {}
        marks = {p: OffsetMetadata.from_text(at.metadata) for p, at in committed.items()}
        foreign = [p for p, mark in marks.items() if mark is None]
        if foreign:
            log.warning(
                "the group's offsets of %s were not committed by this connector: once its tables "
                "have a ledger, "
                "these say where it reads, and offsets that other tools set do not count",
                ", ".join(map(str, foreign)),
            )
        return {p: marks.get(p) for p in partitions}

    def carry_out(self, actions: Iterable[TaskAction]) -> None:
        """Do these, in their order.

        Raises:
            ConnectError: The task must not go on.
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
                    self._poll.drop(partition)
                    self._context.offset({partition: offset})
                case Discard(partition):
                    self._poll.drop(partition)
                    self._stage.discard(partition)
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

    def hold(self, partition: TopicPartition, table: str, need: Need, request: str) -> None:
        """Stop a partition until the coordinator has answered for a table."""
        self.carry_out(self._state.hold(partition, table, need, request, now_ms()))

    def _close_files(self, cycle: int) -> None:
        """Step 2: describe the topics again, close the files, report.

        The topics come first: no row is read meanwhile, and once files are closed nothing may stand
        between them and their report. When the cluster does not answer, or keys to the storage have
        ended and newer ones are on their way, the cycle goes without us and a later one takes the
        rows.

        Raises: ConnectError: The storage refuses; the task must not go on, its rows are read again
            by the next one.
        """
        epoch, topic_ids = self._state.epoch, self.topic_ids()
        if epoch is None or topic_ids is None:
            return
        fault_point("before_close_files")
        try:
            with self.guard:
                self._stage.renew(self._state.answer)
                ended = self._stage.ended()
                staged = {} if ended else self._stage.close_cycle(cycle)
        except (OSError, ConnectError) as error:
            raise ConnectError(
                f"staged files of cycle {cycle} cannot be written: {error}"
            ) from error
        if ended:
            log.warning(
                "rows wait for another cycle: keys to the storage that the catalog lent for %s "
                "have ended, and newer ones are not here yet",
                ", ".join(ended),
                extra={"action": "keys_ended"},
            )
            return
        fault_point("after_close_files")
        self.carry_out(self._state.report(cycle, staged, topic_ids, now_ms()))
        fault_point("after_report")

    def topic_ids(self, topics: Iterable[str] | None = None) -> dict[str, str] | None:
        """The ids of these topics, ours unless given, as the cluster describes them now.

        A topic that is gone has an empty id, which no topic has. None: the cluster does not answer.
        """
        found = {}
        for topic in (
            topics if topics is not None else {p.topic for p in self._context.assignment()}
        ):
            try:
                found[topic] = self._context.topic_id(topic)
            except NotFoundError:
                found[topic] = ""
            except RetriableError as error:
                log.warning("topic %s cannot be described now: %s", topic, error)
                return None
        return found
