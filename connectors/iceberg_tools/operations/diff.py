"""Compare the rows of two snapshots of a table."""

from __future__ import annotations

from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table import WriteMode
from connectors.iceberg_tools.history.table_diff import (
    DiffRequest,
    TableDiff,
    compare,
    later_schema,
)
from connectors.iceberg_tools.history.table_point import find_point
from connectors.iceberg_tools.operations.connector_table import ConnectorTable
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    Rows,
    TableArguments,
    TableOperation,
    TableTarget,
)


class DiffArguments(TableArguments, frozen=True, kw_only=True):
    """Selects the snapshots to compare, their key, and the output."""

    before: str
    after: str
    branch: str | None = None
    # key columns; if empty, the connector's key columns or the table's identifier fields
    keys: tuple[Name, ...] = ()
    without_key: bool = False  # compare whole rows
    limit: Rows = 20
    to_table: Name | None = None  # new table for all differing rows


class LocalDiffArguments(DiffArguments, frozen=True, kw_only=True):
    """Arguments of a local command, whose driver may write files with its user's permissions."""

    parquet: Name | None = None  # new folder for all differing rows


def diff(target: TableTarget, arguments: DiffArguments) -> TableDiff:
    """Compare two snapshots.

    Raises:
        NotInHistoryError: A snapshot does not exist.
        TableUnsuitableError: A snapshot lacks a key column, or the new table already exists.
    """
    metadata = target.metadata()
    ref = target.commit_ref(metadata, arguments.branch)
    points = find_point(metadata, arguments.before, ref), find_point(metadata, arguments.after, ref)
    keys = () if arguments.without_key else arguments.keys or key_columns(target, metadata, points)
    parquet = arguments.parquet if isinstance(arguments, LocalDiffArguments) else None
    request = DiffRequest(points[0], points[1], keys, arguments.limit, parquet, arguments.to_table)
    target.progress("comparing the snapshots")
    difference: TableDiff = target.lake.run(target.table, compare, request)
    return difference


def key_columns(
    table: ConnectorTable, metadata: TableMetadata, points: tuple[int, int]
) -> tuple[str, ...]:
    """Return the key columns, or an empty tuple if rows are only appended to the table."""
    connector = table.connector
    if connector is not None and connector.mode_of(table.table) is WriteMode.APPEND:
        return ()
    configured = connector.table(table.table).id_columns if connector is not None else ()
    schema = later_schema(metadata, *points)
    fields = set(schema.get("identifier-field-ids") or ())
    return tuple(configured) or tuple(
        each["name"] for each in schema["fields"] if each["id"] in fields
    )


DIFF = TableOperation("diff", DiffArguments, TableDiff, diff)
