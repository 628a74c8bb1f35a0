"""`SpillFile`: rows that exceed the memory budget, in a file without a name. The system frees it
with the process."""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa

_PAGE: Final = mmap.ALLOCATIONGRANULARITY


@dataclass(frozen=True, slots=True)
class SpilledRows:
    """Where one table stands in a file."""

    offset: int  # bytes; a multiple of a page, so that this piece alone can be mapped
    length: int


class SpillFile:
    """Takes tables one after another and gives each back. Used by one thread."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is that of temporary files unless given."""
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="connect-py-staging-", dir=folder)  # noqa: SIM115 - closed by `close`
        self._end = 0

    def append(self, rows: pa.Table) -> SpilledRows:
        """Write a table."""
        offset = -(-self._end // _PAGE) * _PAGE
        self._file.seek(offset)
        with pa.ipc.new_stream(self._file, rows.schema) as writer:
            writer.write_table(rows)
        self._file.flush()
        self._end = self._file.tell()
        return SpilledRows(offset, self._end - offset)

    def read(self, place: SpilledRows) -> Any:
        """The table, mapped and not copied: it stays readable after `close`."""
        mapped = mmap.mmap(
            self._file.fileno(), place.length, access=mmap.ACCESS_READ, offset=place.offset
        )
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()

    def close(self) -> None:
        """Forget all rows; the system frees them when no table needs them any more."""
        self._file.close()
