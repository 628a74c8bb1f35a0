"""Everything that a table remembers: snapshots along one ref, and what its manifests say of data
files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.staging.staged_file_name import PREFIX
from connectors.iceberg.table.table_history import LEDGER_PREFIX, HistoricSnapshot, TableHistory

_NAMED: Final = 100  # files that are named when something is wrong with them


def read(table: JavaTable, ref: str) -> TableHistory:
    """See `LakeSession.history`."""
    metadata = table.metadata()
    head = metadata.head(ref)
    added: dict[str, int] = {}  # path -> the snapshot that brought it
    twice: list[tuple[str, int, int]] = []
    ancestors, complete = [], True
    for snapshot in metadata.ancestors(head):
        parent, number = snapshot.get("parent-snapshot-id"), snapshot["snapshot-id"]
        complete = parent is None or parent in metadata.snapshots
        stagers = set()
        for path in (
            str(file.location()) for file in table.changes(table.snapshot(number)).addedDataFiles()
        ):
            newer, added[path] = added.get(path), number
            if newer is not None:
                twice.append((path, number, newer))
            name = path.rpartition("/")[2]
            parts = name.split(".")
            if name.startswith(PREFIX) and len(parts) > 2:
                stagers.add(parts[1])
        summary = {key: value for key, value in snapshot["summary"].items() if key != "operation"}
        operation = snapshot["summary"].get("operation")
        ancestors.append(
            HistoricSnapshot(
                number, snapshot["timestamp-ms"], operation, summary, tuple(sorted(stagers))
            )
        )
    live = Counter(table.live_data_files(head["snapshot-id"]) if head is not None else ())
    live_twice = tuple(path for path, count in live.items() if count > 1)
    present = {
        number: frozenset(_by_group(s["summary"])) for number, s in metadata.snapshots.items()
    }
    return TableHistory(
        table.name,
        ref,
        metadata.uuid,
        ref in metadata.refs,
        _by_group(metadata.properties),
        ancestors,
        complete,
        present,
        len(live),
        live_twice[:_NAMED],
        tuple(twice[:_NAMED]),
    )


def _by_group(texts: Mapping[str, str]) -> dict[str, str]:
    """Texts of ledgers by connect group."""
    return {
        key.removeprefix(LEDGER_PREFIX): text
        for key, text in texts.items()
        if key.startswith(LEDGER_PREFIX)
    }
