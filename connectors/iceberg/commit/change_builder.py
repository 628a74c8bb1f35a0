"""Step 4c: the change of the table, for which Spark finds the replaced rows with one `MERGE
INTO`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.staged_rows import data_file
from connectors.iceberg.commit.cycle_rows import CycleRows, check_duplicates, merge_sources
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.merge_statement import DUPLICATE_KEY, delete_matched, full_merge
from connectors.iceberg.commit.table_change import Append, Overwrite, Rewrite, RowDelta, TableChange
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName, EngineSettings
from connectors.iceberg.protocol.table_metadata import WRITE_MODES, Snapshot, TableMetadata
from connectors.iceberg.table.table import StagedKind, WriteMode

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_table import JavaTable

# up to here, one task reads all keys faster than a shuffle distributes them
_SMALL_CYCLE_ROWS: Final = 50_000


def choose_strategy(
    table: JavaTable, metadata: TableMetadata, request: CommitRequest, settings: EngineSettings
) -> tuple[EngineName, str]:
    """Return how the commit changes the table, and the reason for the log."""
    if request.mode is WriteMode.APPEND:
        return EngineName.APPEND, "rows are appended"
    if not request.files:
        return EngineName.APPEND, "there are no rows"
    if any(file.kind is StagedKind.TRUNCATES for file in request.files):
        return EngineName.OVERWRITE, "the table is truncated"
    if metadata.is_empty(request.ref) and not table.has_data_files(metadata.head(request.ref)):
        return EngineName.APPEND, "the table is empty"
    if metadata.format_version < 2:
        return EngineName.FULL_MERGE, "the table's format has no deletes"
    if settings.full_merge:
        return EngineName.FULL_MERGE, "the configuration says so"
    if metadata.properties.get(WRITE_MODES[0], "copy-on-write").lower() != "merge-on-read":
        return EngineName.FULL_MERGE, "the table is copy-on-write"
    return EngineName.MERGE, "rows may replace others"


class ChangeBuilder:
    """Builds the change of a table from the rows of a cycle."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def build(self, cycle: CycleTable, rows: CycleRows) -> TableChange:
        """Return the change; upserts and deletes run one MERGE on the recorded table.

        Raises:
            DuplicateKeyError: The MERGE found a key that is staged twice.
            TableUnsuitableError: Spark rewrote data files of a merge-on-read table.
        """
        match cycle.strategy:
            case EngineName.MERGE:
                return self._merge(cycle, rows)
            case EngineName.FULL_MERGE:
                return self._full_merge(cycle, rows)
            case EngineName.OVERWRITE:
                return Overwrite(
                    files=_data_files(cycle, rows), replaced_rows=_row_count(cycle.head)
                )
        return self._new_rows(cycle, _data_files(cycle, rows))

    def _new_rows(self, cycle: CycleTable, files: list[Any]) -> TableChange:
        """Return a change without deletes. Rows that other writers add meanwhile may be a
        conflict."""
        request = cycle.request
        if self._settings.refuse_foreign_rows and request.mode is WriteMode.MERGE and files:
            return RowDelta(
                files=files, read_snapshot=_snapshot_id(cycle.head), refuse_foreign_rows=True
            )
        return Append(files=files)

    def _merge(self, cycle: CycleTable, rows: CycleRows) -> TableChange:
        files = _data_files(cycle, rows)
        sources = merge_sources(cycle, rows)
        if not sources:
            return self._new_rows(cycle, files)
        statement = delete_matched(
            cycle.recorded.relation,
            cycle.keys,
            sources,
            rows.order,
            checks_keys=rows.has_unchecked_keys,
            in_one_task=sum(file.rows for file in cycle.request.files) <= _SMALL_CYCLE_ROWS,
        )
        try:
            cycle.spark.sql(statement)
        except Exception as error:
            if rows.has_unchecked_keys and DUPLICATE_KEY in str(error):
                check_duplicates(cycle)  # raises an error that names the keys
            raise
        recording = cycle.recorded.recording()
        cycle.written += recording.locations
        if recording.data_files:
            raise TableUnsuitableError(
                cycle.table.name,
                "the MERGE rewrote data files although the table is merge-on-read; nothing was "
                "committed",
            )
        if recording.is_empty:
            return self._new_rows(cycle, files)
        return RowDelta(
            files=files,
            replaced_rows=recording.replaced_rows,
            is_bound_to_head=not recording.names_every_file,
            read_snapshot=_snapshot_id(cycle.head),
            refuse_foreign_rows=self._settings.refuse_foreign_rows,
            recorded=cycle.recorded,
        )

    def _full_merge(self, cycle: CycleTable, rows: CycleRows) -> TableChange:
        sources = merge_sources(cycle, rows)
        if not sources:
            return Append()
        columns = cycle.metadata.column_names()
        cycle.spark.sql(
            full_merge(cycle.recorded.relation, columns, cycle.keys, sources, rows.order)
        )
        recording = cycle.recorded.recording()
        cycle.written += recording.locations
        if recording.is_empty:
            return Append()
        return Rewrite(
            replaced_rows=recording.replaced_rows,
            is_bound_to_head=True,
            recorded=cycle.recorded,
            read_snapshot=_snapshot_id(cycle.head),
        )


def _data_files(cycle: CycleTable, rows: CycleRows) -> list[Any]:
    """Return Java data files; the row counts that tasks reported are checked against the
    footers."""
    return [*(data_file(cycle.table, cycle.metadata, file) for file in rows.staged), *rows.written]


def _snapshot_id(head: Snapshot | None) -> int | None:
    return None if head is None else int(head["snapshot-id"])


def _row_count(head: Snapshot | None) -> int:
    """Return the number of rows at a head, by its summary."""
    if head is None:
        return 0
    summary = head["summary"]
    return int(summary.get("total-records", "0")) - int(summary.get("total-position-deletes", "0"))
