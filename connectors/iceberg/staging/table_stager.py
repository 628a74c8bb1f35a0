"""`TableStager`: converts the rows of one table, buffers them, and writes staged files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.change_events import RAW_OPERATIONS, Change
from connectors.iceberg.staging.change_rows import ChangeConverter, Truncates
from connectors.iceberg.staging.changed_keys import ChangedKeys
from connectors.iceberg.staging.changelog import ChangelogConverter
from connectors.iceberg.staging.features import StagingFeature
from connectors.iceberg.staging.ordering import Inserts, OrderedChanges, OrderedReplays
from connectors.iceberg.staging.partial_rows import MarkedDeletes, PartialRows
from connectors.iceberg.staging.row_buffer import MemoryBudget, RowBuffer
from connectors.iceberg.staging.staged_file_writer import StagedFileWriter
from connectors.iceberg.staging.table_converter import (
    AppendConverter,
    Findings,
    TableConverter,
    TableLayout,
)
from connectors.iceberg.table.table import StagedFile, TableDescription, WriteMode

# Minimum average number of rows per piece. Copying rows is cheaper than writing many small pieces.
_MIN_PIECE_ROWS = 200


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Converted rows of one batch and table, by Kafka partition."""

    stager: TableStager
    parts: Mapping[TopicPartition, pa.Table]
    ignored: int = 0  # number of records that have no effect on the table
    findings: Findings = field(default_factory=dict)

    def without(self, partition: TopicPartition) -> StagedRows:
        """Return the rows of all other Kafka partitions."""
        parts = {tp: part for tp, part in self.parts.items() if tp != partition}
        return replace(self, parts=parts, findings=_findings_of(self.findings, parts))


def _findings_of(findings: Findings, partitions: Mapping[TopicPartition, object]) -> Findings:
    return {
        name: {tp: rows for tp, rows in parts.items() if tp in partitions}
        for name, parts in findings.items()
    }


class TableStager:
    """Stages the rows of one table for the next cycle. Used by the task thread only.

    A batch is staged in two steps because either all of its tables or none must accept it.
    `prepare` converts the rows and may reject some of them, and `add` cannot fail. `close_cycle`
    writes the rows of one partition and removes them from the buffer. In MERGE mode, it writes only
    the last change of each key.

    The caller drops rows that the table's ledger already covers.
    """

    def __init__(
        self,
        description: TableDescription,
        config: IcebergSinkConfig,
        epoch: Epoch,
        task: str,
        budget: MemoryBudget,
        partition_count: Callable[[str], int] = lambda _: 1,
    ) -> None:
        """Create a stager.

        Args:
            description: The description of the table.
            config: The connector configuration.
            epoch: The coordinator's epoch, which is part of file names.
            task: The task name, which is part of file names.
            budget: The task's memory budget.
            partition_count: Returns the current number of partitions in a topic.
        """
        self._config = config
        self._epoch = epoch
        self._task = task
        self._budget = budget
        self._changed_keys = ChangedKeys()
        self._features = _features(config, description, partition_count, self._changed_keys)
        self._unreported: set[str] = set()  # files of incomplete cycles
        self._buffer = RowBuffer(budget)
        self.evolve(description)

    def evolve(self, description: TableDescription) -> None:
        """Use a newer schema or partition spec of the same table, including for buffered rows.

        Raises:
            DataError: The table lacks a required column.
        """
        columns = json.loads(description.schema)["fields"]
        extra = [field for feature in self._features for field in feature.file_fields(columns)]
        layout = TableLayout(description, extra)
        for feature in self._features:
            feature.check(layout)
        self.description = description
        self._buffer.evolve(layout.nullable)
        self._converter = self._converter_of(layout)
        self._files = StagedFileWriter(
            layout, self._config, self._epoch, self._task, self._features, self._unreported
        )

    def _converter_of(self, layout: TableLayout) -> TableConverter:
        config, name = self._config, layout.description.name
        read = Change.IGNORE if config.ignore_snapshots else Change.UPSERT
        if config.is_changelog(name):
            return ChangelogConverter(layout, config, read)
        if layout.description.mode is WriteMode.APPEND:
            return AppendConverter(layout, config)
        return ChangeConverter(layout, config, read, self._features)

    def prepare(self, batch: Batch) -> StagedRows:
        """Convert a batch without buffering its rows.

        Raises:
            BadRows: Some rows do not fit the table. They are identified by their batch index.
        """
        converted = self._converter.convert(batch)
        parts = _by_partition(batch.origin.topic, converted.rows, converted.partitions)
        findings = _findings_of(converted.findings, parts)
        return StagedRows(self, parts, converted.ignored, findings)

    def add(self, rows: StagedRows) -> None:
        """Buffer rows until the cycle closes."""
        for partition, part in rows.parts.items():
            self._buffer.add(partition, part)
        for feature in self._features:
            feature.buffered(rows.findings)
        self._budget.relieve()

    def read_pairs(self) -> Counter[str]:
        """Return the number of staged or committed deletes for each key change, by pair ID."""
        return self._changed_keys.read_pairs(self.description.open_pairs)

    def stage_alone(self, partition: TopicPartition, offset: int) -> None:
        """Stage the insert of a key change without its delete."""
        self._changed_keys.stage_alone(partition, offset)

    @property
    def buffered_bytes(self) -> int:
        """Size of the rows in memory, in bytes."""
        return self._buffer.buffered_bytes

    def partitions(self) -> list[TopicPartition]:
        """Return the Kafka partitions with buffered rows."""
        return self._buffer.partitions()

    def close_cycle(self, cycle: int, partition: TopicPartition) -> list[StagedFile]:
        """Write the buffered rows of a partition and remove them from the buffer.

        The caller owns the returned files. `discard` does not delete them.

        Raises:
            OSError, ConnectError: Writing failed. The rows remain buffered, and files that this
                call wrote are deleted.
        """
        if partition not in self._buffer.partitions():
            return []
        files = self._files.write(cycle, partition, self._buffer.pieces(partition))
        self._buffer.forget(partition)
        for feature in self._features:
            feature.staged(partition)
        return files

    def drop_partition(self, partition: TopicPartition) -> None:
        """Discard the rows from a partition that was revoked or will be read again."""
        self._buffer.forget(partition)
        for feature in self._features:
            feature.forget(partition)

    def discard(self) -> None:
        """Discard all rows and delete the files that were not reported."""
        for partition in self._buffer.partitions():
            self.drop_partition(partition)
        for feature in self._features:
            feature.clear()
        self._files.remove_unreported()


