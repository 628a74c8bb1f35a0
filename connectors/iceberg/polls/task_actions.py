"""`TaskActions`: carries out what `TaskState` asks for, and knows whether what is staged is whole."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.api.record import TopicPartition
from connectors.iceberg.faults import fault_point
from connectors.iceberg.polls.poll import BlockedPartition, TaskParts, now_ms
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
from connectors.iceberg.protocol.positions import Epoch

log = logging.getLogger(__name__)


class TaskActions:
    """Owned by the task thread."""

    def __init__(self, parts: TaskParts) -> None:
        self._context = parts.context
        self._state = parts.state
        self._stage = parts.stage
        self._poll = parts.poll
        self._writer = parts.writer
        self._broken = False  # what is staged is not what the state says: nothing is reported any more

    def carry_out(self, actions: Iterable[TaskAction]) -> None:
        """One after the other, in the order given."""
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

    def _close_files(self, cycle: int) -> None:
        """Step 2: describe the topics again, close the files, report.

        The topics come first: no row is read meanwhile, and once files are closed nothing may stand between them and
        their report. When the cluster does not answer, or keys to the storage have ended and newer ones are on their
        way, the cycle goes without us and a later one takes the rows.

        Raises:
            ConnectError: The storage refuses; the task must not go on, its rows are read again by the next one.
        """
        epoch, topic_ids = self._state.epoch, self.topic_ids()
        if epoch is None or topic_ids is None:
            return
        fault_point("before_close_files")
        try:
            with self.whole():
                self._stage.renew(self._state.answer)
                ended = self._stage.ended()
                staged = {} if ended else self._stage.close_cycle(cycle)
        except (OSError, ConnectError) as error:
            raise ConnectError(f"staged files of cycle {cycle} cannot be written: {error}") from error
        if ended:
            log.warning(
                "rows wait for another cycle: keys to the storage that the catalog lent for %s have ended, and newer "
                "ones are not here yet", ", ".join(ended), extra={"action": "keys_ended"},
            )  # fmt: skip
            return
        fault_point("after_close_files")
        self.carry_out(self._state.report(cycle, staged, topic_ids, now_ms()))
        fault_point("after_report")

    def topic_ids(self, topics: Iterable[str] | None = None) -> dict[str, str] | None:
        """The ids of these topics, ours unless given, as the cluster describes them now.

        A topic that is gone has an empty id, which no topic has. None: the cluster does not answer.
        """
        found = {}
        for topic in topics if topics is not None else {p.topic for p in self._context.assignment()}:
            try:
                found[topic] = self._context.topic_id(topic)
            except NotFoundError:
                found[topic] = ""
            except RetriableError as error:
                log.warning("topic %s cannot be described now: %s", topic, error)
                return None
        return found

    def epoch(self) -> Epoch:
        """Of the coordinator that is followed."""
        epoch = self._state.epoch
        if epoch is None:
            raise ConnectError("rows are handled before any coordinator was heard of")
        return epoch

    def hold_partition(self, partition: TopicPartition, why: BlockedPartition) -> None:
        """Stop a partition where the poll began, and forget what the poll brought of it."""
        self._poll.drop(partition)
        self.carry_out(self._state.hold(partition, why.table, why.need, why.request, now_ms()))

    def check_whole(self) -> None:
        """Refuse to go on after a batch was staged, or a cycle closed, in part.

        Offsets given up in a closing commit are read again by the next task; a report of now would hide rows.
        """
        if self._broken:
            raise ConnectError("staging broke off earlier; the task must start again")

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Around what is staged or closed whole: what breaks off in it is not reported, see `check_whole`."""
        self._broken = True
        yield
        self._broken = False
