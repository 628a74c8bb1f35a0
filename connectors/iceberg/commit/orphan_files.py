"""Files that earlier epochs left behind on a table."""

from __future__ import annotations

import re
import time
from typing import Final

from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.commit.partial_rows import OPEN_PAIRS
from connectors.iceberg.commit.rules.aggregates import PENDING
from connectors.iceberg.commit.rules.rejected_rows import REJECTED
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.staging.staged_file_name import table_digits

_NAMING: Final = (OPEN_PAIRS, REJECTED, PENDING)  # a path, or JSON with paths
_LAST_PART: Final = re.compile(r'/([^/"]+)(?:"|$)')
# listing a large table and reading its manifests may take long, while commits wait
_SECONDS: Final = 60


def remove(table: JavaTable, uuid: str, prefix: str, below: int) -> int | None:
    """See `LakeSession.remove_files`.

    Paths are compared by their last part: schemes vary. Nothing is deleted unless all of it was
    looked at.
    """
    metadata = table.metadata()
    if metadata.uuid != uuid or metadata.properties.get("gc.enabled", "true").lower() == "false":
        return 0
    until = time.monotonic() + _SECONDS
    listed = table.list_files(metadata.data_location + "/")
    if listed is None:
        return 0
    ours = re.compile(
        re.escape(prefix) + r"(\d{1,18})-[^.]+\." + re.escape(table_digits(uuid)) + r"\..+"
    )
    candidates: dict[str, str] = {}
    for path in listed:
        if any(
            (m := ours.fullmatch(part)) is not None and int(m[1]) < below
            for part in path.split("/")
        ):
            candidates[path.rpartition("/")[2]] = path
        if time.monotonic() > until:
            return None
    if candidates and not _drop_referenced(table, candidates, until):
        return None
    for path in candidates.values():
        table.delete_file(path)
    return len(candidates)


def waiting_names(metadata: TableMetadata) -> set[str]:
    """Last parts of paths that properties and summaries name: rows that wait, of which Iceberg
    knows nothing."""
    named = [
        metadata.properties,
        *(snapshot["summary"] for snapshot in metadata.snapshots.values()),
    ]
    texts = (text for each in named for key, text in each.items() if key.startswith(_NAMING))
    return {name for text in texts for name in _LAST_PART.findall(text)}


def _drop_referenced(table: JavaTable, candidates: dict[str, str], until: float) -> bool:
    """Take out what any snapshot of the table refers to; returns whether all were looked at in
    time."""
    seen: set[str] = set()
    metadata = table.metadata()
    for name in waiting_names(metadata):
        candidates.pop(name, None)
    for snapshot_id in metadata.snapshots:
        for manifest in table.manifests(snapshot_id):
            path = str(manifest.path())
            if path in seen:
                continue
            seen.add(path)
            if time.monotonic() > until:
                return False
            for file in table.files_of_manifest(manifest):
                candidates.pop(file.rpartition("/")[2], None)
    return True
