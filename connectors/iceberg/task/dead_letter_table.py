"""`DeadLetterTable`: writes dead-letter records to a table, in the same cycles as other rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import BadRows, ConnectError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed, Routing
from connectors.iceberg.task.features import Convert, TaskFeature
from connectors.iceberg.task.pending_records import PendingRecords
from connectors.iceberg.task.task_actions import Hold, TaskActions, place


class DeadLetterTable(TaskFeature):
    """Writes the dead-letter records of one task to a table. Used by the task thread only."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        table: str,
        state: TaskState,
        pending: PendingRecords,
        actions: TaskActions,
        rows: DeadLetterRows,
    ) -> None:
        self._config = config
        self._table = table
        self._state = state
        self._pending = pending
        self._actions = actions
        self._rows = rows

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Add a dead-letter record to the pending records."""
        origin = dead_letter.origin
        dead_letters = self._pending.dead_letters.setdefault(origin.topic_partition, {})
        dead_letters[origin.offset] = dead_letter

    def route(self, routing: Routing) -> Routing:
        if any(item.table == self._table for item in routing.routed):
            raise ConnectError(f"rows are routed to {self._table}, which is the dead-letter table")
        return routing

    def recheck(self, item: Routed, keep: pa.BooleanArray) -> pa.BooleanArray | None:
        """Return a mask of the rows whose dead-letter records may be missing from the table.

        If a task is killed between the commits of the two tables, the dead-letter records of
        committed offsets are missing. The rows at these offsets are converted again to recreate the
        records.
        """
        origin = item.batch.origin
        if item.table == self._table:
            return None
        lacking = pc.invert(keep)
        for partition in pc.unique(origin.partitions).to_pylist():
            tp = TopicPartition(origin.topic, partition)
            position = self._state.filter_position(self._table, tp)
            if position is not None:
                rows = pc.equal(origin.partitions, partition)
                lacking = pc.and_not(lacking, pc.and_(rows, pc.less(origin.offsets, position)))
        return lacking

    def end_poll(
        self, consumed: Mapping[TopicPartition, int], convert: Convert
    ) -> Mapping[TopicPartition, int]:
        """Convert the dead-letter records from the poll.

        If the dead-letter table is not open, the partitions of these records are held.
        """
        table, due = self._table, []
        for partition, dead_letters in list(self._pending.dead_letters.items()):
            if partition not in consumed or not self._state.is_reading(partition):
                continue
            if self._state.is_skipped(table):
                raise ConnectError(f"dead-letter table {table} does not exist")
            position = self._state.filter_position(table, partition)
            if position is None or self._state.answer(table) is None:
                creation = self._rows.creation(self._config)
                self._actions.hold(partition, Hold(table, Need.CREATE, creation))
                continue
            offsets = range(self._state.next_offset(partition), consumed[partition])
            due += [dead_letters[offset] for offset in sorted(dead_letters) if offset in offsets]
        for batch in self._rows.batches(due):
            try:
                self._pending.converted.append(convert(Routed(table, batch)))
            except BadRows as bad:
                row, error = min(bad.errors.items())
                raise ConnectError(
                    f"the dead-letter record of {place(batch, row)} does not fit table {table}: "
                    f"{error}"
                ) from error
        return consumed
