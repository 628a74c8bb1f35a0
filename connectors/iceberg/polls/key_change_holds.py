"""`KeyChangeHolds`: stops partitions before the insert of a changed key, as `KeyChangeWaits` decides."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import UNKNOWN_VALUE
from connectors.iceberg.polls.poll import TaskParts, now_ms
from connectors.iceberg.polls.task_actions import TaskActions
from connectors.iceberg.protocol.actions import Seek
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.schema.table import TableRequest
from connectors.iceberg.staging.key_changes import WAITING, KeyChangeWaits, UnreadPair

log = logging.getLogger(__name__)


class KeyChangeHolds:
    """Owned by the task thread."""

    def __init__(self, parts: TaskParts, actions: TaskActions) -> None:
        self._config = parts.config
        self._context = parts.context
        self._state = parts.state
        self._stage = parts.stage
        self._poll = parts.poll
        self._actions = actions
        self._waits = KeyChangeWaits(parts.config.key_change_wait_ms)
        self.limit = self._waits.limit
        self.answered = self._waits.answered

    def stop_at_unread_pairs(self, consumed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Drop the poll's rows of partitions that have to stop within them; returns up to where the others are handled.

        A staged file cannot be cut: such a partition is read once more, up to the insert that has to wait.
        """
        found = self._unread_pairs()
        for partition, unread in found.items():
            self._waits.begin(partition, unread, now_ms())
            self._actions.carry_out([Seek(partition, self._state.next_offset(partition))])
        limits = {tp: self._waits.limit(tp) for tp in consumed}
        return {
            tp: following if (limit := limits[tp]) is None else min(following, limit)
            for tp, following in consumed.items() if tp not in found
        }  # fmt: skip

    def _unread_pairs(self) -> dict[TopicPartition, UnreadPair]:
        """By partition, the first insert of the poll whose delete was not read, nor is in what may be staged of it."""
        items = [item.rows for item in self._poll.converted if item.rows is not None and item.rows.pairs]
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

    def hold_at_unread_pairs(self) -> None:
        """Stop the partitions that have come to an insert that waits."""
        for partition in self._waits.partitions():
            unread = self._waits.unread(partition)
            if self._state.is_reading(partition) and self._state.next_offset(partition) >= unread.offset:
                request = TableRequest(None, "a changed key").to_text()
                self._actions.carry_out(self._state.hold(partition, unread.table, Need.PAIR, request, now_ms()))
                self._context.waits(WAITING, f"{partition} stops at {unread.offset}: the delete of {unread.keys} comes")

    def look_after(self) -> None:
        """Go on with partitions whose delete was read; give up those that wait in vain."""
        if not self._waits:
            return
        self._stage.renew(self._state.answer)
        for partition in self._waits.read(self._stage.known_pairs, self._state.filter_position):
            self.end(partition)
        at = self._state.read_to, self._state.committed_to
        for partition in self._waits.in_vain(now_ms(), self._ends_of_others, *at):
            unread = self._waits.unread(partition)
            others = ", ".join(str(other.partition) for other in self._others(partition))
            why = (
                f"table {unread.table}: the key {unread.keys} was changed (old, new): {partition} has the insert at "
                f"offset {unread.offset}, which lacks values of the old row, and no delete of the old key was read "
                f"from the partitions {others or partition.partition}"
            )
            if not self._config.null_unknown:
                raise ConnectError(f"{why}; {UNKNOWN_VALUE}=null would go on without them")
            log.warning("%s: they are null", why, extra={"action": "values_unavailable", "table": unread.table})
            self._stage.stage_alone(unread.table, partition, unread.offset)
            self.end(partition)

    def end(self, partition: TopicPartition) -> None:
        """The partition waits no longer, or is not ours any more."""
        self._waits.end(partition)
        self._actions.carry_out(self._state.release(partition))
        if not self._waits:
            self._context.waits(WAITING, None)

    def _others(self, partition: TopicPartition) -> list[TopicPartition]:
        count = self._context.partition_count(partition.topic)
        return [tp for n in range(count) if (tp := TopicPartition(partition.topic, n)) != partition]

    def _ends_of_others(self, partition: TopicPartition) -> Mapping[TopicPartition, int] | None:
        try:
            return {tp: end for tp, (_, end) in self._context.log_range(self._others(partition)).items()}
        except RetriableError as error:
            log.warning("the ends of topic %s are not known now: %s", partition.topic, error)
            return None
