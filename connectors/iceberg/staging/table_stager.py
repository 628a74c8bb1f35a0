"""Rows of one table on their way to staged files: converted, held per Kafka partition, written once
per cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import tombstones
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.cdc import Change
from connectors.iceberg.staging.change_rows import ChangeRows
from connectors.iceberg.staging.changed_keys import ChangedKeys, pairs_of
from connectors.iceberg.staging.changelog import Changes, unavailable_names
from connectors.iceberg.staging.key_changes import UnreadPair
from connectors.iceberg.staging.row_buffer import MemoryBudget, RowBuffer
from connectors.iceberg.staging.staged_changes import OFFSET, PLACED, UNAVAILABLE, Half
from connectors.iceberg.staging.staged_file_writer import StagedFileWriter
from connectors.iceberg.staging.table_converter import TableConverter, TableLayout
from connectors.iceberg.table.table import StagedFile, TableDescription, WriteMode

# on average; smaller ones cost the writer more than copying them together
_LEAST_ROWS_OF_A_PIECE = 200


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of one batch that fit a table, by Kafka partition; `TableStager.add` takes them."""

    stager: TableStager
    parts: Mapping[TopicPartition, pa.Table]
    ignored: int = 0  # rows that mean nothing to the table
    pairs: Mapping[TopicPartition, pa.Table] = field(default_factory=dict)  # halves of changed keys
    null_keys: int = 0  # rows left out because of iceberg.ext.null-key=skip

    def without(self, partition: TopicPartition) -> StagedRows:
        """The same without the rows of a Kafka partition."""
        parts = {tp: part for tp, part in self.parts.items() if tp != partition}
        pairs = {tp: changed for tp, changed in self.pairs.items() if tp != partition}
        return replace(self, parts=parts, pairs=pairs)

    def deletes(self, limits: Mapping[TopicPartition, UnreadPair]) -> Counter[str]:
        """Pairs whose delete is among these rows, before the offset at which its partition stops;
        how many of each."""
        found: Counter[str] = Counter()
        for partition, changed in self.pairs.items():
            if (limit := limits.get(partition)) is not None:
                changed = changed.filter(pc.less(changed.column(OFFSET), limit.offset))
            found.update(pairs_of(changed, Half.DELETE))
        return found


