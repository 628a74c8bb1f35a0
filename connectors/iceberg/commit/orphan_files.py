"""Removes files that earlier epochs left in a table's location (rule 18 of the commit protocol)."""

from __future__ import annotations

import re
import time
from typing import Final

from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.commit.partial_rows import OPEN_PAIRS
from connectors.iceberg.commit.rules.aggregates import PENDING
from connectors.iceberg.commit.rules.rejected_rows import REJECTED
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.staging.staged_file_name import table_digits

# prefixes of property keys and summary keys whose values contain paths
_NAMING: Final = (OPEN_PAIRS, REJECTED, PENDING)
_LAST_PART: Final = re.compile(r'/([^/"]+)(?:"|$)')
# time limit for listing files and reading manifests; commits wait in the meantime
_MAX_SECONDS: Final = 60


def remove(table: JavaTable, uuid: str, prefix: str, below: int) -> int | None:
    """Delete the files of earlier epochs, as specified in `LakeSession.remove_files`.

    Only file names are compared, because paths to the same file may have different URI schemes.
    Nothing is deleted unless all manifests are read in time.
    """
    metadata = table.metadata()
    if metadata.uuid != uuid or metadata.properties.get("gc.enabled", "true").lower() == "false":
        return 0
    deadline = time.monotonic() + _MAX_SECONDS
    files = table.list_files(metadata.data_location + "/")
    own_name = re.compile(
        re.escape(prefix) + r"(\d{1,18})-[^.]+\." + re.escape(table_digits(uuid)) + r"\..+"
    )
    candidates: dict[str, str] = {}
    for path in files or ():
        matches = map(own_name.fullmatch, path.split("/"))
        if any(name is not None and int(name[1]) < below for name in matches):
            candidates[path.rpartition("/")[2]] = path
        if time.monotonic() > deadline:
            return None
    if not candidates:
        return 0
    references = waiting_names(metadata)
    manifests: set[str] = set()
    for snapshot in metadata.snapshots:
        for manifest in table.manifests(snapshot):
            if (path := str(manifest.path())) not in manifests:
                manifests.add(path)
                references |= {
                    file.rpartition("/")[2] for file in table.files_of_manifest(manifest)
                } & candidates.keys()
            if time.monotonic() > deadline:
                return None
    orphans = candidates.keys() - references
    for name in orphans:
        table.delete_file(candidates[name])
    return len(orphans)


def waiting_names(metadata: TableMetadata) -> set[str]:
    """Return the names of files whose rows are waiting to be committed.

    No manifest lists these files. Properties and snapshot summaries contain their paths.
    """
    summaries = (snapshot["summary"] for snapshot in metadata.snapshots.values())
    return {
        name
        for entries in (metadata.properties, *summaries)
        for key, value in entries.items()
        if key.startswith(_NAMING)
        for name in _LAST_PART.findall(value)
    }
