"""`StagingFeature`: the hooks of an optional feature of tables in MERGE mode.

The conversion and the files of a batch do not mention optional features. A feature is a subclass;
`TableStager` creates those that the configuration of a table uses. They are called in that order.
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
    """Changes of one batch during their conversion, which features may modify."""

    batch: Batch  # with rows as values, even if the records are change events
    received: Column  # the values of the records
    change: pa.Int8Array  # a `Change` each
    table: TableConverter
    effect: pa.Int8Array = None  # `change` before rows without a key were ignored
    unavailable: dict[str, pa.BooleanArray] = field(default_factory=dict)  # rows, by column
    columns: list[pa.Array] = field(default_factory=list)  # in the order of the table
    extra: dict[str, tuple[pa.Field, pa.Array]] = field(default_factory=dict)
    findings: dict[str, Mapping[TopicPartition, pa.Table]] = field(default_factory=dict)

    @property
    def layout(self) -> TableLayout:
        return self.table.layout

    def add_column(self, column: pa.Field, values: pa.Array) -> None:
        """Add a column that the table does not have. It is buffered with the rows."""
        self.extra[column.name] = column, values


class FileWrite(Protocol):
    """Writer of one staged file of a cycle."""

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
    """Rows of one table and Kafka partition in a cycle, which features may modify."""

    layout: TableLayout
    partition: TopicPartition
    pieces: Sequence[pa.Table]  # in offset order
    write: FileWrite
    split: Callable[[pa.Table], Iterator[pa.Table]]  # into files of the target size
    received_offsets: pa.Int64Array | None = None  # if the rows were renumbered
    _last: tuple[pa.Array | None] | None = None

    def replace(self, pieces: Sequence[pa.Table]) -> None:
        """Replace the rows, so that other changes may be the last ones of their keys."""
        self.pieces, self._last = pieces, None

    @property
    def whole(self) -> pa.Table:
        return self.pieces[0] if len(self.pieces) == 1 else pa.concat_tables(self.pieces)

    def last_offsets(self) -> pa.Array | None:
        """Return the offsets of the last change of each key; None: each key occurs once."""
        if self._last is None:
            whole = self.whole
            keys = [whole.column(key) for key in self.layout.keys]
            self._last = (last_per_key(keys, whole.column(OFFSET)),)
        return self._last[0]

    def remove(self, column: str) -> None:
        """Remove the rows with a value in this column, which were staged in another way.

        They remain the last changes of their keys.
        """
        self.last_offsets()
        self.pieces = [
            piece.filter(piece.column(column).is_null())
            if piece.column(column).null_count < piece.num_rows
            else piece
            for piece in self.pieces
        ]


class StagingFeature:
    """The hooks of one feature for one table. Every hook does nothing by default."""

    def file_fields(self, columns: Sequence[Mapping[str, Any]]) -> Sequence[pa.Field]:
        """Return additional columns of staged rows and deletes. `columns` are the table's."""
        return ()

    def check(self, layout: TableLayout) -> None:
        """Raise DataError if the table lacks a column that the feature needs."""

    def prepare(self, changes: ChangeBatch, converter: RowConverter) -> None:
        """Modify changes before their rows are converted.

        Values of `unavailable` rows are not converted, and are null.

        Raises:
            BadRows: Changes that cannot be applied.
        """

    def amend(self, changes: ChangeBatch) -> None:
        """Modify changes after their rows were converted.

        Raises:
            BadRows: Changes that cannot be applied.
        """

    def buffered(self, findings: Findings) -> None:
        """Record that the rows with these findings will be part of the next cycle."""

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        """Write additional files, and modify the rows that are then written as usual.

        Raises:
            OSError, ConnectError: The storage failed.
        """
        return iter(())

    def staged(self, partition: TopicPartition) -> None:
        """Record that all files of a partition were written."""

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that was revoked, or whose rows are read again."""

    def clear(self) -> None:
        """Forget all partitions."""


def replace_column(
    rows: pa.Table, name: str, values: pa.Array, column: pa.Field | None = None
) -> pa.Table:
    """Return the rows with other values in a column, and optionally with another field."""
    return rows.set_column(rows.schema.get_field_index(name), column or name, values)
