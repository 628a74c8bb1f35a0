"""`RangeStage`: ranges that executors have staged and that have not been reported yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.table.table import StagedFile
from connectors.iceberg_tools.load.range_work import RangeResult


@dataclass(frozen=True, slots=True)
class StagedRange:
    """A range that executors have read. It is processed after all earlier ranges."""

    begin: int
    end: int
    # None if all offsets are transaction markers or were removed by compaction
    result: RangeResult | None
    basis: RangeBasis  # state when the range was staged


@dataclass(frozen=True, slots=True)
class RangeBasis:
    """Table descriptions, positions, and routes on which the files of a range depend."""

    # the coordinator's response and the offset below which rows are dropped, by table
    tables: Mapping[str, tuple[str | None, int | None]]
    # the router's tables by topic, or None if they were not used
    topic_tables: Mapping[str, Sequence[str]] | None = None


class RangeStage(StagingArea):
    """Staging area for files that executors have written."""

    def __init__(
        self, config: IcebergSinkConfig, task: str, partition_count: Callable[[str], int]
    ) -> None:
        """Create an empty staging area."""
        super().__init__(config, task, partition_count)
        self._files: dict[tuple[TopicPartition, str], list[StagedFile]] = {}
        self._alone: dict[TopicPartition, list[tuple[str, int]]] = {}
        self._ahead: dict[TopicPartition, deque[StagedRange]] = {}

    @property
    def empty(self) -> bool:
        """True if all files have been reported."""
        return not self._files

    @property
    def staged_bytes(self) -> int:
        return 0  # the size of a step is already limited

    def take(self, partition: TopicPartition, table: str, files: Sequence[StagedFile]) -> None:
        """Store the files of a range until the cycle is closed."""
        if files:
            self._files.setdefault((partition, table), []).extend(files)

    def add_ahead(self, partition: TopicPartition, ranges: Sequence[StagedRange]) -> None:
        """Store consecutive ranges of a partition.

        If a range other than the first failed, it and all later ranges are dropped and read again.
        The range may have failed because the tables of earlier rows were unknown.
        """
        failed = (
            at
            for at, each in enumerate(ranges)
            if at and each.result is not None and each.result.error
        )
        self._ahead[partition] = deque(ranges[: next(failed, None)])

    def next_ahead(
        self, partition: TopicPartition, at: int, now: Callable[[StagedRange], RangeBasis]
    ) -> StagedRange | None:
        """Remove and return the range that begins at this offset, or None.

        If it would be staged differently now, it and all later ranges are dropped and read again.
        """
        ranges = self._ahead.get(partition)
        if not ranges:
            return None
        staged = ranges.popleft()
        if staged.begin == at and now(staged) == staged.basis:
            return staged
        self.drop_ahead(partition)
        return None

    def drop_ahead(self, partition: TopicPartition) -> None:
        """Drop the staged ranges of a partition. Their messages will be read again."""
        self._ahead.pop(partition, None)

    def stage_alone(self, table: str, partition: TopicPartition, offset: int) -> None:
        self._alone.setdefault(partition, []).append((table, offset))

    def alone(self, partition: TopicPartition) -> Sequence[tuple[str, int]]:
        """Return (table, offset) for each key-change insert that no longer waits for its delete."""
        return tuple(self._alone.get(partition, ()))

    def expired(self) -> list[str]:
        return []

    def close_cycle(self, cycle: int) -> dict[tuple[TopicPartition, str], list[StagedFile]]:
        closed, self._files = self._files, {}
        return closed

    def discard(self, partition: TopicPartition) -> None:
        super().discard(partition)
        self.drop_ahead(partition)
        self._files = {key: files for key, files in self._files.items() if key[0] != partition}
