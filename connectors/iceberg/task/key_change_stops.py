"""`KeyChangeStops`: stops partitions before the insert of a key change until its delete is read.

A key change is a pair of events: a delete of the row with the old key and an insert of the row with
the new key.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping

import pyarrow.compute as pc

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.keys import UNKNOWN_VALUE
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.actions import Seek
from connectors.iceberg.protocol.messages import Message, Need, TableOpened
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.changed_keys import pairs_in, pairs_of
from connectors.iceberg.staging.key_changes import WAITING, KeyChangeWaits, UnreadPair
from connectors.iceberg.staging.staged_changes import OFFSET, PLACED, UNAVAILABLE, Half
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.staging.table_stager import StagedRows
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.features import Convert, TaskFeature
from connectors.iceberg.task.pending_records import PendingRecords
from connectors.iceberg.task.task_actions import Hold, TaskActions, now_ms

log = logging.getLogger(__name__)


class KeyChangeStops(TaskFeature):
    """Stops and resumes the partitions of one task as decided by `KeyChangeWaits`.

    Used by the task thread only.
    """

    def __init__(
        self,
        config: IcebergSinkConfig,
        context: SinkTaskContext,
        state: TaskState,
        staging: StagingArea,
        pending: PendingRecords,
        actions: TaskActions,
        *,
        stages_rows: bool = True,
    ) -> None:
        """If `stages_rows` is False, a partition counts as read only up to its committed offset."""
        self._context = context
        self._state = state
        self._staging = staging
        self._pending = pending
        self._actions = actions
        self.waits = KeyChangeWaits(config.key_change_wait_ms)
        self._null_unknown = config.null_unknown
        self._read_to = state.read_to if stages_rows else state.committed_to

    def limit(self, partition: TopicPartition) -> int | None:
        return self.waits.limit(partition)

    def end_poll(
        self, consumed: Mapping[TopicPartition, int], convert: Convert
    ) -> Mapping[TopicPartition, int]:
        """Drop the records from partitions that must stop within the poll.

        Converted rows cannot be truncated, so these partitions are read again up to the insert that
        waits for its delete.
        """
        unread = self._unread_pairs()
        for partition, pair in unread.items():
            self.waits.begin(partition, pair, now_ms())
            self._actions.carry_out([Seek(partition, self._state.next_offset(partition))])
        return {
            tp: following if (limit := self.waits.limit(tp)) is None else min(following, limit)
            for tp, following in consumed.items()
            if tp not in unread
        }

    def _unread_pairs(self) -> dict[TopicPartition, UnreadPair]:
        """Return, for each partition, the first insert whose delete has not been read.

        Deletes in this poll count as read if they precede the offset at which their partition
        stops.
        """
        items = [
            item.rows
            for item in self._pending.converted
            if item.rows is not None and pairs_in(item.rows.findings)
        ]
        unread: dict[TopicPartition, UnreadPair] = {}
        while items:
            read = sum((read_deletes(rows, unread) for rows in items), Counter[str]())
            earlier = {
                partition: pair
                for rows in items
                for partition, pair in unread_pairs(rows, read + rows.stager.read_pairs())
                if partition not in unread or pair.offset < unread[partition].offset
            }
            if not earlier:
                break
            unread |= earlier
        return unread

    def poll_staged(self) -> None:
        """Hold the partitions that have been read up to an insert that waits for its delete."""
        for partition in self.waits.partitions():
            unread = self.waits.unread(partition)
            if (
                self._state.is_reading(partition)
                and self._state.next_offset(partition) >= unread.offset
            ):
                request = TableRequest(None, "a changed key").to_text()
                self._actions.hold(partition, Hold(unread.table, Need.PAIR, request))
                self._context.waits(
                    WAITING,
                    f"{partition} is waiting at offset {unread.offset} for the delete of the key "
                    f"change {unread.keys}",
                )

    def on_message(self, message: Message) -> None:
        if isinstance(message, TableOpened):
            self.waits.answered(message.table)

    def check(self) -> None:
        """Resume the partitions that wait for a delete that has been read or does not exist."""
        if not self.waits:
            return
        self._staging.renew(self._state.answer)
        for partition in self.waits.read(self._staging.read_pairs, self._state.filter_position):
            self.close(partition)
        offsets = self._read_to, self._state.committed_to
        for partition in self.waits.expired(now_ms(), self._ends_of_others, *offsets):
            unread = self.waits.unread(partition)
            others = self._others(partition) or [partition]
            numbers = ", ".join(str(other.partition) for other in others)
            reason = (
                f"table {unread.table}: the delete of the key change {unread.keys} (old, new) was "
                f"not found in partition{'s' if len(others) > 1 else ''} {numbers}, and the insert "
                f"in {partition} at offset {unread.offset} lacks values of the old row"
            )
            if not self._null_unknown:
                raise ConnectError(f"{reason}; {UNKNOWN_VALUE}=null sets them to null")
            log.warning(
                "%s; setting them to null",
                reason,
                extra={"action": "values_unavailable", "table": unread.table},
            )
            self._staging.stage_alone(unread.table, partition, unread.offset)
            self.close(partition)

    def close(self, partition: TopicPartition) -> None:
        """End the wait of a partition that can continue or was revoked."""
        self.waits.end(partition)
        self._actions.carry_out(self._state.release(partition))
        if not self.waits:
            self._context.waits(WAITING, None)

    def _others(self, partition: TopicPartition) -> list[TopicPartition]:
        count = self._context.partition_count(partition.topic)
        return [tp for n in range(count) if (tp := TopicPartition(partition.topic, n)) != partition]

    def _ends_of_others(self, partition: TopicPartition) -> Mapping[TopicPartition, int] | None:
        try:
            ranges = self._context.log_range(self._others(partition))
        except RetriableError as error:
            log.warning("failed to fetch the end offsets of topic %s: %s", partition.topic, error)
            return None
        return {tp: end for tp, (_, end) in ranges.items()}


def read_deletes(rows: StagedRows, stops: Mapping[TopicPartition, UnreadPair]) -> Counter[str]:
    """Count the deletes by pair ID, up to the offset at which each partition stops."""
    deletes = Counter[str]()
    for partition, pairs in pairs_in(rows.findings).items():
        if (stop := stops.get(partition)) is not None:
            pairs = pairs.filter(pc.less(pairs.column(OFFSET), stop.offset))
        deletes.update(pairs_of(pairs, Half.DELETE))
    return deletes


def unread_pairs(
    rows: StagedRows, read: Mapping[str, int]
) -> Iterator[tuple[TopicPartition, UnreadPair]]:
    """Yield, for each partition, the first insert that lacks values and has an unread delete.

    `read` is the number of deletes that have been read for each pair ID, including those in `rows`.
    """
    for partition, pairs in pairs_in(rows.findings).items():
        part = rows.parts[partition]
        lacking = part.filter(part.column(UNAVAILABLE).is_valid()).column(OFFSET)
        inserts: Counter[str] = Counter()
        for offset, pair, half, keys in zip(
            *(column.to_pylist() for column in pairs.columns), strict=True
        ):
            if half == Half.DELETE:
                continue
            inserts[pair] += 1
            is_read = read.get(pair, 0) >= (1 if pair.endswith(PLACED) else inserts[pair])
            if half == Half.INSERT and not is_read and pc.index(lacking, offset).as_py() >= 0:
                yield partition, UnreadPair(rows.stager.description.name, offset, pair, keys)
                break
