"""`RangeStage`: what executors staged, until it is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.schema.table import StagedFile
from connectors.iceberg.staging.stage import Stage


class RangeStage(Stage):
    """Stages no rows itself."""

    def __init__(self, config: IcebergSinkConfig, task: str, partition_count: Callable[[str], int]) -> None:
        """As that of `Stage`."""
        super().__init__(config, task, partition_count)
        self._files: dict[tuple[TopicPartition, str], list[StagedFile]] = {}
        self._alone: dict[TopicPartition, list[tuple[str, int]]] = {}

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

    def stage_alone(self, table: str, partition: TopicPartition, offset: int) -> None:
        self._alone.setdefault(partition, []).append((table, offset))

    def alone(self, partition: TopicPartition) -> Sequence[tuple[str, int]]:
        """Tables and offsets of a partition's inserts that wait for no delete any more."""
        return tuple(self._alone.get(partition, ()))

    def ended(self) -> list[str]:
        return []

    def close_cycle(self, cycle: int) -> dict[tuple[TopicPartition, str], list[StagedFile]]:
        closed, self._files = self._files, {}
        return closed

    def discard(self, partition: TopicPartition) -> None:
        super().discard(partition)
        self._files = {key: files for key, files in self._files.items() if key[0] != partition}
