"""Times at which commits become visible: the table's pointer in the catalog, polled many times per
second.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakehouse import LEDGER
from process_watch import Sampler

LOOK_SECONDS = 0.01  # so late at worst is a commit seen


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot of ours that a reader can see."""

    seen_ms: float  # since the epoch of Unix, when a look found it
    epoch: int
    cycle: int
    next: Mapping[int, int]  # by partition: records below are in the table
    files: int = 0  # data and delete files of the snapshot
    snapshots: int = 0  # in the metadata that has it
    metadata_files: int = 0  # earlier metadata files, and the current one


class CatalogWatch:
    """Polls one table of an SQLite catalog on a separate thread, until it is closed."""

    def __init__(self, database: Path, table: str, topic: str) -> None:
        """`table`: `namespace.name`; it may not exist yet."""
        self._database = f"file:{database}?mode=ro"
        self._table = table.split(".")
        self._topic = topic
        self._pointer: str | None = None
        self._known: set[int] = set()  # snapshot ids
        self._lock = threading.Lock()
        self._commits: list[Commit] = []
        self._sampler = Sampler(self._look, LOOK_SECONDS)

    @property
    def commits(self) -> list[Commit]:
        """Commits so far, oldest first."""
        with self._lock:
            return list(self._commits)

    def covered(self) -> int:
        """Records that the table covers."""
        commits = self.commits
        return sum(commits[-1].next.values()) if commits else 0

    def close(self) -> None:
        self._sampler.close()

    def _look(self) -> None:
        pointer = self._read_pointer()
        if pointer is None or pointer == self._pointer:
            return
        seen = time.time() * 1000
        self._pointer = pointer
        metadata = json.loads(
            Path(pointer.removeprefix("file:").replace("///", "/", 1)).read_bytes()
        )
        new = [s for s in metadata.get("snapshots", ()) if s["snapshot-id"] not in self._known]
        self._known.update(s["snapshot-id"] for s in new)
        found = [
            self._commit(seen, s["summary"], metadata)
            for s in sorted(new, key=lambda s: int(s["sequence-number"]))
        ]
        with self._lock:
            self._commits += [commit for commit in found if commit is not None]

    def _read_pointer(self) -> str | None:
        try:
            # connections are closed: an open reader could block the sink's commit
            database = sqlite3.connect(self._database, uri=True, timeout=5)
            try:
                found = database.execute(
                    "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND "
                    "table_name = ?",
                    self._table,
                ).fetchone()
            finally:
                database.close()
        except sqlite3.OperationalError:
            return None  # the catalog is not made yet, or written at this moment
        return None if found is None else str(found[0])

    def _commit(
        self, seen: float, summary: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> Commit | None:
        text = next((value for key, value in summary.items() if key.startswith(LEDGER)), None)
        if text is None:
            return None
        ledger = json.loads(text)
        partitions = ledger["topics"].get(self._topic, {"p": {}})["p"]
        ends = {int(partition): int(entry[2]) for partition, entry in partitions.items()}
        return Commit(
            seen,
            ledger["epoch"][0],
            ledger["cycle"],
            ends,
            files=int(summary["total-data-files"]) + int(summary["total-delete-files"]),
            snapshots=len(metadata["snapshots"]),
            metadata_files=len(metadata.get("metadata-log", ())) + 1,
        )
