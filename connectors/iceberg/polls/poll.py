"""`Poll`: what the poll that is being worked on brought so far; `TaskParts`: what works on it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.channel.channel_topic import ChannelWriter
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.staging.table_stager import StagedRows


class BlockedPartition(NamedTuple):
    """Why a partition must be held."""

    table: str
    need: Need
    request: str


class ConvertedRows(NamedTuple):
    """One table's rows of a batch, ready to be staged."""

    table: str
    rows: StagedRows | None  # None: all were filtered away
    firsts: Mapping[TopicPartition, int | None]  # offset of the first row left, per partition met

    def without(self, partition: TopicPartition) -> ConvertedRows:
        if partition not in self.firsts:
            return self
        firsts = {tp: first for tp, first in self.firsts.items() if tp != partition}
        return ConvertedRows(self.table, None if self.rows is None else self.rows.without(partition), firsts)


@dataclass(slots=True)
class Poll:
    """What the poll that is being worked on brought so far."""

    converted: list[ConvertedRows] = field(default_factory=list)
    dead_letters: dict[TopicPartition, dict[int, DeadLetter]] = field(default_factory=dict)  # the last of each offset
    latest: dict[TopicPartition, int] = field(default_factory=dict)  # timestamp

    def clear(self) -> None:
        """The next poll begins."""
        self.converted, self.dead_letters, self.latest = [], {}, {}

    def drop(self, partition: TopicPartition) -> None:
        """Its rows come again, to us or to another task."""
        self.converted = [item.without(partition) for item in self.converted]
        self.dead_letters.pop(partition, None)
        self.latest.pop(partition, None)


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What the modules of this room share. All of it is owned by the task thread."""

    config: IcebergSinkConfig
    context: SinkTaskContext
    metrics: IcebergMetrics
    state: TaskState
    stage: Stage
    writer: ChannelWriter
    poll: Poll = field(default_factory=Poll)


def place(batch: Batch, row: int) -> str:
    """The record that a row was made of, for messages."""
    origin = batch.origin
    return f"topic '{origin.topic}' partition {origin.partitions[row]} at offset {origin.offsets[row]}"


def first_offsets(partitions: pa.Int32Array, offsets: pa.Int64Array) -> dict[int, int]:
    """The offset of each partition's first row, which is its lowest."""
    return {p: offsets[pc.index(partitions, p).as_py()].as_py() for p in pc.unique(partitions).to_pylist()}


def now_ms() -> int:
    """Of a clock that only goes forward."""
    return int(time.monotonic() * 1000)
