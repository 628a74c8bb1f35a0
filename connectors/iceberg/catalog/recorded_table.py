"""`RecordedTable`: a table whose MERGE is recorded instead of committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.config.spark_config import RECORDED_CATALOG


@dataclass(frozen=True, slots=True)
class Recording:
    """The files that a MERGE into a recorded table wrote and removed."""

    is_empty: bool  # no row of the table matched
    locations: Sequence[str]  # of the files that the MERGE wrote
    replaced_rows: int
    data_files: int  # added and removed ones
    delete_files: int  # added ones
    names_every_file: bool  # each delete file names its data file


class RecordedTable:
    """A table object that only this JVM sees. See `RecordedTable.java`."""

    def __init__(self, java: JavaClasses, recorded: Any, name: str) -> None:
        """Wrap a table object that is not registered yet; Spark's UI and event log show the name of
        the table."""
        self._java = java
        self._recorded = recorded
        self._key = f"{name}-{uuid.uuid4().hex[:12]}"

    @property
    def relation(self) -> str:
        """The name in Spark SQL."""
        return f"{RECORDED_CATALOG}.{quoted(self._key)}"

    @contextmanager
    def registered(self) -> Iterator[Self]:
        """Let Spark SQL find the table by its name within the block."""
        catalog = self._java("connectpy.RecordedCatalog")
        catalog.add(self._key, self._recorded)
        try:
            yield self
        finally:
            catalog.remove(self._key)

    def recording(self) -> Recording:
        """Return what was recorded so far."""
        report = self._java.json(self._recorded.report())
        return Recording(
            is_empty=report["commits"] == 0,
            locations=report["locations"],
            replaced_rows=report["replaced-rows"],
            data_files=report["data-files"],
            delete_files=report["delete-files"],
            names_every_file=report["names-every-file"],
        )

    @property
    def is_overwrite(self) -> bool:
        """Whether data files were replaced without delete files (copy-on-write)."""
        recording = self.recording()
        return recording.data_files > 0 and recording.delete_files == 0

    def add_to(self, update: Any) -> None:
        """Add the recorded files to a Java `RowDelta`, or to an `OverwriteFiles` if
        `is_overwrite`."""
        self._recorded.addTo(update)
