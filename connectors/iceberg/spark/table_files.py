"""Reading files of a table in this process: local ones straight through Arrow, others through PyIceberg's file IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from connectors.iceberg.staging.file_output import local_path

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO


class TableFiles:
    """Opens what the table's paths name."""

    def __init__(self, io_properties: Mapping[str, str]) -> None:
        self._io_properties = io_properties
        self._io: PyArrowFileIO | None = None

    def open(self, path: str) -> pa.NativeFile:
        """A file to read from, to be closed. OSError: it cannot be read."""
        if (local := local_path(path)) is not None:
            return pa.OSFile(str(local))
        if self._io is None:
            from pyiceberg.io.pyarrow import PyArrowFileIO  # takes a while to import, and few need it

            self._io = PyArrowFileIO(dict(self._io_properties))
        return self._io.new_input(path).open()
