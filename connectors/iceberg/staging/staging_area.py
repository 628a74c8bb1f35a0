"""`StagingArea`: one `TableStager` for each table of a task, with a shared memory budget."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.storage_settings import credentials_expiry_ms, file_io_properties
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_stager import StagedRows, TableStager
from connectors.iceberg.table.table import StagedFile, TableDescription

# Vended credentials are renewed this long before they expire because a commit may take this long.
# However, they are not renewed before half of their lifetime has passed.
_RENEW_AHEAD_MS = 300_000
_RENEW_SHARE = 2
# A cycle is not closed with credentials that expire within this time or within the last 1/20 of
# their lifetime, whichever is shorter.
_WRITE_AHEAD_MS = 10_000
_WRITE_SHARE = 20


@dataclass(slots=True)
class _StagedTable:
    """A table's stager and the coordinator's response that describes the table."""

    stager: TableStager
    answer: str
    received_ms: int
    is_replaced: bool = False  # the newest response describes a new table with the same name


class StagingArea:
    """Stages the rows of all tables for the open cycle. Used by the task thread only.

    Methods identify a table by its name and `answer`, the coordinator's response. The response is a
    table description in JSON.
    """

    def __init__(
        self,
        config: IcebergSinkConfig,
        task: str,
        partition_count: Callable[[str], int] = lambda _: 1,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """Create an empty area.

        Args:
            config: The connector configuration.
            task: The task name.
            partition_count: Returns the number of partitions in a topic. Its errors propagate.
            clock: Returns the current Unix time in milliseconds.
        """
        self._config = config
        self._partition_count = partition_count
        self._task = task
        self._budget = MemoryBudget(config.staging_memory_bytes)
        self._epoch: Epoch | None = None
        self._tables: dict[str, _StagedTable] = {}
        self._clock = clock

    @property
    def staged_bytes(self) -> int:
        """Size in bytes of the open cycle's rows in memory and on disk."""
        return self._budget.used + self._budget.spilled

    def description(self, table: str, answer: str, epoch: Epoch) -> TableDescription:
        """Return the description of an open table. It is the same object until `answer` changes."""
        return self._stager(table, answer, epoch).description

    def convert(self, table: str, answer: str, epoch: Epoch, batch: Batch) -> StagedRows:
        """Convert rows of an open table without buffering them.

        Raises:
            BadRows: Some rows do not fit the table.
        """
        return self._stager(table, answer, epoch).prepare(batch)

    def add(self, rows: StagedRows) -> None:
        """Buffer converted rows until the cycle closes.

        Raises:
            ConnectError: The table was replaced after the conversion.
        """
        if all(table.stager is not rows.stager for table in self._tables.values()):
            raise ConnectError(
                "a table was replaced while its rows were being staged; restart the task"
            )
        rows.stager.add(rows)

    def read_pairs(self, table: str) -> Counter[str]:
        """Return `TableStager.read_pairs`, or an empty counter if the table has no stager."""
        staged = self._tables.get(table)
        return Counter() if staged is None else staged.stager.read_pairs()

    def stage_alone(self, table: str, partition: TopicPartition, offset: int) -> None:
        """Stage the insert of a key change without its delete."""
        if (staged := self._tables.get(table)) is not None:
            staged.stager.stage_alone(partition, offset)

    def _stager(self, table: str, answer: str, epoch: Epoch) -> TableStager:
        if epoch != self._epoch:
            self.close()  # rows of an earlier epoch will not be committed
            self._epoch = epoch
        staged = self._tables.get(table)
        if staged is not None and staged.answer == answer:
            return staged.stager
        description = TableDescription.from_json(json.loads(answer))
        properties = {**self._config.catalog_properties(), **description.io_properties}
        description = dataclasses.replace(description, io_properties=file_io_properties(properties))
        if staged is not None and staged.stager.description.uuid == description.uuid:
            stager = staged.stager
            stager.evolve(description)
        else:
            if staged is not None:
                staged.stager.discard()
            stager = TableStager(
                description,
                self._config,
                epoch,
                self._task,
                self._budget,
                self._partition_count,
            )
        self._tables[table] = _StagedTable(stager, answer, self._clock())
        return stager

    def expiring(self) -> list[str]:
        """Return the tables whose vended credentials expire soon."""
        return list(self._expiring(_RENEW_AHEAD_MS, _RENEW_SHARE))

    def expired(self) -> list[str]:
        """Return the tables whose credentials may expire before their rows have been written.

        Tables without buffered rows are not included.
        """
        return [
            table
            for table in self._expiring(_WRITE_AHEAD_MS, _WRITE_SHARE)
            if self._tables[table].stager.partitions()
        ]

    def _expiring(self, milliseconds: int, share: int) -> Iterator[str]:
        """Yield the tables whose credentials are about to expire.

        The threshold is `milliseconds` or 1/`share` of the lifetime, whichever is shorter.
        """
        for name, table in self._tables.items():
            end = credentials_expiry_ms(table.stager.description.io_properties)
            if end is not None and not table.is_replaced:
                limit = max(0, min(milliseconds, (end - table.received_ms) // share))
                if end - self._clock() <= limit:
                    yield name

    def renew(self, answer: Callable[[str], str | None]) -> None:
        """Apply newer descriptions of the tables, which may contain newer credentials.

        `answer` returns the latest response for a table.
        """
        for name, table in list(self._tables.items()):
            newer = answer(name)
            if newer is None or newer == table.answer or self._epoch is None:
                continue
            if json.loads(newer)["uuid"] == table.stager.description.uuid:
                self._stager(name, newer, self._epoch)
            else:
                table.is_replaced = True

    def close_cycle(self, cycle: int) -> dict[tuple[TopicPartition, str], list[StagedFile]]:
        """Write all rows and return the files by partition and table.

        Raises:
            OSError, ConnectError: Writing failed.
        """
        return {
            (partition, name): table.stager.close_cycle(cycle, partition)
            for name, table in self._tables.items()
            for partition in table.stager.partitions()
        }

    def discard(self, partition: TopicPartition) -> None:
        """Discard the rows of a partition."""
        for table in self._tables.values():
            table.stager.drop_partition(partition)

    def close(self) -> None:
        """Discard all rows and unreported files."""
        for table in self._tables.values():
            table.stager.discard()
        self._tables.clear()
