"""`RangeStage`: what executors staged, until it is reported."""

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
    """A range that executors have read; its turn comes when all before it was reported."""

    begin: int
    end: int
    result: RangeResult | None  # None: markers of transactions only, or what compaction has left
    basis: RangeBasis  # that it was staged with


@dataclass(frozen=True, slots=True)
class RangeBasis:
    """What the files of a range depend on."""

    # the coordinator's answer, and below which offset rows are out
    tables: Mapping[str, tuple[str | None, int | None]]
    # of the router; None: no row went where it says
    seen: Mapping[str, Sequence[str]] | None = None


class RangeStage(StagingArea):
    """Stages no rows itself."""

    def __init__(
        self, config: IcebergSinkConfig, task: str, partition_count: Callable[[str], int]
    ) -> None:
        """As that of `StagingArea`."""
        super().__init__(config, task, partition_count)
        self._files: dict[tuple[TopicPartition, str], list[StagedFile]] = {}
        self._alone: dict[TopicPartition, list[tuple[str, int]]] = {}
        self._ahead: dict[TopicPartition, deque[StagedRange]] = {}

    @property
    def empty(self) -> bool:
        """Whether all files were reported."""
        return not self._files

    @property
    def staged_bytes(self) -> int:
        return 0  # the size of a step bounds them

    def take(self, partition: TopicPartition, table: str, files: Sequence[StagedFile]) -> None:
        """Keep the files of a range until the cycle closes."""
        if files:
            self._files.setdefault((partition, table), []).extend(files)

    def keep_ahead(self, partition: TopicPartition, ranges: Sequence[StagedRange]) -> None:
        """Keep ranges of a partition, each of which begins where the one before ends.

        One that failed, behind the first, is to be read again, as are those behind it: as it was
        read, it was not known yet where rows of the ranges before go.
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
        """The range that begins at this offset, and is kept no longer; None: there is none.

        Where it would be staged otherwise `now`, it is to be read again, as are those behind it.
        """
        ranges = self._ahead.get(partition)
        if not ranges:
            return None
        found = ranges.popleft()
        if found.begin == at and now(found) == found.basis:
            return found
        self.drop_ahead(partition)
        return None

    def drop_ahead(self, partition: TopicPartition) -> None:
        """Forget ranges of a partition, whose messages will be read again."""
        self._ahead.pop(partition, None)

    def stage_alone(self, table: str, partition: TopicPartition, offset: int) -> None:
        self._alone.setdefault(partition, []).append((table, offset))

    def alone(self, partition: TopicPartition) -> Sequence[tuple[str, int]]:
        """Tables and offsets of a partition's inserts that wait for no delete any more."""
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
