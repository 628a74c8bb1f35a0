"""`TableRowsConverter`: rows of a batch that go to one table, converted as far as the table needs
them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.errors import BadRows, ConnectError
from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.staging.table_stager import StagedRows
from connectors.iceberg.task.poll import ConvertedRows


class TableRowsConverter:
    """Nothing is kept here, and nothing is staged."""

    def __init__(self, state: TaskState, stage: Stage, dead_letter_table: str | None) -> None:
        self._state = state
        self._stage = stage
        self._dead_letter_table = dead_letter_table

    def convert(self, routed: Routed) -> ConvertedRows:
        """Convert one table's rows, those below its position left out by one comparison.

        Raises:
            BadRows: By their index in the batch that was routed.
        """
        epoch, batch = epoch_of(self._state), routed.batch
        origin = batch.origin
        firsts: dict[TopicPartition, int | None] = {}
        keep: pa.BooleanArray | None = None
        for partition, first in first_offsets(origin.partitions, origin.offsets).items():
            tp = TopicPartition(origin.topic, partition)
            position = self._state.filter_position(routed.table, tp)
            if position is None:
                raise ConnectError(f"table {routed.table} is not open for {tp}")
            firsts[tp] = first
            if first < position:
                own = pc.equal(origin.partitions, partition)
                below = pc.and_(own, pc.less(origin.offsets, position))
                keep = pc.invert(below) if keep is None else pc.and_not(keep, below)
                firsts[tp] = pc.min(origin.offsets.filter(pc.and_not(own, below))).as_py()
        answer = self._state.answer(routed.table)
        if answer is None:
            return ConvertedRows(routed.table, None, firsts)
        if keep is not None:
            lacking = pc.and_not(self._dead_letters_lack(routed), keep)
            if pc.any(
                lacking
            ).as_py():  # a task that died between the two commits left rows, and no dead letters
                self._convert_where(routed, answer, epoch, lacking)
            if not pc.any(keep).as_py():
                return ConvertedRows(routed.table, None, firsts)
        return ConvertedRows(routed.table, self._convert_where(routed, answer, epoch, keep), firsts)

    def _dead_letters_lack(self, routed: Routed) -> pa.BooleanArray:
        """The rows whose dead letters, if the rows are bad, may not be in the dead-letter table
        yet."""
        table, origin = self._dead_letter_table, routed.batch.origin
        lacking: pa.BooleanArray = pa.repeat(
            pa.scalar(table is not None and routed.table != table), len(origin)
        )
        if table is None:
            return lacking
        for partition in pc.unique(origin.partitions).to_pylist():
            position = self._state.filter_position(table, TopicPartition(origin.topic, partition))
            if position is not None:
                own = pc.equal(origin.partitions, partition)
                lacking = pc.and_not(lacking, pc.and_(own, pc.less(origin.offsets, position)))
        return lacking

    def _convert_where(
        self, routed: Routed, answer: str, epoch: Epoch, mask: pa.BooleanArray | None
    ) -> StagedRows:
        """Convert some rows, or all. BadRows: by their index in the batch that was routed."""
        try:
            needed = routed.batch if mask is None else routed.batch.where(mask)
            return self._stage.convert(routed.table, answer, epoch, needed)
        except BadRows as bad:
            if mask is not None:
                kept = pc.indices_nonzero(mask).to_pylist()
                bad = BadRows({kept[row]: error for row, error in bad.errors.items()})
            raise routed.in_whole_batch(bad) from bad


def epoch_of(state: TaskState) -> Epoch:
    """The coordinator's epoch; rows come after it was heard of only."""
    if state.epoch is None:
        raise ConnectError("rows are handled before any coordinator was heard of")
    return state.epoch


def first_offsets(partitions: pa.Int32Array, offsets: pa.Int64Array) -> dict[int, int]:
    """The offset of each partition's first row, which is its lowest."""
    return {
        p: offsets[pc.index(partitions, p).as_py()].as_py()
        for p in pc.unique(partitions).to_pylist()
    }
