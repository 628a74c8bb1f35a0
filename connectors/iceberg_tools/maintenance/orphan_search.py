"""Evaluates an orphan file search: excludes files of other tables and of pending commits.

A new table may use the folder of a table that was renamed. Iceberg lists the whole folder and
treats all files that the new table does not reference as orphans, including the data, manifests,
and metadata of the renamed table. A table's folder may also contain the folder of another table.
For example, the folder of table `db.t` may contain the folder of namespace `db.t`, to which the
table never writes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from connectors.iceberg.catalog.java_errors import NOT_FOUND, caused_by
from connectors.iceberg.commit.orphan_files import waiting_names
from connectors.iceberg.commit.rules import aggregates, rejected_rows
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import look_up
from connectors.iceberg.staging.staged_file_name import owner_of, table_digits
from connectors.iceberg.table.table_history import LEDGER_PREFIX

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_catalog import JavaTable
    from connectors.iceberg.protocol.table_metadata import TableMetadata

# prefixes of ledger keys; the group follows the prefix
_LEDGERS: Final = (LEDGER_PREFIX, aggregates.LEDGER, rejected_rows.LEDGER)
_METADATA: Final = (".metadata.json", ".metadata.json.gz")
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_FIRST_BYTES: Final = 4 << 10  # usually contain the UUID, which is near the beginning of the file
_ALL_BYTES: Final = 1 << 30
# number of threads; a table with one commit per minute has thousands of recent metadata files
_READERS: Final = 16
# scheme and authority, which may have a different form in listings
_ROOT: Final = re.compile(r"[A-Za-z][\w+.-]*:(?://[^/]*)?")


def own_files(table: JavaTable, paths: Sequence[str]) -> list[str]:
    """Return the paths in the folders to which this table writes data and metadata."""
    metadata = table.metadata()
    home = metadata.location.rstrip("/")
    folders = {
        f"{home}/data",
        f"{home}/metadata",
        metadata.data_location,
        table.metadata_location().rpartition("/")[0],
    }
    prefixes = tuple(f"{_ROOT.sub('', folder, 1)}/" for folder in folders)
    return [path for path in paths if _ROOT.sub("", path, 1).startswith(prefixes)]


def orphans_of(metadata: TableMetadata, paths: Sequence[str]) -> list[str]:
    """Return the paths of files that no later commit can reference."""
    waiting = waiting_names(metadata)
    connectors = {owner.connector for path in paths if (owner := owner_of(path)) is not None}
    epochs = {connector: _ledger_epoch(metadata, connector) for connector in connectors}
    return [path for path in paths if not _is_required(path, waiting, epochs)]


def why_not_removed(table: JavaTable, paths: Sequence[str]) -> str:
    """Return the reason no file may be removed, or an empty string if all are from this table.

    Args:
        table: The table.
        paths: Files that are old enough and that no snapshot of this table references.
    """
    metadata = table.metadata()
    digits = table_digits(metadata.uuid)
    for path in paths:
        owner = owner_of(path)
        if owner is not None and owner.table != digits:
            return _shared(path)
    files = list(_metadata_files(table, metadata, paths))
    with ThreadPoolExecutor(_READERS) as readers:
        for path, uuid in zip(files, readers.map(partial(_uuid_in, table), files), strict=True):
            if uuid not in (metadata.uuid, None):
                readers.shutdown(cancel_futures=True)
                return _shared(path)
    return ""


def _shared(path: str) -> str:
    return (
        f"the folder of the table has files of another table, such as {path}; move one of the "
        "tables, or delete the files if their table was dropped"
    )


def _metadata_files(
    table: JavaTable, metadata: TableMetadata, paths: Sequence[str]
) -> Iterator[str]:
    """Iterate over metadata files of any age that this table does not reference.

    Recent files are included because another table may have no older files.
    """
    location = table.metadata_location()
    names = {path.rpartition("/")[2] for path in (location, *metadata.earlier_files)}
    for path in (*paths, *(table.list_files(f"{location.rpartition('/')[0]}/") or ())):
        name = path.rpartition("/")[2]
        if name.endswith(_METADATA) and name not in names:
            names.add(name)
            yield path


def _uuid_in(table: JavaTable, path: str) -> str | None:
    """Return the table UUID in a metadata file, or None if it is missing, damaged, or deleted."""
    for size in (_FIRST_BYTES, _ALL_BYTES):
        try:
            data = table.first_bytes(path, size)
            text = (
                zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data)
                if data.startswith(b"\x1f\x8b")
                else data
            )
        except zlib.error:
            return None
        except Exception as error:
            if caused_by(error, NOT_FOUND):
                return None
            raise
        if (match := _UUID.search(text)) is not None:
            return match[1].decode()
        if len(data) < size:
            break
    return None


def _is_required(path: str, waiting: Collection[str], epochs: Mapping[str, int]) -> bool:
    """Return True if a later commit may reference a file.

    Args:
        path: The path of the file.
        waiting: Names of files that are listed in table properties.
        epochs: The lowest epoch that may still commit, by connector.
    """
    if path.rpartition("/")[2] in waiting:
        return True
    owner = owner_of(path)
    return owner is not None and owner.epoch.number >= epochs[owner.connector]


def _ledger_epoch(metadata: TableMetadata, connector: str) -> int:
    """Return the epoch of a connector's last commit with the default group, or 0 if none."""
    lookups = (look_up(metadata.view(MAIN, f"{prefix}connect-{connector}")) for prefix in _LEDGERS)
    return min(
        (each.highest_epoch.number for each in lookups if each.highest_epoch is not None), default=0
    )
