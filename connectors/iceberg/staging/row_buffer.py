"""`RowBuffer`: rows of one table until the cycle closes, by Kafka partition; beyond a budget they
are on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

import pyarrow as pa

from connect_py.api.record import TopicPartition
from connectors.iceberg.staging.projection import project
from connectors.iceberg.staging.spill_file import SpilledRows, SpillFile


class MemoryBudget:
    """Bytes of rows that a task may hold in memory, over all its tables. Used by the task thread
    only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.spilled = 0  # bytes that went to disk, as they were counted in memory
        self._buffers: WeakSet[RowBuffer] = WeakSet()

    def share(self, buffer: RowBuffer) -> None:
        """Count a table's rows here; it may be asked to spill them."""
        self._buffers.add(buffer)

    def relieve(self) -> None:
        """If more is buffered than may be, move the largest holders' rows to disk until half of the
        budget is free."""
        if self.used <= self.limit:
            return
        for buffer in sorted(self._buffers, key=lambda each: each.buffered_bytes, reverse=True):
            buffer.spill()
            if self.used <= self.limit // 2:
                return


@dataclass(slots=True)
class _PartitionRows:
    """Rows of one Kafka partition in this cycle."""

    chunks: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    spilled: list[SpilledRows] = field(default_factory=list)
    spilled_bytes: int = 0


class RowBuffer:
    """Used by the task thread only."""

    schema: pa.Schema  # the table's, to which rows are brought that came before it changed

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._partitions: dict[TopicPartition, _PartitionRows] = {}
        self._spill_file: SpillFile | None = None
        budget.share(self)

    def partitions(self) -> list[TopicPartition]:
        """The Kafka partitions of which rows are buffered."""
        return list(self._partitions)

    def add(self, partition: TopicPartition, rows: pa.Table) -> None:
        """Hold rows; the caller relieves the budget when it has added all."""
        buffered = self._partitions.setdefault(partition, _PartitionRows())
        buffered.chunks.append(rows)
        size = rows.nbytes
        buffered.bytes += size
        self._budget.used += size

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows in memory."""
        return sum(buffered.bytes for buffered in self._partitions.values())

    def spill(self) -> None:
        """Move all buffered rows to disk."""
        for buffered in self._partitions.values():
            if not buffered.chunks:
                continue
            if self._spill_file is None:
                self._spill_file = SpillFile(None)
            buffered.spilled.append(self._spill_file.append(self._joined(buffered.chunks)))
            buffered.spilled_bytes += buffered.bytes
            self._budget.spilled += buffered.bytes
            self._free(buffered)

    def _free(self, buffered: _PartitionRows) -> None:
        self._budget.used -= buffered.bytes
        buffered.bytes = 0
        buffered.chunks = []

    def _joined(self, chunks: Sequence[pa.Table]) -> pa.Table:
        fitted = [project(chunk, self.schema) for chunk in chunks]
        return fitted[0] if len(fitted) == 1 else pa.concat_tables(fitted)

    def pieces(self, partition: TopicPartition) -> Iterator[pa.Table]:
        """Held rows in offset order: what was spilled, then what is in memory."""
        buffered = self._partitions[partition]
        for place in buffered.spilled:
            # it is there as long as a partition has spilled rows
            assert self._spill_file is not None
            yield project(self._spill_file.read(place), self.schema)
        if buffered.chunks:
            yield self._joined(buffered.chunks)

    def forget(self, partition: TopicPartition) -> None:
        """Let go of the rows of a partition."""
        buffered = self._partitions.pop(partition, None)
        if buffered is None:
            return
        self._free(buffered)
        self._budget.spilled -= buffered.spilled_bytes
        if self._spill_file is not None and not any(
            other.spilled for other in self._partitions.values()
        ):
            self._spill_file.close()
            self._spill_file = None