def _features(
    config: IcebergSinkConfig,
    description: TableDescription,
    partition_count: Callable[[str], int],
    changed_keys: ChangedKeys,
) -> list[StagingFeature]:
    """Return the optional features that a table uses, in hook call order."""
    if description.mode is WriteMode.APPEND or config.is_changelog(description.name):
        return []
    name, unavailable = description.name, config.unavailable_value
    is_ordered, marks = bool(config.ordering_columns), config.marks_deletes(name)
    truncates = config.envelopes or not RAW_OPERATIONS.isdisjoint(config.cdc_field[-1:])
    features: list[StagingFeature | None] = [
        OrderedReplays(config, name) if is_ordered and config.replay_topic else None,
        OrderedChanges(config, name) if is_ordered and not config.replay_topic else None,
        Inserts(config.replay_topic) if config.replay_topic and not is_ordered else None,
        Truncates(config, name, partition_count) if truncates else None,
        PartialRows(unavailable, changed_keys, is_ordered=is_ordered)
        if unavailable or marks or is_ordered
        else None,
        MarkedDeletes() if marks else None,
        changed_keys if unavailable else None,
    ]
    return [feature for feature in features if feature is not None]


def _by_partition(
    topic: str, rows: pa.Table, partitions: pa.Int32Array
) -> dict[TopicPartition, pa.Table]:
    """Return the rows by partition, without copying them unless partitions alternate often."""
    numbers = pc.unique(partitions).to_pylist()
    if len(numbers) == 1:
        return {TopicPartition(topic, numbers[0]): rows}
    starts = pc.not_equal(partitions.slice(1), partitions.slice(0, max(0, len(rows) - 1)))
    cuts = [0, *(start + 1 for start in pc.indices_nonzero(starts).to_pylist()), len(rows)]
    if (len(cuts) - 1) * _MIN_PIECE_ROWS > len(rows):
        return {
            TopicPartition(topic, number): rows.filter(pc.equal(partitions, number))
            for number in numbers
        }
    pieces: dict[TopicPartition, list[pa.Table]] = {}
    for start, end in pairwise(cuts):
        partition = TopicPartition(topic, partitions[start].as_py())
        pieces.setdefault(partition, []).append(rows.slice(start, end - start))
    return {partition: pa.concat_tables(parts) for partition, parts in pieces.items()}
