"""What a search for orphan files found, judged: files that wait for their commit stay, and so do
another table's.

A new table may have the folder of one that was renamed. Iceberg lists the whole folder, and takes
all files for orphans that the new table does not name: the other's data, manifests and metadata. A
table may also have its folder inside of this one's, as that of namespace `db.t` in the folder of
table `db.t`: it is no place where this table writes.
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

# each is followed by a group
_LEDGERS: Final = (LEDGER_PREFIX, aggregates.LEDGER, rejected_rows.LEDGER)
_METADATA: Final = (".metadata.json", ".metadata.json.gz")
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_FIRST_BYTES: Final = 4 << 10  # of a metadata file: writers put the uuid at its beginning
_ALL_BYTES: Final = 1 << 30
# a table with a commit every minute has thousands of metadata files younger than any orphan
_READERS: Final = 16
# scheme and authority, which listings write otherwise
_ROOT: Final = re.compile(r"[A-Za-z][\w+.-]*:(?://[^/]*)?")


def own_files(table: JavaTable, found: Sequence[str]) -> list[str]:
    """The paths that are where this table writes its data and metadata."""
    metadata = table.metadata()
    home = metadata.location.rstrip("/")
    folders = {
        f"{home}/data",
        f"{home}/metadata",
        metadata.data_location,
        table.metadata_location().rpartition("/")[0],
    }
    ours = tuple(f"{_ROOT.sub('', each, 1)}/" for each in folders)
    return [path for path in found if _ROOT.sub("", path, 1).startswith(ours)]


def orphans_of(metadata: TableMetadata, found: Sequence[str]) -> list[str]:
    """The paths that nothing needs."""
    waiting = waiting_names(metadata)
    connectors = {owner.connector for path in found if (owner := owner_of(path)) is not None}
    epochs = {connector: _ledger_epoch(metadata, connector) for connector in connectors}
    return [path for path in found if not _is_kept(path, waiting, epochs)]


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
    paths = list(_metadata_files(table, metadata, found))
    with ThreadPoolExecutor(_READERS) as readers:
        for path, uuid in zip(paths, readers.map(partial(_uuid_in, table), paths), strict=True):
            if uuid not in (metadata.uuid, None):
                readers.shutdown(cancel_futures=True)
                return _shared(path)
    return ""


def _shared(path: str) -> str:
    return (
        f"the table's folder has files of another table, as {path}: nothing is removed. Move one "
        "of the tables, or delete the files if their table was dropped"
    )


def _metadata_files(
    table: JavaTable, metadata: TableMetadata, found: Sequence[str]
) -> Iterator[str]:
    """Metadata files that this table does not name, of any age: another table may have new ones
    only."""
    at = table.metadata_location()
    seen = {path.rpartition("/")[2] for path in (at, *metadata.earlier_files)}
    for path in (*found, *(table.list_files(f"{at.rpartition('/')[0]}/") or ())):
        name = path.rpartition("/")[2]
        if name.endswith(_METADATA) and name not in seen:
            seen.add(name)
            yield path


def _uuid_in(table: JavaTable, path: str) -> str | None:
    """The uuid of the table whose metadata a file has; None: it has none, is damaged, or is gone
    meanwhile."""
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
        if (found := _UUID.search(text)) is not None:
            return found[1].decode()
        if len(data) < size:
            break
    return None


def _is_kept(path: str, waiting: Collection[str], epochs: Mapping[str, int]) -> bool:
    """Whether a file may be needed although no snapshot refers to it: it waits for a commit.

    Args:
        waiting: Last parts of paths that the table names.
        epochs: By connector, the lowest epoch whose commits may still come.
    """
    if path.rpartition("/")[2] in waiting:
        return True
    owner = owner_of(path)
    return owner is not None and owner.epoch.number >= epochs[owner.connector]


def _ledger_epoch(metadata: TableMetadata, connector: str) -> int:
    """The epoch of a connector's last commit to the table; 0: it made none, or its group has a name
    of its own."""
    lookups = (look_up(metadata.view(MAIN, f"{prefix}connect-{connector}")) for prefix in _LEDGERS)
    return min(
        (each.highest_epoch.number for each in lookups if each.highest_epoch is not None), default=0
    )
