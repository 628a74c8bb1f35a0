"""`TableState`: the counts that maintenance policies use to determine which actions are due.

This module runs in the Spark driver.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.sql_names import quoted, relation
from connectors.iceberg.maintenance.compaction import SMALL, TARGET_BYTES, target_size
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.maintenance.cold_partitions import cold_partitions

if TYPE_CHECKING:
    from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
    from connectors.iceberg.driver.lake_session import LakeSession

ORPHANS_CHECKED_KEY: Final = "connect-py.orphans-checked-ms"  # table property


@dataclass(frozen=True, slots=True)
class TableState:
    """Statistics of a table and of its current snapshot."""

    format_version: int
    snapshot: int | None  # ID of the current snapshot, or None if the table is empty
    records: int = 0  # rows in data files, including deleted rows
    deleted_records: int = 0
    data_files: int = 0
    data_bytes: int = 0
    small_files: int = 0  # smaller than `SMALL` times the target size
    most_small_files: int = 0  # highest number of small files in a partition
    delete_files: int = 0
    manifests: int = 0
    snapshots: int = 0
    expirable: int = 0  # snapshots that would be expired now
    target_bytes: int = TARGET_BYTES
    movable: int = 0  # partitions that would be moved to cold storage now
    cold_files: int = 0  # files that are in cold storage
    orphans_checked_ms: int = 0
    sequence: int = 0  # sequence number of the current snapshot
    # True if commits that await approval are ahead of the ref; a compaction would detach them
    unpublished: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the REST API returns."""
        return asdict(self)


def of_metadata(metadata: TableMetadata, policy: MaintenancePolicy, ref: str) -> TableState:
    """Return the counts that the table metadata contains.

    Counts that require manifests or the sizes of individual files remain 0.
    """
    head = metadata.head(ref)
    summary = head["summary"] if head is not None else {}

    def total(name: str) -> int:
        return int(summary.get(f"total-{name}", "0"))

    checked = metadata.properties.get(ORPHANS_CHECKED_KEY, "0")
    return TableState(
        format_version=metadata.format_version,
        snapshot=None if head is None else int(head["snapshot-id"]),
        records=total("records"),
        deleted_records=total("position-deletes"),
        data_files=total("data-files"),
        data_bytes=total("files-size"),
        delete_files=total("delete-files"),
        snapshots=len(metadata.snapshots),
        expirable=expirable(metadata, policy, int(time.time() * 1000)),
        target_bytes=target_size(metadata, policy),
        orphans_checked_ms=int(checked) if checked.isdecimal() else 0,
        sequence=int(head.get("sequence-number", 0)) if head is not None else 0,
        unpublished=metadata.has_unpublished(ref),
    )


def expirable(metadata: TableMetadata, policy: MaintenancePolicy, now_ms: int) -> int:
    """Return the number of snapshots that are old enough and not retained by a branch or tag."""
    retained = {number for name, number in metadata.refs.items() if name in metadata.tags}
    for name in metadata.refs.keys() - metadata.tags:
        for position, each in enumerate(metadata.ancestors(metadata.head(name))):
            if position < policy.keep_snapshots or each["timestamp-ms"] >= now_ms - policy.keep_ms:
                retained.add(int(each["snapshot-id"]))
    return sum(
        number not in retained and each["timestamp-ms"] < now_ms - policy.keep_ms
        for number, each in metadata.snapshots.items()
    )


def glance(session: LakeSession, name: str, ref: str, policy: MaintenancePolicy) -> TableState:
    """Load the table metadata with one catalog request, and return the counts that it contains."""
    return of_metadata(session.table(name).metadata(), policy, ref)


def measure(session: LakeSession, name: str, ref: str, policy: MaintenancePolicy) -> TableState:
    """Return all counts, including small files and manifests, which require Spark queries."""
    metadata = session.table(name).metadata()
    state = of_metadata(metadata, policy, ref)
    if state.snapshot is None:
        return state
    table = relation(session.catalog_name, name)
    partition = "struct(spec_id, partition)" if metadata.spec["fields"] else "spec_id"
    [row] = session.spark.sql(
        f"SELECT coalesce(sum(small), 0), coalesce(max(small), 0) FROM (SELECT {partition} AS "
        f"place, count_if(file_size_in_bytes < {int(SMALL * state.target_bytes)}) AS small FROM "
        f"{table}.{quoted('data_files')} VERSION AS OF {state.snapshot} GROUP BY 1)"
    ).collect()
    [manifests] = session.spark.sql(
        f"SELECT count(*) FROM {table}.{quoted('manifests')} VERSION AS OF {state.snapshot}"
    ).collect()
    movable, cold = cold_partitions(
        session, name, metadata, state.snapshot, policy, int(time.time() * 1000)
    )
    counts = {
        "small_files": int(row[0]),
        "most_small_files": int(row[1]),
        "manifests": int(manifests[0]),
        "movable": len(movable),
        "cold_files": cold,
    }
    return TableState(**{**asdict(state), **counts})
