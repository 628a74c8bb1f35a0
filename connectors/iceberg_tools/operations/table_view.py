"""Return the snapshots of a table, or the maintenance operations on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry, entries
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.maintenance.operations_table import operations_of
from connectors.iceberg_tools.operations.argument_names import accepts

SNAPSHOTS: Final = 100
MOST: Final = 1000
OPERATIONS: Final = 20
_TOTALS: Final = (
    "records",
    "data-files",
    "delete-files",
    "position-deletes",
    "equality-deletes",
    "files-size",
)


@accepts("table", "limit")
def table(request: OperationRequest) -> Any:
    """Return the columns of a table, and its snapshots with totals, newest first.

    `snapshots` is null if the table does not exist.
    """
    name, limit = request.text("table"), request.count("limit", SNAPSHOTS, MOST)
    response = {"table": name, "ref": request.ref(name), "mode": request.config.mode_of(name).value}
    try:
        with request.lake() as lake:
            metadata = lake.run(name, read_metadata)
    except TableMissingError:
        return {**response, "snapshots": None}
    snapshots = entries(metadata, request.ref(name))
    columns = [
        {"name": each["name"], "type": _type_name(each["type"]), "required": each["required"]}
        for each in metadata.schema["fields"]
    ]
    return {
        **response,
        "location": metadata.location,
        "format_version": metadata.format_version,
        "columns": columns,
        "count": len(snapshots),
        "snapshots": [_snapshot(metadata, each) for each in snapshots[:limit]],
    }


def _snapshot(metadata: TableMetadata, entry: SnapshotEntry) -> dict[str, Any]:
    summary: Mapping[str, str] = metadata.snapshots[entry.id]["summary"]
    totals = {each: int(summary[key]) for each in _TOTALS if (key := f"total-{each}") in summary}
    # strings, because IDs exceed the range of integers in JavaScript
    ids = {"snapshot": str(entry.id), "parent": None if entry.parent is None else str(entry.parent)}
    return {**entry.to_json(), **ids, "totals": totals}


def _type_name(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


@accepts("table", "limit")
def maintenance(request: OperationRequest) -> Any:
    """Return the maintenance mode of a table and its last maintenance operations, newest first."""
    name, limit = request.text("table"), request.count("limit", OPERATIONS, MOST)
    policy = request.config.table(name).maintenance
    operations_table = (
        None if policy.operations_table is None else policy.operations_table or f"{name}_operations"
    )
    response = {"table": name, "enabled": policy.mode.value, "operations_table": operations_table}
    if operations_table is None:
        return {**response, "operations": []}
    try:
        with request.lake() as lake:
            operations = lake.run(operations_table, operations_of, name, limit)
            return {**response, "operations": operations}
    except TableMissingError:
        return {**response, "operations": []}
