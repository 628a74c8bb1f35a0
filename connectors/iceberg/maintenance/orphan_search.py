"""What a search for orphan files found, judged: files that wait for their commit stay, and so do another table's.

A new table may have the folder of one that was renamed. Iceberg lists the whole folder, and takes all files for orphans
that the new table does not name: the other's data, manifests and metadata.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from connectors.iceberg.audit.table_history import LEDGER_PREFIX
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import look_up
from connectors.iceberg.spark.cycle_changes import OPEN_PAIRS
from connectors.iceberg.staging.staged_file_name import StagedFileName, owner_of, table_digits

if TYPE_CHECKING:
    from connectors.iceberg.protocol.table_metadata import TableMetadata
    from connectors.iceberg.spark.iceberg_java import JavaTable

_METADATA: Final = (".metadata.json", ".metadata.json.gz")
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_FIRST_BYTES: Final = 64 << 10  # of a metadata file: writers put the uuid at its beginning
_ALL_BYTES: Final = 1 << 30


def orphans_of(metadata: TableMetadata, found: Sequence[str]) -> list[str]:
    """The paths that nothing needs."""
    kept = _kept_names(metadata)
    return [path for path in found if not _is_kept(path, metadata, kept)]


def why_not_removed(table: JavaTable, found: Sequence[str]) -> str:
    """Why no file is removed; empty: the folder has files of this table only.

    Args:
        found: Paths of files that are old enough, and that no snapshot of this table needs.
    """
    metadata = table.metadata()
    digits = table_digits(metadata.uuid)
    for path in found:
        owner = owner_of(path)
        if owner is not None and owner.table != digits:
            return _shared(path)
    for path in _metadata_files(table, metadata, found):
        if _uuid_in(table, path) != metadata.uuid:
            return _shared(path)
    return ""


def _shared(path: str) -> str:
    return (
        f"the table's folder has files of another table, as {path}: nothing is removed. Move one of the tables, or "
        "delete the files if their table was dropped"
    )


def _metadata_files(table: JavaTable, metadata: TableMetadata, found: Sequence[str]) -> Iterator[str]:
    """Metadata files that this table does not name, of any age: another table may have new ones only."""
    at = table.metadata_location()
    seen = {path.rpartition("/")[2] for path in (at, *metadata.earlier_files)}
    for path in (*found, *(table.list_files(f"{at.rpartition('/')[0]}/") or ())):
        name = path.rpartition("/")[2]
        if name.endswith(_METADATA) and name not in seen:
            seen.add(name)
            yield path


def _uuid_in(table: JavaTable, path: str) -> str | None:
    """The uuid of the table whose metadata a file has; None: it has none."""
    for size in (_FIRST_BYTES, _ALL_BYTES):
        data = table.first_bytes(path, size)
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data) if data.startswith(b"\x1f\x8b") else data
        if (found := _UUID.search(text)) is not None:
            return found[1].decode()
        if len(data) < size:
            break
    return None


def _kept_names(metadata: TableMetadata) -> set[str]:
    """Last parts of paths that properties and summaries name: Iceberg knows nothing of these files."""
    named = [metadata.properties, *(snapshot["summary"] for snapshot in metadata.snapshots.values())]
    return {text.rpartition("/")[2] for each in named for key, text in each.items() if key.startswith(OPEN_PAIRS)}


def _is_kept(path: str, metadata: TableMetadata, kept: set[str]) -> bool:
    """Whether a file may be needed although no snapshot refers to it: staged rows that wait for their commit."""
    name = path.rpartition("/")[2]
    staged = StagedFileName.decode(name)
    if staged is None:
        return name in kept
    epochs = [
        found.highest_epoch.number
        for key in metadata.properties
        if key.startswith(LEDGER_PREFIX) and (found := look_up(metadata.view(MAIN, key))).highest_epoch is not None
    ]
    return staged.epoch.number >= min(epochs, default=0)
