"""`Poll`: what the poll that is being worked on brought so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.record import TopicPartition
from connectors.iceberg.staging.table_stager import StagedRows


class ConvertedRows(NamedTuple):
    """One table's rows of a batch, ready to be staged."""

    table: str
    rows: StagedRows | None  # None: all were filtered away
    firsts: Mapping[TopicPartition, int | None]  # offset of the first row left, per partition met

    def without(self, partition: TopicPartition) -> ConvertedRows:
        """The same without the rows of a partition."""
        if partition not in self.firsts:
            return self
        firsts = {tp: first for tp, first in self.firsts.items() if tp != partition}
        return ConvertedRows(
            self.table, None if self.rows is None else self.rows.without(partition), firsts
        )


class Poll:
    """Used by the task thread only; one object for all polls, one after the other."""

    def __init__(self) -> None:
        self.converted: list[ConvertedRows] = []
        self.dead_letters: dict[
            TopicPartition, dict[int, DeadLetter]
        ] = {}  # the last of each offset
        self.latest: dict[TopicPartition, int] = {}  # timestamp

    def saw(self, batch: Batch) -> None:
        """Keep the latest timestamp of each partition."""
        latest = pc.max(batch.timestamp).as_py()
        if latest is not None:
            for tp in batch.origin.next_offsets():
                self.latest[tp] = max(self.latest.get(tp, latest), latest)

    def drop(self, partition: TopicPartition) -> None:
        """Forget a partition: its rows come again, to us or to another task."""
        self.converted = [item.without(partition) for item in self.converted]
        self.dead_letters.pop(partition, None)
        self.latest.pop(partition, None)

    def clear(self) -> None:
        """The poll has ended."""
        self.converted, self.dead_letters, self.latest = [], {}, {}
