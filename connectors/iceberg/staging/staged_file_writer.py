"""`StagedFileWriter`: writes the staged files of one Kafka partition and cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import TARGET_FILE_BYTES
from connectors.iceberg.conversion.columns import any_true, as_array, member, storage_of
from connectors.iceberg.conversion.partitioning import Partitioner
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.change_events import Change
from connectors.iceberg.staging.features import CycleRows, StagingFeature
from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.staging.projection import with_hidden_values
from connectors.iceberg.staging.staged_changes import CHANGE, OFFSET
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.staging.table_converter import TableLayout
from connectors.iceberg.table.table import StagedFile, StagedKind, WriteMode


class StagedFileWriter:
    """Writes staged files for one table layout.

    In MERGE mode, it writes only the last change of each key.
    """

    def __init__(
        self,
        layout: TableLayout,
        config: IcebergSinkConfig,
        epoch: Epoch,
        task: str,
        features: Sequence[StagingFeature],
        unreported: set[str],
    ) -> None:
        """`unreported` collects the files of incomplete cycles."""
        description = layout.description
        self._layout = layout
        self._features = features
        self._unreported = unreported
        self._name = partial(
            StagedFileName, config.connector, epoch, table_digits(description.uuid), task=task
        )
        self._partitioner = Partitioner(description.schema, description.spec)
        self._sort_by = description.sort_by
        self.output = FileOutput(description, config.write_props)
        self._target_bytes = (
            config.target_file_size_bytes or self.output.settings.file_bytes or TARGET_FILE_BYTES
        )

    def write(
        self, cycle: int, partition: TopicPartition, pieces: Iterator[pa.Table]
    ) -> list[StagedFile]:
        """Write the rows from a partition. `pieces` are in offset order.

        Raises:
            OSError, ConnectError: Writing failed. Files that this call wrote are deleted.
        """
        files: list[StagedFile] = []
        name = self._name(cycle=cycle, partition=partition.partition)
        try:
            if self._layout.description.mode is WriteMode.MERGE:
                files.extend(self._merge_files(name, partition, list(pieces)))
            else:
                for piece in pieces:
                    files.extend(self._row_files(name, piece))
        except BaseException:  # `files` contains only complete files
            self._unreported.update(file.path for file in files if file.path)
            self.remove_unreported()
            raise
        return files

    def remove_unreported(self) -> None:
        """Delete the files of incomplete cycles."""
        for uri in [*self._unreported]:
            self.output.remove(uri)
            self._unreported.remove(uri)

    def _merge_files(
        self, name: StagedFileName, partition: TopicPartition, pieces: Sequence[pa.Table]
    ) -> Iterator[StagedFile]:
        write = partial(self._write, name)
        cycle = CycleRows(self._layout, partition, pieces, write, self._by_size)
        for feature in self._features:
            if cycle.pieces:
                yield from feature.stage(cycle)
        last = cycle.last_offsets() if cycle.pieces else None
        row_schema, delete_schema = self._layout.row_schema, self._layout.delete_schema
        for piece in cycle.pieces:
            deletes = pc.equal(piece.column(CHANGE), Change.DELETE)
            upserts = pc.invert(deletes)
            if last is not None:
                is_last = pc.is_in(piece.column(OFFSET), value_set=last)
                deletes, upserts = pc.and_(is_last, deletes), pc.and_(is_last, upserts)
            if any_true(deletes):
                rows = piece.select(delete_schema.names).filter(deletes)
                yield write(StagedKind.DELETES, rows, delete_schema)
            if any_true(upserts):
                yield from self._row_files(name, piece.select(row_schema.names).filter(upserts))

    def _row_files(self, name: StagedFileName, rows: pa.Table) -> Iterator[StagedFile]:
        parts = self._partitioner.split(rows) if self._partitioner.terms else [((), rows)]
        for values, part in parts:
            ordered = sort_rows(part, self._sort_by) if self._sort_by else part
            for piece in self._by_size(ordered):
                yield self._write(
                    name, StagedKind.ROWS, piece, self._layout.row_schema, partition=values
                )

    def _by_size(self, rows: pa.Table) -> Iterator[pa.Table]:
        pieces = max(1, -(-rows.nbytes // self._target_bytes))
        length = -(-rows.num_rows // pieces)
        for start in range(0, rows.num_rows, length):
            yield rows.slice(start, length)

    def _write(
        self,
        name: StagedFileName,
        kind: StagedKind,
        rows: pa.Table,
        schema: pa.Schema,
        *,
        partition: Sequence[str | None] = (),
        unavailable: Sequence[str] = (),
    ) -> StagedFile:
        columns = [with_hidden_values(rows.column(f.name), f.type) for f in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
        uri, size = self.output.write(name.encode(), table)
        return StagedFile(
            kind,
            uri,
            rows.num_rows,
            size,
            self._layout.description.schema_id,
            self._layout.spec_id,
            tuple(partition),
            tuple(unavailable),
        )


def sort_rows(rows: pa.Table, sort_by: Sequence[tuple[str, bool, bool]]) -> pa.Table:
    """Sort rows. The sort is stable, and missing columns are ignored.

    Each entry of `sort_by` is a column path, a flag for descending order, and a flag that sorts
    nulls first.
    """
    columns: list[pa.Array] = []
    directions: list[str] = []
    for path, descending, nulls_first in sort_by:
        values = _sortable_column(rows, path.split("."))
        if values is None:
            continue
        if values.null_count:
            columns.append(values.is_null())
            directions.append("descending" if nulls_first else "ascending")
        columns.append(values)
        directions.append("descending" if descending else "ascending")
    if not columns or rows.num_rows < 2:
        return rows
    names = [str(number) for number in range(len(columns))]
    numbers = pa.array(range(rows.num_rows), pa.int64())
    keys = pa.table([*columns, numbers], names=[*names, "place"])
    order = [*zip(names, directions, strict=True), ("place", "ascending")]
    return rows.take(pc.sort_indices(keys, sort_keys=order))


def _sortable_column(rows: pa.Table, path: Sequence[str]) -> pa.Array | None:
    if path[0] not in rows.column_names:
        return None
    data = as_array(rows.column(path[0]))
    for name in path[1:]:
        if not pa.types.is_struct(data.type) or data.type.get_field_index(name) < 0:
            return None
        data, _ = member(data, None, name)
    data = storage_of(data)
    return None if pa.types.is_nested(data.type) else data
