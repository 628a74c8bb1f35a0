"""Complete history of a table: the snapshots of one ref and the data files in its manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.staging.staged_file_name import PREFIX
from connectors.iceberg.table.table_history import LEDGER_PREFIX, HistoricSnapshot, TableHistory

_MAX_FILES: Final = 100  # maximum number of duplicate files in the history


def read(table: JavaTable, ref: str) -> TableHistory:
    """Return the history of a ref for an audit. This reads all manifests of the ref's snapshots."""
    metadata = table.metadata()
    head = metadata.head(ref)
    snapshot_by_file: dict[str, int] = {}  # path of a file -> ID of the snapshot that added it
    added_twice: list[tuple[str, int, int]] = []
    ancestors, complete = [], True
    for snapshot in metadata.ancestors(head):
        parent, snapshot_id = snapshot.get("parent-snapshot-id"), snapshot["snapshot-id"]
        complete = parent is None or parent in metadata.snapshots
        stagers = set()
        for file in table.changes(table.java_table.snapshot(snapshot_id)).addedDataFiles():
            path = str(file.location())
            newer, snapshot_by_file[path] = snapshot_by_file.get(path), snapshot_id
            if newer is not None:
                added_twice.append((path, snapshot_id, newer))
            name = path.rpartition("/")[2]
            parts = name.split(".")
            if name.startswith(PREFIX) and len(parts) > 2:
                stagers.add(parts[1])
        summary = {key: value for key, value in snapshot["summary"].items() if key != "operation"}
        ancestors.append(
            HistoricSnapshot(
                snapshot_id,
                snapshot["timestamp-ms"],
                snapshot["summary"].get("operation"),
                summary,
                tuple(sorted(stagers)),
            )
        )
    manifests = [] if head is None else table.data_manifests(head["snapshot-id"])
    live_files = Counter(path for each in manifests for path in table.files_of_manifest(each))
    live_twice = tuple(path for path, count in live_files.items() if count > 1)
    return TableHistory(
        table.name,
        ref,
        metadata.uuid,
        ref in metadata.refs,
        _by_group(metadata.properties),
        ancestors,
        complete,
        {key: frozenset(_by_group(s["summary"])) for key, s in metadata.snapshots.items()},
        len(live_files),
        live_twice[:_MAX_FILES],
        tuple(added_twice[:_MAX_FILES]),
    )


def _by_group(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the ledgers in properties or in a summary, keyed by connect group."""
    return {
        key.removeprefix(LEDGER_PREFIX): value
        for key, value in properties.items()
        if key.startswith(LEDGER_PREFIX)
    }
