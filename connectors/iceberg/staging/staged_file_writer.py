"""`StagedFileWriter`: the rows of a Kafka partition become the files of a cycle."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import TARGET_FILE_BYTES
from connectors.iceberg.conversion.columns import any_true, as_array
from connectors.iceberg.conversion.partitioning import Partitioner
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.cdc import Change, last_per_key
from connectors.iceberg.staging.changed_keys import PAIRS
from connectors.iceberg.staging.file_order import FileOrder
from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.staging.ordering import ORDER, running_maximum
from connectors.iceberg.staging.projection import with_hidden_values
from connectors.iceberg.staging.staged_changes import (
    BUFFERED_ORDER,
    CHANGE,
    EXTRA_SCHEMA,
    HALF,
    OFFSET,
    OPTIONAL,
    PAIR,
    PARTIAL,
    SEPARATOR,
    UNAVAILABLE,
    changes_to_stage,
)
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.staging.table_converter import TableLayout
from connectors.iceberg.table.table import StagedFile, StagedKind, WriteMode

log = logging.getLogger(__name__)


class StagedFileWriter:
    """Of one table. In MERGE mode each key is left once, with its last change in offset order."""

    def __init__(self, config: IcebergSinkConfig, epoch: Epoch, task: str) -> None:
        self._config = config
        self._epoch = epoch
        self._task = task
        self._unreported: set[str] = set()  # files of cycles that were not written to the end
        self._last_order: dict[TopicPartition, str] = {}  # where the row before the next one stood
        self._latest: str | None = None  # the same, of the partition that is being closed

    def evolve(self, layout: TableLayout) -> None:
        """Write files of this layout from now on."""
        self._layout = layout
        self._partitioner = Partitioner(layout.description.schema, layout.description.spec)
        self._order = FileOrder(layout.description.sort_by)
        self.output = FileOutput(layout.description, self._config.write_props)

    def write(
        self,
        cycle: int,
        partition: TopicPartition,
        pieces: Iterator[pa.Table],
        pairs: Sequence[pa.Table],
    ) -> list[StagedFile]:
        """Write the rows of a partition.

        Args:
            cycle: It goes into the names of the files.
            partition: The one whose rows these are.
            pieces: The rows, in offset order.
            pairs: Which of them are halves of changed keys.

        Raises:
            OSError, ConnectError: The storage refuses; files already written are removed.
        """
        written: list[StagedFile] = []
        digits, connector = table_digits(self._layout.description.uuid), self._config.connector
        name = StagedFileName(
            connector, self._epoch, digits, cycle, self._task, partition.partition
        )
        try:
            if self._layout.description.mode is WriteMode.MERGE:
                written.extend(self._merge_files(list(pieces), pairs, name, partition))
            else:
                for piece in pieces:
                    written.extend(self._row_files(piece, name))
        except BaseException:  # `written` has the files before it
            self._unreported.update(file.path for file in written if file.path)
            self.remove_unreported()
            raise
        self.forget(partition)
        if self._latest is not None:
            self._last_order[partition], self._latest = self._latest, None
        return written

    def forget(self, partition: TopicPartition) -> None:
        """Where the rows of a partition stood is not known any more: it was lost, or is read
        again."""
        self._last_order.pop(partition, None)

    def remove_unreported(self) -> None:
        """Remove the files of cycles that were not written to the end."""
        for uri in [*self._unreported]:
            self.output.remove(uri)
            self._unreported.remove(uri)

    def _row_files(self, rows: pa.Table, name: StagedFileName) -> Iterator[StagedFile]:
        schema = (
            self._layout.schema
            if rows.schema.get_field_index(ORDER) < 0
            else self._layout.ordered(self._layout.schema)
        )
        for values, part in self._partitioner.split(rows):
            for slice_ in self._by_size(self._order.sorted(part)):
                yield self._write(StagedKind.ROWS, slice_, schema, name, values)

    def _by_size(self, rows: pa.Table) -> Iterator[pa.Table]:
        count = rows.num_rows
        limit = (
            self._config.target_file_size_bytes
            or self.output.settings.file_bytes
            or TARGET_FILE_BYTES
        )
        pieces = max(1, -(-rows.nbytes // limit))
        length = -(-count // pieces)
        for start in range(0, count, length):
            yield rows.slice(start, length)

    def _merge_files(
        self,
        pieces: list[pa.Table],
        pairs: Sequence[pa.Table],
        name: StagedFileName,
        partition: TopicPartition,
    ) -> Iterator[StagedFile]:
        if not pieces:
            return
        whole = pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)
        if partition.topic == self._config.replay_topic:
            if not self._config.ordering_columns:
                yield from self._insert_files(whole, name)
                return
            whole, pairs = _in_own_order(whole, pairs)
            pieces = [whole]
        elif self._config.ordering_columns:
            whole = self._with_running_order(whole, partition)
            pieces = [whole]
        truncated = pc.max(
            whole.column(OFFSET).filter(pc.equal(whole.column(CHANGE), Change.TRUNCATE))
        ).as_py()
        if truncated is not None:
            yield self._truncate(whole, truncated)
            pieces = [piece.filter(pc.greater(piece.column(OFFSET), truncated)) for piece in pieces]
            whole = pa.concat_tables(pieces)
        last = last_per_key([whole.column(k) for k in self._layout.keys], whole.column(OFFSET))
        yield from self._changes_file(whole, last, pairs, name)
        for piece in pieces:
            winners = None if last is None else pc.is_in(piece.column(OFFSET), value_set=last)
            deletes = pc.equal(piece.column(CHANGE), Change.DELETE)
            kept = pc.and_not(piece.column(UNAVAILABLE).is_null(), deletes)
            kept = kept if winners is None else pc.and_(winners, kept)
            deletes = deletes if winners is None else pc.and_(winners, deletes)
            if any_true(deletes):
                yield self._write_deletes(piece, deletes, name)
            if any_true(kept):
                columns = self._layout.ordered(self._layout.schema).names
                yield from self._row_files(piece.select(columns).filter(kept), name)

    def _with_running_order(self, whole: pa.Table, partition: TopicPartition) -> pa.Table:
        """Each row at least where the row before it stands."""
        silent = whole.column(ORDER).is_null()
        order = running_maximum(whole.column(ORDER), self._last_order.get(partition, ""))
        self._latest = order[-1].as_py()
        whole = whole.set_column(whole.schema.get_field_index(ORDER), BUFFERED_ORDER, order)
        # A tombstone ahead of every event: the delete that it repeats was staged by an earlier life
        # or attempt, and without a place it would remove rows of other partitions that are later.
        repeats = pc.and_(silent, pc.equal(order, ""))
        if not any_true(as_array(repeats)):
            return whole
        log.warning(
            "table %s: %d tombstones ahead of every change of %s have no place, and are left out; "
            "if they are the only deletes, tell their place in a header",
            self._layout.description.name,
            pc.sum(repeats).as_py(),
            partition,
            extra={"action": "tombstone_without_place", "table": self._layout.description.name},
        )
        return whole.filter(pc.invert(repeats))

    def _insert_files(self, whole: pa.Table, name: StagedFileName) -> Iterator[StagedFile]:
        """The last row of each key, for the coordinator to look whether the key is there."""
        rows = whole.filter(pc.equal(whole.column(CHANGE), Change.UPSERT))
        last = last_per_key([rows.column(k) for k in self._layout.keys], rows.column(OFFSET))
        rows = rows if last is None else rows.filter(pc.is_in(rows.column(OFFSET), value_set=last))
        for slice_ in self._by_size(rows.select(self._layout.schema.names)):
            yield self._write(StagedKind.INSERTS, slice_, self._layout.schema, name, ())

    def _truncate(self, whole: pa.Table, offset: int) -> StagedFile:
        order = ""
        if self._config.ordering_columns:
            order = whole.column(ORDER)[pc.index(whole.column(OFFSET), offset).as_py()].as_py()
        kind, schema_id, spec_id = (
            StagedKind.TRUNCATES,
            self._layout.description.schema_id,
            self._partitioner.spec_id,
        )
        return StagedFile(kind, "", 0, 0, schema_id, spec_id, order=order)

    def _write_deletes(
        self, rows: pa.Table, deletes: pa.ChunkedArray, name: StagedFileName
    ) -> StagedFile:
        schema = self._layout.ordered(
            pa.schema(
                [self._layout.schema.field(k).with_nullable(False) for k in self._layout.keys]
            )
        )
        return self._write(
            StagedKind.DELETES, rows.select(schema.names).filter(deletes), schema, name, ()
        )

    def _changes_file(
        self,
        whole: pa.Table,
        last: pa.Array | None,
        pairs: Sequence[pa.Table],
        name: StagedFileName,
    ) -> Iterator[StagedFile]:
        """The changes by which the coordinator completes rows, if there are any."""
        ordered = bool(self._config.ordering_columns)
        if not ordered and not pairs and whole.column(UNAVAILABLE).null_count == whole.num_rows:
            return
        changed = pa.concat_tables(pairs) if pairs else PAIRS.empty_table()
        winners = None if last is None else as_array(pc.is_in(whole.column(OFFSET), value_set=last))
        places = as_array(changed.column(OFFSET))
        wanted = changes_to_stage(whole, self._layout.keys, winners, places, all_earlier=ordered)
        if wanted is None:
            return
        rows = whole.filter(wanted)
        partial = pc.and_not(
            rows.column(UNAVAILABLE).is_valid(), pc.equal(rows.column(CHANGE), Change.DELETE)
        )
        if winners is not None:
            partial = pc.and_(partial, winners.filter(wanted))
        if not ordered and not pairs and not any_true(as_array(partial)):
            return
        rows = rows.set_column(
            rows.schema.get_field_index(CHANGE), CHANGE, rows.column(CHANGE).cast(pa.int32())
        )
        rows = rows.append_column(PARTIAL, partial).append_column(OPTIONAL, self._only_marks(rows))
        at = as_array(pc.index_in(rows.column(OFFSET), value_set=places))
        rows = rows.append_column(PAIR, changed.column(PAIR).take(at)).append_column(
            HALF, changed.column(HALF).take(at)
        )
        schema = pa.schema([*self._layout.ordered(self._layout.nullable), *EXTRA_SCHEMA])
        file = self._write(StagedKind.CHANGES, rows, schema, name, (), self._lacking(rows))
        yield dataclasses.replace(
            file, pairs=at.null_count < len(at), partial=pc.sum(partial).as_py() or 0
        )

    def _lacking(self, rows: pa.Table) -> list[str]:
        """The columns that some of these rows lack."""
        texts = [
            text for text in pc.unique(rows.column(UNAVAILABLE)).to_pylist() if text is not None
        ]
        ids = {part for text in texts for part in text.strip(SEPARATOR).split(SEPARATOR)}
        return [name for name in self._layout.schema.names if self._layout.field_id(name) in ids]

    def _only_marks(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Which rows are deletes that only mark, and know nothing of their row."""
        if self._layout.marked is None:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        unavailable = rows.column(UNAVAILABLE)
        knows_nothing = pc.equal(
            pc.count_substring(unavailable.fill_null(""), SEPARATOR), len(self._layout.unmarked) + 1
        )
        return pc.and_(
            knows_nothing, rows.column(self._layout.marked).cast(pa.bool_()).fill_null(False)
        )

    def _write(
        self,
        kind: StagedKind,
        rows: pa.Table,
        schema: pa.Schema,
        name: StagedFileName,
        partition: Sequence[str | None],
        unavailable: Sequence[str] = (),
    ) -> StagedFile:
        columns = [with_hidden_values(rows.column(f.name), f.type) for f in schema]
        exact = pa.Table.from_arrays(columns, schema=schema)
        uri, size = self.output.write(name.encode(), exact)
        schema_id, spec_id = self._layout.description.schema_id, self._partitioner.spec_id
        return StagedFile(
            kind, uri, rows.num_rows, size, schema_id, spec_id, tuple(partition), tuple(unavailable)
        )


def _in_own_order(whole: pa.Table, pairs: Sequence[pa.Table]) -> tuple[pa.Table, list[pa.Table]]:
    """Changes tried again, in the order of their source and numbered anew: offsets only tell who
    replayed them when.

    Rows without an order are tombstones that repeat a delete, and are left out. At one place a
    delete comes first.
    """
    rows = whole.filter(whole.column(ORDER).is_valid())
    ranked = rows.append_column("upserts", pc.equal(rows.column(CHANGE), Change.UPSERT))
    by = [(ORDER, "ascending"), ("upserts", "ascending"), (OFFSET, "ascending")]
    rows = rows.take(pc.sort_indices(ranked, sort_keys=by))
    offsets = as_array(rows.column(OFFSET))
    rows = rows.set_column(
        rows.schema.get_field_index(OFFSET), OFFSET, pa.array(range(len(offsets)), pa.int64())
    )
    made = []
    for changed in pairs:
        places = pc.index_in(changed.column(OFFSET), value_set=offsets).cast(pa.int64())
        kept = changed.set_column(changed.schema.get_field_index(OFFSET), OFFSET, places)
        made.append(kept.filter(kept.column(OFFSET).is_valid()))
    return rows, made
