"""Where staged files go: local paths straight through pyarrow, everything else through PyIceberg's
file IO."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io

from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.staging.dictionary_columns import dictionary_columns
from connectors.iceberg.staging.write_settings import (
    DEFAULT_ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    WriteSettings,
)
from connectors.iceberg.table.table import TableDescription

LARGE_ROW_BYTES = 64 << 10  # on average
FEW_ROWS = 100  # make one row group, however small the table wants them
ENCRYPTION = "encryption.key-id"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class FileOutput:
    """Writes and removes the files of one table."""

    def __init__(self, description: TableDescription, write_props: Mapping[str, str]) -> None:
        """`write_props` win over the table's own properties."""
        self.location = description.data_location.rstrip("/")
        self.settings = WriteSettings.of({**description.properties, **write_props})
        self._io: FileIO | None = None
        self._local = local_path(self.location)
        if self._local is None:
            self._io = load_file_io(dict(description.io_properties), description.location)
        else:
            _make_folder(self._local)

    def write(self, name: str, rows: pa.Table) -> tuple[str, int]:
        """Write one Parquet file, which then outlives a machine that dies. Returns its URI and its
        size in bytes."""
        uri = f"{self.location}/{name}"
        if self._io is None:
            assert self._local is not None
            path = self._local / name
            self._write(str(path), rows)
            _to_disk(path, os.O_RDWR)  # CIFS passes over what was opened to be read
            _names_to_disk(path.parent)
            return uri, path.stat().st_size
        output = self._io.new_output(uri)
        with output.create(
            overwrite=True
        ) as stream:  # no name comes twice, and to look would be one more request
            self._write(stream, rows)
            size = stream.tell()
        return uri, size

    def _write(self, where: Any, rows: pa.Table) -> None:
        dictionaries: Any = dictionary_columns(rows)  # the stubs know no lists
        options = self.settings.parquet_options(rows.schema, rows.num_rows)
        with pq.ParquetWriter(
            where,
            rows.schema,
            store_decimal_as_integer=True,
            use_dictionary=dictionaries,
            **options,
        ) as writer:
            for group in _row_groups(rows, self.settings.row_group_bytes):
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
            fault_point("staging_write")  # the file is begun, and not whole
        if rows.nbytes > LARGE_ROW_BYTES * rows.num_rows:
            # else the writer's copies of the largest row stay for ever
            pa.default_memory_pool().release_unused()

    def remove(self, uri: str) -> None:
        """Delete a file that was not reported; one that is not there is fine."""
        if self._io is not None:
            self._io.delete(uri)
        elif (path := local_path(uri)) is not None:
            path.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _names_to_disk(folder.parent)


def _names_to_disk(folder: Path) -> None:
    """Have the disk hold the names in a folder, if its file system knows such a thing."""
    # some of networks do not, and there are folders that one may only write to
    with contextlib.suppress(OSError):
        _to_disk(folder, os.O_RDONLY)


def _to_disk(path: Path, flags: int) -> None:
    """Have the disk hold what was written. Folders can be opened to be read alone."""
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _row_groups(rows: pa.Table, limit: int) -> Iterator[pa.Table]:
    """The rows in pieces that are not too large; a row that is too large by itself is one of
    them."""
    few = rows.num_rows <= FEW_ROWS and rows.nbytes <= DEFAULT_ROW_GROUP_BYTES
    if rows.nbytes <= limit or few or rows.num_rows <= 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _row_groups(rows.slice(0, half), limit)
    yield from _row_groups(rows.slice(half), limit)


def why_not_written(table: TableDescription) -> str | None:
    """Why rows of a table cannot be staged, and what to do about it; None: they can."""
    if ENCRYPTION in table.properties:
        return (
            f"has the property {ENCRYPTION}, and rows are not encrypted: write to a table "
            f"without it"
        )
    if local_path(table.data_location) is None and (
        odd := next((c for c in "#?" if c in table.data_location), None)
    ):
        return (
            f"has its data at {table.data_location}, where what follows {odd} is lost: set "
            f"write.data.path"
        )
    return None


def local_path(uri: str) -> Path | None:
    """The path of a file of this machine, as Hadoop sees it; None: it lies elsewhere.

    Nothing in it is encoded: partition folders hold `%`, and `#` is a letter.
    """
    if not _SCHEME.match(uri):
        return Path(uri)
    path = uri.removeprefix("file:")
    path = path.removeprefix("//")
    return Path(path) if uri.startswith("file:") and path.startswith("/") else None
