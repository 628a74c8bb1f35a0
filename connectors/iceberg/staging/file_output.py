"""Writes staged files to local paths, or to other storage through PyIceberg's `FileIO`."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io

from connectors.iceberg.conversion.columns import leaves
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.staging.write_settings import (
    DEFAULT_ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    WriteSettings,
)
from connectors.iceberg.table.table import TableDescription

# average row size above which unused memory is released after each file
LARGE_ROW_BYTES = 64 << 10
FEW_ROWS = 100  # up to this many rows form one row group regardless of the configured size
ENCRYPTION = "encryption.key-id"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class FileOutput:
    """Writes and deletes staged files of one table."""

    def __init__(self, description: TableDescription, write_props: Mapping[str, str]) -> None:
        """`write_props` override the table's properties."""
        self.location = description.data_location.rstrip("/")
        self.settings = WriteSettings.of({**description.properties, **write_props})
        self._io: FileIO | None = None
        self._local = local_path(self.location)
        if self._local is None:
            self._io = load_file_io(dict(description.io_properties), description.location)
        else:
            _make_folder(self._local)

    def write(self, name: str, rows: pa.Table) -> tuple[str, int]:
        """Write a Parquet file durably and return its URI and its size in bytes."""
        uri = f"{self.location}/{name}"
        if self._io is None:
            assert self._local is not None
            path = self._local / name
            self._write(str(path), rows)
            _sync(path, os.O_RDWR)  # CIFS ignores fsync on files that are opened read-only
            _sync_names(path.parent)
            return uri, path.stat().st_size
        # names are unique, and checking for an existing file would cost another request
        with self._io.new_output(uri).create(overwrite=True) as stream:
            self._write(stream, rows)
            size = stream.tell()
        return uri, size

    def _write(self, target: Any, rows: pa.Table) -> None:
        dictionaries: Any = dictionary_columns(rows)  # the stubs do not accept lists
        options = self.settings.parquet_options(rows.schema, rows.num_rows)
        with pq.ParquetWriter(
            target,
            rows.schema,
            store_decimal_as_integer=True,
            use_dictionary=dictionaries,
            **options,
        ) as writer:
            for group in _row_groups(rows, self.settings.row_group_bytes):
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
            fault_point("staging_write")  # at this point, the file is incomplete
        if rows.nbytes > LARGE_ROW_BYTES * rows.num_rows:
            # otherwise, the pool retains the writer's copies of the largest row indefinitely
            pa.default_memory_pool().release_unused()

    def remove(self, uri: str) -> None:
        """Delete a file that was not reported to the coordinator, if the file exists."""
        if self._io is not None:
            self._io.delete(uri)
        elif (path := local_path(uri)) is not None:
            path.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_names(folder.parent)


def _sync_names(folder: Path) -> None:
    """Sync the entries of a folder to disk if the file system supports it."""
    # some network file systems cannot sync folders, and a folder may not be readable
    with contextlib.suppress(OSError):
        _sync(folder, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    """Sync a file or folder to disk. A folder can only be opened for reading."""
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _row_groups(rows: pa.Table, limit: int) -> Iterator[pa.Table]:
    """Yield the rows in pieces of at most `limit` bytes. A larger row gets its own piece."""
    few = rows.num_rows <= FEW_ROWS and rows.nbytes <= DEFAULT_ROW_GROUP_BYTES
    if rows.nbytes <= limit or few or rows.num_rows <= 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _row_groups(rows.slice(0, half), limit)
    yield from _row_groups(rows.slice(half), limit)


def unsupported_reason(table: TableDescription) -> str | None:
    """Return the reason why rows for a table cannot be staged, with a remedy, or None."""
    if ENCRYPTION in table.properties:
        return (
            f"has the property {ENCRYPTION}, but staged rows are not encrypted; use a table "
            "without it"
        )
    character = next((c for c in "#?" if c in table.data_location), None)
    if character is not None and local_path(table.data_location) is None:
        return (
            f"has the data location {table.data_location}, but the part after {character} would be "
            f"dropped from file paths; set write.data.path to a location without {character}"
        )
    return None


def local_path(uri: str) -> Path | None:
    """Return the path of a local file as Hadoop interprets it, or None if the file is remote.

    Special characters are not decoded. Partition folders may contain `%` and `#` literally.
    """
    if not _SCHEME.match(uri):
        return Path(uri)
    path = uri.removeprefix("file:")
    path = path.removeprefix("//")
    return Path(path) if uri.startswith("file:") and path.startswith("/") else None


# --- dictionaries
#
# With a dictionary, the writer builds a hash table, and the file stores both the distinct values
# and their indexes, even if values rarely repeat. For a file of change events, this accounts for a
# third of the write time and a fifth of the size. Therefore, a column gets a dictionary only if its
# values repeat in a sample.

SAMPLE_PLACES = 8
ROWS_PER_PLACE = 512
# Minimum average number of occurrences of a value. Runs of this length are still visible if the
# sample contains only every fourth row.
MIN_REPEATS = 4
DICTIONARY_BYTES = 1 << 20  # the writer abandons larger dictionaries
SAMPLE_BYTES = 16 << 20  # larger samples are not evaluated


def dictionary_columns(rows: pa.Table) -> list[str] | bool:
    """Return the paths of the leaf columns that should have a dictionary, or True for all."""
    sample = _sample(rows)
    if sample is None:
        return True
    share = rows.num_rows / max(1, sample.num_rows)
    return [
        path
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        for _, path, leaf in leaves(name, column.combine_chunks())
        if _repeats(leaf, share)
    ]


def _sample(rows: pa.Table) -> pa.Table | None:
    """Return rows from several parts of a table, as equal values may be adjacent or far apart.

    Return None if the rows are too large.
    """
    if rows.num_rows <= SAMPLE_PLACES * ROWS_PER_PLACE:
        return rows if rows.nbytes <= SAMPLE_BYTES else None
    step = (rows.num_rows - ROWS_PER_PLACE) / (SAMPLE_PLACES - 1)
    sample = pa.concat_tables(
        rows.slice(int(step * number), ROWS_PER_PLACE) for number in range(SAMPLE_PLACES)
    )
    if sample.nbytes > SAMPLE_BYTES:
        return None
    return sample.combine_chunks().take(pa.array(range(0, sample.num_rows, MIN_REPEATS)))


def _repeats(sample: pa.Array, share: float) -> bool:
    """Return True if the values of a column repeat often enough.

    Each sampled row represents `share` rows. `bound` is the expected number of distinct values in a
    sample of this size if a dictionary breaks even and all values are equally frequent.
    """
    count = len(sample) - sample.null_count
    if not count:
        return True  # an empty dictionary costs nothing
    width = max(1.0, sample.nbytes / len(sample))
    limit = max(1.0, min(share * count / MIN_REPEATS, DICTIONARY_BYTES / width))
    bound = limit * -math.expm1(-count / limit)
    return bool(pc.count_distinct(sample, mode="only_valid").as_py() <= bound)
