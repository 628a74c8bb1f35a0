"""What a table remembers of its commits, and what maintenance did to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.maintenance.operations_table import operations_of
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry, entries
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.argument_names import takes

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


@takes("table", "limit")
def table(request: OperationRequest) -> Any:
    """The table's columns, and its snapshots, newest first, with totals; `snapshots` is null
    without a table."""
    name, limit = request.text("table"), request.count("limit", SNAPSHOTS, MOST)
    answer = {"table": name, "ref": request.ref(name), "mode": request.config.mode_of(name).value}
    try:
        with request.lake() as lake:
            metadata = lake.run(name, read_metadata)
    except TableMissingError:
        return {**answer, "snapshots": None}
    found = entries(metadata, request.ref(name))
    columns = [
        {"name": each["name"], "type": _shown(each["type"]), "required": each["required"]}
        for each in metadata.schema["fields"]
    ]
    return {
        **answer,
        "location": metadata.location,
        "format_version": metadata.format_version,
        "columns": columns,
        "count": len(found),
        "snapshots": [_snapshot(metadata, each) for each in found[:limit]],
    }


def _snapshot(metadata: TableMetadata, entry: SnapshotEntry) -> dict[str, Any]:
    summary: Mapping[str, str] = metadata.snapshots[entry.id]["summary"]
    totals = {each: int(summary[key]) for each in _TOTALS if (key := f"total-{each}") in summary}
    # Ids are larger than the whole numbers of a browser.
    ids = {"snapshot": str(entry.id), "parent": None if entry.parent is None else str(entry.parent)}
    return {**entry.to_json(), **ids, "totals": totals}


def _shown(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


@takes("table", "limit")
def maintenance(request: OperationRequest) -> Any:
    """Whether the connector maintains the table, and what was done to it last, newest first."""
    name, limit = request.text("table"), request.count("limit", OPERATIONS, MOST)
    policy = request.config.table(name).maintenance
    place = (
        None if policy.operations_table is None else policy.operations_table or f"{name}_operations"
    )
    answer = {"table": name, "enabled": policy.mode.value, "operations_table": place}
    if place is None:
        return {**answer, "operations": []}
    try:
        with request.lake() as lake:
            return {**answer, "operations": lake.run(place, operations_of, name, limit)}
    except TableMissingError:
        return {**answer, "operations": []}