class TableStager:
    """Collects rows of one table. One per task and table, used by the task thread.

    A batch comes in two steps, so that a batch that goes to several tables is taken by all of them
    or by none: `prepare` converts and may refuse rows, `add` cannot fail. `close_cycle` writes one
    partition's rows and forgets them. In MERGE mode each key is left once, with its last change in
    offset order.

    Rows that the table's ledger covers must be filtered out before: this class sees only what may
    enter.
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
        """`epoch` and `task` go into the names of files.

        `partition_count` asks how many partitions a topic has now.
        """
        self._config = config
        self._budget = budget
        self._partition_count = partition_count
        self._read = Change.IGNORE if config.ignore_snapshots else Change.UPSERT
        self._buffer = RowBuffer(budget)
        self._changed_keys = ChangedKeys(config)
        self._files = StagedFileWriter(config, epoch, task)
        # since the start: tombstones in append mode, deletes without a key, messages
        self.ignored_rows = 0
        self.null_keys = 0  # since the start: rows left out because of iceberg.ext.null-key=skip
        self.evolve(description)

    def evolve(self, description: TableDescription) -> None:
        """Go on with a newer schema or spec of the same table; rows already held are brought
        along."""
        self.description = description
        self._layout = TableLayout(description, self._config)
        self._converter = TableConverter(self._layout, self._config)
        self._changes = ChangeRows(
            self._layout, self._config, self._converter, self._read, self._partition_count
        )
        self._files.evolve(self._layout)
        self._buffer.schema = self._layout.nullable

    def prepare(self, batch: Batch) -> StagedRows:
        """Convert a batch; nothing is kept.

        Raises:
            BadRows: These rows do not fit, by their index in the batch.
        """
        if self._config.is_changelog(self.description.name):
            return self._prepare_changes(batch)
        pairs: Mapping[TopicPartition, pa.Table] = {}
        null_keys = 0
        if self.description.mode is WriteMode.MERGE:
            rows, kept, null_keys = self._changes.convert(batch)
            pairs = self._changed_keys.halves(batch, rows, self._converter)
        else:
            rows, kept = self._append_rows(batch)
        partitions = batch.origin.partitions
        if not pc.all(kept).as_py():
            rows, partitions = rows.filter(kept), partitions.filter(kept)
        parts = _by_partition(batch.origin.topic, rows, partitions)
        kept_pairs = {tp: changed for tp, changed in pairs.items() if tp in parts}
        return StagedRows(self, parts, len(batch) - rows.num_rows, kept_pairs, null_keys)

    def add(self, prepared: StagedRows) -> None:
        """Keep what was prepared until the cycle closes."""
        self.ignored_rows += prepared.ignored
        self.null_keys += prepared.null_keys
        for partition, rows in prepared.parts.items():
            self._buffer.add(partition, rows)
        for partition, changed in prepared.pairs.items():
            self._changed_keys.add(partition, changed)
        self._budget.relieve()

    def _append_rows(self, batch: Batch) -> tuple[pa.Table, pa.BooleanArray]:
        """The rows, and which of them are no tombstones."""
        tombstone = tombstones(batch.value)
        kept = pa.repeat(pa.scalar(True), len(batch)) if tombstone is None else pc.invert(tombstone)
        converted = self._converter.converter(batch.value).convert(batch.value)
        self._converter.raise_failures(converted.failures)
        return pa.Table.from_arrays(converted.columns, schema=self._layout.nullable), kept

    def _prepare_changes(self, batch: Batch) -> StagedRows:
        """Each change as its rows; values that the source did not send are null."""
        opened = Changes(batch, self._read)
        found, unavailable = [], []
        for images, places in opened.images():
            converter = self._converter.converter(images)
            hidden = self._converter.unavailable_rows(images, converter, pa.scalar(True))
            converted = converter.convert(images, hidden)
            self._converter.raise_failures(converted.failures, places=places)
            unavailable.append(unavailable_names(hidden, len(places)))
            found.append(pa.Table.from_arrays(converted.columns, schema=self._layout.nullable))
        if not found:
            return StagedRows(self, {}, len(batch))
        rows = pa.concat_tables(found)
        for name, data in opened.described(self._layout.nullable, unavailable).items():
            rows = rows.set_column(
                rows.schema.get_field_index(name), self._layout.nullable.field(name), data
            )
        places = opened.places()
        partitions = batch.origin.partitions.take(places)
        # images of a change side by side, the row before first
        ordered = pc.array_sort_indices(places)
        parts = _by_partition(batch.origin.topic, rows.take(ordered), partitions.take(ordered))
        return StagedRows(self, parts, len(batch) - len(pc.unique(places)))

    # --- changes of keys

    def known_pairs(self) -> Counter[str]:
        """Pairs whose delete was staged here, or committed as far as the coordinator said; and how
        many of each."""
        return self._changed_keys.known(self.description.open_pairs)

    def unread(
        self, prepared: StagedRows, known: Mapping[str, int]
    ) -> Iterator[tuple[TopicPartition, UnreadPair]]:
        """Of each partition, the first insert that lacks values of a row whose delete was not read.

        `known`: how many deletes of each pair were read, with those of these rows.
        """
        for partition, changed in prepared.pairs.items():
            rows = prepared.parts[partition]
            lacking = rows.filter(rows.column(UNAVAILABLE).is_valid()).column(OFFSET)
            inserts: Counter[str] = Counter()
            for offset, pair, half, keys in zip(
                *(column.to_pylist() for column in changed.columns), strict=True
            ):
                if half == Half.DELETE:
                    continue
                inserts[pair] += 1
                read = known.get(pair, 0) >= (1 if pair.endswith(PLACED) else inserts[pair])
                if half == Half.INSERT and not read and pc.index(lacking, offset).as_py() >= 0:
                    yield partition, UnreadPair(self.description.name, offset, pair, keys)
                    break

    def stage_alone(self, partition: TopicPartition, offset: int) -> None:
        """Go on with an insert whose delete was waited for in vain: what it lacks is null."""
        self._changed_keys.go_alone(partition, offset)

    # --- files out

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows in memory."""
        return self._buffer.buffered_bytes

    def partitions(self) -> list[TopicPartition]:
        """The Kafka partitions of which rows are held."""
        return self._buffer.partitions()

    def close_cycle(self, cycle: int, partition: TopicPartition) -> list[StagedFile]:
        """Write the rows of a partition and forget them. Empty: there are none.

        The files belong to the caller from now on: `discard` leaves them alone.

        Raises: OSError, ConnectError: The storage refuses; rows are kept, and files already written
            are removed.
        """
        if partition not in self._buffer.partitions():
            return []
        pieces = self._buffer.pieces(partition)
        written = self._files.write(cycle, partition, pieces, self._changed_keys.staged(partition))
        self._buffer.forget(partition)
        self._changed_keys.close_cycle(partition)
        return written

    def drop_partition(self, partition: TopicPartition) -> None:
        """Forget the rows of a partition: it was lost, or is read again."""
        self._changed_keys.drop(partition)
        self._buffer.forget(partition)
        self._files.forget(partition)

    def discard(self) -> None:
        """Forget everything, and remove files that were not reported. The stager may be used
        again."""
        for partition in self._buffer.partitions():
            self.drop_partition(partition)
        self._changed_keys.clear()
        self._files.remove_unreported()


def _by_partition(
    topic: str, rows: pa.Table, partitions: pa.Int32Array
) -> dict[TopicPartition, pa.Table]:
    """The rows of each partition. Messages come in pieces of one partition, and these need not be
    copied."""
    numbers = pc.unique(partitions).to_pylist()
    if len(numbers) == 1:
        return {TopicPartition(topic, numbers[0]): rows}
    cuts = pc.indices_nonzero(
        pc.not_equal(partitions.slice(1), partitions.slice(0, max(0, len(rows) - 1)))
    ).to_pylist()
    if (len(cuts) + 1) * _LEAST_ROWS_OF_A_PIECE > len(rows):
        return {
            TopicPartition(topic, number): rows.filter(pc.equal(partitions, number))
            for number in numbers
        }
    pieces: dict[TopicPartition, list[pa.Table]] = {}
    starts = [0, *(cut + 1 for cut in cuts)]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        partition = TopicPartition(topic, partitions[start].as_py())
        pieces.setdefault(partition, []).append(rows.slice(start, end - start))
    return {partition: pa.concat_tables(found) for partition, found in pieces.items()}
