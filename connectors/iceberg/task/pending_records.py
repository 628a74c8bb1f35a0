"""`PendingRecords`: the converted records of the current poll, until they are staged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from connect_py.api.dead_letter import DeadLetter
from connect_py.api.record import TopicPartition
from connectors.iceberg.staging.table_stager import StagedRows


class ConvertedRows(NamedTuple):
    """Rows of a batch for one table, ready to be staged."""

    table: str
    rows: StagedRows | None  # None if the table already contains all of them
    # lowest offset to stage from each partition, or None if the table contains all rows
    firsts: Mapping[TopicPartition, int | None]

    def without(self, partition: TopicPartition) -> ConvertedRows:
        """Return the rows of the other partitions."""
        if partition not in self.firsts:
            return self
        firsts = {tp: first for tp, first in self.firsts.items() if tp != partition}
        rows = None if self.rows is None else self.rows.without(partition)
        return ConvertedRows(self.table, rows, firsts)


class PendingRecords:
    """Records of the current poll. Used by the task thread only."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all records after the poll has been staged."""
        self.converted: list[ConvertedRows] = []
        # the last dead-letter record for each offset, by partition and offset
        self.dead_letters: dict[TopicPartition, dict[int, DeadLetter]] = {}
        self.timestamps: dict[TopicPartition, int] = {}  # latest record timestamp by partition

    def drop(self, partition: TopicPartition) -> None:
        """Remove the records from a partition that this or another task will read again."""
        self.converted = [item.without(partition) for item in self.converted]
        self.dead_letters.pop(partition, None)
        self.timestamps.pop(partition, None)
