"""`KeyChangeStops`: stops partitions before inserts whose delete was not read, as `KeyChangeWaits`
decides."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.keys import UNKNOWN_VALUE
from connectors.iceberg.protocol.actions import Seek
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.key_changes import WAITING, KeyChangeWaits, UnreadPair
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.poll import Poll
from connectors.iceberg.task.task_actions import TaskActions, now_ms

log = logging.getLogger(__name__)


class KeyChangeStops:
    """Used by the task thread only."""

    def __init__(
        self,
        context: SinkTaskContext,
        state: TaskState,
        stage: Stage,
        poll: Poll,
        actions: TaskActions,
        waits: KeyChangeWaits,
        *,
        null_unknown: bool,
        stages_itself: bool = True,
    ) -> None:
        """`stages_itself`: whether `stage` knows of the deletes that were read; else those that are
        committed count."""
        self._context = context
        self._state = state
        self._stage = stage
        self._poll = poll
        self._actions = actions
        self.waits = waits
        self._null_unknown = null_unknown
        self._read_to = state.read_to if stages_itself else state.committed_to

    def limit(self, consumed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Drop the poll's rows of partitions that have to stop within them; returns up to where the
        others are handled.

        A staged file cannot be cut: such a partition is read once more, up to the insert that has
        to wait.
        """
        found = self._unread_pairs()
        for partition, unread in found.items():
            self.waits.begin(partition, unread, now_ms())
            self._actions.carry_out([Seek(partition, self._state.next_offset(partition))])
        limits = {tp: self.waits.limit(tp) for tp in consumed}
        return {
            tp: following if (limit := limits[tp]) is None else min(following, limit)
            for tp, following in consumed.items()
            if tp not in found
        }

    def _unread_pairs(self) -> dict[TopicPartition, UnreadPair]:
        """By partition, the first insert of the poll whose delete was not read, nor is in what may
        be staged of it."""
        items = [
            item.rows for item in self._poll.converted if item.rows is not None and item.rows.pairs
        ]
        found: dict[TopicPartition, UnreadPair] = {}
        while items:
            read = sum((item.deletes(found) for item in items), Counter[str]())
            more = {
                partition: unread
                for item in items
                for partition, unread in item.stager.unread(item, read + item.stager.known_pairs())
                if partition not in found or unread.offset < found[partition].offset
            }
            if not more:
                break
            found |= more
        return found

    def hold(self) -> None:
        """Hold the partitions that were read up to the insert that has to wait."""
        for partition in self.waits.partitions():
            unread = self.waits.unread(partition)
            if (
                self._state.is_reading(partition)
                and self._state.next_offset(partition) >= unread.offset
            ):
                self._actions.hold(
                    partition,
                    unread.table,
                    Need.PAIR,
                    TableRequest(None, "a changed key").to_text(),
                )
                self._context.waits(
                    WAITING,
                    f"{partition} stops at {unread.offset}: the delete of {unread.keys} comes",
                )

    def check(self) -> None:
        """Go on with partitions whose delete was read; give up those that wait in vain."""
        if not self.waits:
            return
        self._stage.renew(self._state.answer)
        for partition in self.waits.read(self._stage.known_pairs, self._state.filter_position):
            self.end(partition)
        at = self._read_to, self._state.committed_to
        for partition in self.waits.in_vain(now_ms(), self._ends_of_others, *at):
            unread = self.waits.unread(partition)
            others = ", ".join(str(other.partition) for other in self._others(partition))
            why = (
                f"table {unread.table}: the key {unread.keys} was changed (old, new): {partition} "
                f"has the insert at offset {unread.offset}, which lacks values of the old row, "
                "and no delete of the old key was read from the partitions "
                f"{others or partition.partition}"
            )
            if not self._null_unknown:
                raise ConnectError(f"{why}; {UNKNOWN_VALUE}=null would go on without them")
            log.warning(
                "%s: they are null",
                why,
                extra={"action": "values_unavailable", "table": unread.table},
            )
            self._stage.stage_alone(unread.table, partition, unread.offset)
            self.end(partition)

    def end(self, partition: TopicPartition) -> None:
        """The partition waits no longer, or is not ours any more."""
        self.waits.end(partition)
        self._actions.carry_out(self._state.release(partition))
        if not self.waits:
            self._context.waits(WAITING, None)

    def _others(self, partition: TopicPartition) -> list[TopicPartition]:
        count = self._context.partition_count(partition.topic)
        return [tp for n in range(count) if (tp := TopicPartition(partition.topic, n)) != partition]

    def _ends_of_others(self, partition: TopicPartition) -> Mapping[TopicPartition, int] | None:
        try:
            return {
                tp: end for tp, (_, end) in self._context.log_range(self._others(partition)).items()
            }
        except RetriableError as error:
            log.warning("the ends of topic %s are not known now: %s", partition.topic, error)
            return None
