"""`StagingFeature`: hooks that implement an optional feature for tables in MERGE mode.

The code that converts batches and writes files does not depend on optional features. Each feature
is a subclass. `TableStager` creates the features that the table's configuration enables. Their
hooks are called in the order in which the features were created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from connect_py.api.batch import Batch, Column
from connect_py.api.record import TopicPartition
from connectors.iceberg.conversion.row_converter import RowConverter
from connectors.iceberg.staging.row_keys import last_per_key
from connectors.iceberg.staging.staged_changes import OFFSET
from connectors.iceberg.staging.table_converter import Findings, TableConverter, TableLayout
from connectors.iceberg.table.table import StagedFile, StagedKind


@dataclass(slots=True)
class ChangeBatch:
    """Changes from one batch during their conversion. Features may modify them."""

    batch: Batch  # its values are rows, even if the records are change events
    received: Column  # the record values, which may be change events
    change: pa.Int8Array  # the `Change` of each row
    table: TableConverter
    effect: pa.Int8Array = None  # value of `change` before rows without a key were ignored
    # by column name, a mask of the rows whose value the source did not send
    unavailable: dict[str, pa.BooleanArray] = field(default_factory=dict)
    columns: list[pa.Array] = field(default_factory=list)  # in table column order
    extra: dict[str, tuple[pa.Field, pa.Array]] = field(default_factory=dict)
    findings: dict[str, Mapping[TopicPartition, pa.Table]] = field(default_factory=dict)

    @property
    def layout(self) -> TableLayout:
        return self.table.layout

    def add_column(self, column: pa.Field, values: pa.Array) -> None:
        """Add a column that is buffered with the rows but is not a table column."""
        self.extra[column.name] = column, values


class FileWrite(Protocol):
    """Function that writes one staged file of a cycle."""

    def __call__(
        self,
        kind: StagedKind,
        rows: pa.Table,
        schema: pa.Schema,
        *,
        unavailable: Sequence[str] = (),
    ) -> StagedFile: ...


@dataclass(slots=True)
class CycleRows:
    """Rows from one Kafka partition for one table in a cycle. Features may modify them."""

    layout: TableLayout
    partition: TopicPartition
    pieces: Sequence[pa.Table]  # in offset order
    write: FileWrite
    split: Callable[[pa.Table], Iterator[pa.Table]]  # splits rows into files of the target size
    received_offsets: pa.Int64Array | None = None  # original offsets, if the rows were renumbered
    _last: tuple[pa.Array | None] | None = None

    def replace(self, pieces: Sequence[pa.Table]) -> None:
        """Replace the rows and discard the cached last change of each key."""
        self.pieces, self._last = pieces, None

    @property
    def whole(self) -> pa.Table:
        return self.pieces[0] if len(self.pieces) == 1 else pa.concat_tables(self.pieces)

    def last_offsets(self) -> pa.Array | None:
        """Return the offset of the last change of each key, or None if each key occurs once."""
        if self._last is None:
            whole = self.whole
            keys = [whole.column(key) for key in self.layout.keys]
            self._last = (last_per_key(keys, whole.column(OFFSET)),)
        return self._last[0]

    def remove(self, column: str) -> None:
        """Remove the rows that have a value in this column, because they are staged separately.

        `last_offsets` still includes these rows.
        """
        self.last_offsets()
        self.pieces = [
            piece.filter(piece.column(column).is_null())
            if piece.column(column).null_count < piece.num_rows
            else piece
            for piece in self.pieces
        ]


class StagingFeature:
    """Hooks of one feature for one table. By default, a hook does nothing."""

    def file_fields(self, columns: Sequence[Mapping[str, Any]]) -> Sequence[pa.Field]:
        """Return columns to add to staged rows and deletes. `columns` are the table columns."""
        return ()

    def check(self, layout: TableLayout) -> None:
        """Raise DataError if the table lacks a column that the feature needs."""

    def prepare(self, changes: ChangeBatch, converter: RowConverter) -> None:
        """Modify changes before their rows are converted.

        The conversion skips the values that `unavailable` marks and returns null for them.

        Raises:
            BadRows: Some changes cannot be applied.
        """

    def amend(self, changes: ChangeBatch) -> None:
        """Modify changes after their rows have been converted.

        Raises:
            BadRows: Some changes cannot be applied.
        """

    def buffered(self, findings: Findings) -> None:
        """Record that the rows with these findings have been buffered for the next cycle."""

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        """Write additional files, and modify the rows that are written after this hook.

        Raises:
            OSError, ConnectError: Writing to storage failed.
        """
        return iter(())

    def staged(self, partition: TopicPartition) -> None:
        """Record that all files of a partition have been written."""

    def forget(self, partition: TopicPartition) -> None:
        """Discard the state of a partition that was revoked or whose rows will be read again."""

    def clear(self) -> None:
        """Discard the state of all partitions."""


def replace_column(
    rows: pa.Table, name: str, values: pa.Array, column: pa.Field | None = None
) -> pa.Table:
    """Replace the values of a column and, if `column` is passed, its field."""
    return rows.set_column(rows.schema.get_field_index(name), column or name, values)
