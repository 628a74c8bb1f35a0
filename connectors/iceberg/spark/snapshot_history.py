"""Everything that a table remembers: snapshots along one ref, and what its manifests say of data files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectors.iceberg.spark.iceberg_java import JavaTable

_NAMED: Final = 100  # files that are named when something is wrong with them


def read(table: JavaTable, ref: str, ledger_prefix: str, file_prefix: str) -> Mapping[str, Any]:
    """See `LakeSession.history`; the form is that of `TableHistory.of`."""
    metadata = table.metadata()
    head = metadata.head(ref)
    added: dict[str, str] = {}  # path -> the snapshot that brought it
    twice: list[dict[str, str]] = []
    ancestors, complete = [], True
    for snapshot in metadata.ancestors(head):
        parent = snapshot.get("parent-snapshot-id")
        complete = parent is None or parent in metadata.snapshots
        snapshot_id = str(snapshot["snapshot-id"])
        stagers = set()
        for path in table.data_files_added_by(snapshot["snapshot-id"]):
            earlier, added[path] = added.get(path), snapshot_id
            if earlier is not None and len(twice) < _NAMED:
                twice.append({"path": path, "snapshot": snapshot_id, "again": earlier})
            name = path.rpartition("/")[2]
            parts = name.split(".")
            if name.startswith(file_prefix) and len(parts) > 2:
                stagers.add(parts[1])
        ancestors.append(
            {
                "id": snapshot_id,
                "timestamp": snapshot["timestamp-ms"],
                "operation": snapshot["summary"].get("operation"),
                "summary": {k: v for k, v in snapshot["summary"].items() if k != "operation"},
                "stagers": sorted(stagers),
            }
        )
    live: set[str] = set()
    live_twice: list[str] = []
    for path in table.live_data_files(head["snapshot-id"]) if head is not None else ():
        if path in live and len(live_twice) < _NAMED:
            live_twice.append(path)
        live.add(path)
    return {
        "uuid": metadata.uuid,
        "ref_exists": ref in metadata.refs,
        "properties": {k: v for k, v in metadata.properties.items() if k.startswith(ledger_prefix)},
        "present": [
            {
                "id": str(i),
                "groups": [k.removeprefix(ledger_prefix) for k in s["summary"] if k.startswith(ledger_prefix)],
            }
            for i, s in metadata.snapshots.items()
        ],
        "ancestors": ancestors,
        "complete": complete,
        "added_twice": twice,
        "live_twice": live_twice,
        "live": len(live),
    }
