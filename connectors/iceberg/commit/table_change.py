"""The change of one snapshot: which files it adds and removes, and on which metadata it is
valid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.iceberg.catalog.recorded_table import RecordedTable
from connectors.iceberg.catalog.table_update import TableUpdate


@dataclass(frozen=True, kw_only=True)
class TableChange(ABC):
    """The data and delete files of one snapshot."""

    files: Sequence[
        Any
    ] = ()  # Java data files with the new rows, written by tasks or by the attempt
    replaced_rows: int = 0
    is_bound_to_head: bool = False  # valid only on the head that it was computed for (rule 16)

    @abstractmethod
    def add_to(self, update: TableUpdate, ref: str, summary: Mapping[str, str]) -> None:
        """Add the snapshot to an update, with the validations of rule 16.

        Raises:
            StaleAttemptError: A validation failed.
        """


class Append(TableChange):
    """New rows only."""

    def add_to(self, update: TableUpdate, ref: str, summary: Mapping[str, str]) -> None:
        """See `TableChange`."""
        update.append(ref, summary, self.files)


class Overwrite(TableChange):
    """New rows in place of all existing rows."""

    def add_to(self, update: TableUpdate, ref: str, summary: Mapping[str, str]) -> None:
        """See `TableChange`."""
        update.overwrite(ref, summary, self.files)


@dataclass(frozen=True, kw_only=True)
class RowDelta(TableChange):
    """New rows, and the deletes of the rows that they replace.

    If a delete file does not name its data file, Iceberg cannot validate it on another head.
    """

    read_snapshot: int | None
    refuse_foreign_rows: bool
    recorded: RecordedTable | None = None  # None: no row is replaced

    def add_to(self, update: TableUpdate, ref: str, summary: Mapping[str, str]) -> None:
        """See `TableChange`."""
        update.row_delta(
            ref,
            summary,
            self.files,
            self.recorded,
            self.read_snapshot,
            refuse_foreign_rows=self.refuse_foreign_rows,
        )


@dataclass(frozen=True, kw_only=True)
class Rewrite(TableChange):
    """Everything that a full MERGE wrote: the MERGE inserted the rows itself."""

    recorded: RecordedTable
    read_snapshot: int | None

    def add_to(self, update: TableUpdate, ref: str, summary: Mapping[str, str]) -> None:
        """See `TableChange`."""
        update.take(ref, summary, self.recorded, self.read_snapshot)
