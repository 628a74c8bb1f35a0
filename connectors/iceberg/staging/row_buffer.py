"""`RowBuffer`: buffers the rows of a table until the cycle closes, in memory or in a spill file."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from weakref import WeakSet

import pyarrow as pa

from connect_py.api.record import TopicPartition
from connectors.iceberg.staging.projection import project

_PAGE: Final = mmap.ALLOCATIONGRANULARITY


@dataclass(frozen=True, slots=True)
class SpilledRows:
    """Position of an Arrow table in a spill file."""

    offset: int  # in bytes; a multiple of the page size, as mmap requires
    length: int  # in bytes


class SpillFile:
    """Unnamed file of Arrow tables. The operating system deletes it when the process exits."""

    def __init__(self, folder: Path | None) -> None:
        """Create the file in `folder`, or in the default temporary folder if it is None."""
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="connect-py-staging-", dir=folder)  # noqa: SIM115 - closed by `close`
        self._end = 0

    def append(self, rows: pa.Table) -> SpilledRows:
        """Write a table."""
        offset = -(-self._end // _PAGE) * _PAGE
        self._file.seek(offset)
        with pa.ipc.new_stream(self._file, rows.schema) as writer:
            writer.write_table(rows)
        self._file.flush()
        self._end = self._file.tell()
        return SpilledRows(offset, self._end - offset)

    def read(self, position: SpilledRows) -> Any:
        """Return a memory-mapped table, which remains valid after `close`."""
        mapped = mmap.mmap(
            self._file.fileno(), position.length, access=mmap.ACCESS_READ, offset=position.offset
        )
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()

    def close(self) -> None:
        """Close the file. The operating system deletes it once no table is mapped from it."""
        self._file.close()


class MemoryBudget:
    """Limits the memory for the buffered rows of a task. Used by the task thread only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.spilled = 0  # size of the rows on disk, measured in memory before they were spilled
        self._buffers: WeakSet[RowBuffer] = WeakSet()

    def share(self, buffer: RowBuffer) -> None:
        """Register a buffer whose rows may be spilled."""
        self._buffers.add(buffer)

    def relieve(self) -> None:
        """If the limit is exceeded, spill the largest buffers until half of the budget is free."""
        if self.used <= self.limit:
            return
        for buffer in sorted(self._buffers, key=lambda each: each.buffered_bytes, reverse=True):
            buffer.spill()
            if self.used <= self.limit // 2:
                return


@dataclass(slots=True)
class _PartitionRows:
    """Rows from one Kafka partition in this cycle."""

    chunks: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    spilled: list[SpilledRows] = field(default_factory=list)
    spilled_bytes: int = 0


class RowBuffer:
    """Buffers the rows of one table by Kafka partition. Used by the task thread only."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._schema = pa.schema([])
        self._partitions: dict[TopicPartition, _PartitionRows] = {}
        self._spill_file: SpillFile | None = None
        budget.share(self)

    def partitions(self) -> list[TopicPartition]:
        """Return the Kafka partitions that have buffered rows."""
        return list(self._partitions)

    def add(self, partition: TopicPartition, rows: pa.Table) -> None:
        """Add rows. The caller must call `MemoryBudget.relieve` afterward."""
        buffered = self._partitions.setdefault(partition, _PartitionRows())
        buffered.chunks.append(rows)
        size = rows.nbytes
        buffered.bytes += size
        self._budget.used += size

    @property
    def buffered_bytes(self) -> int:
        """Size of the rows in memory, in bytes."""
        return sum(buffered.bytes for buffered in self._partitions.values())

    def spill(self) -> None:
        """Move all rows to the spill file."""
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
        projected = [project(chunk, self._schema) for chunk in chunks]
        return projected[0] if len(projected) == 1 else pa.concat_tables(projected)

    def evolve(self, schema: pa.Schema) -> None:
        """Set the schema to which all rows are projected when they are read or spilled."""
        self._schema = schema

    def pieces(self, partition: TopicPartition) -> Iterator[pa.Table]:
        """Yield the rows in offset order: first the spilled rows, then the rows in memory."""
        buffered = self._partitions[partition]
        for position in buffered.spilled:
            # the file is open while any partition has spilled rows
            assert self._spill_file is not None
            yield project(self._spill_file.read(position), self._schema)
        if buffered.chunks:
            yield self._joined(buffered.chunks)

    def forget(self, partition: TopicPartition) -> None:
        """Discard the rows of a partition."""
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
