"""`Arrivals`: detects changes as they are committed to their Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from connect_py.demo.change_topics import Change, ChangeTopics
from connect_py.quickstart.tables import NAMESPACE, ShopTables, TableState


@dataclass(frozen=True, slots=True)
class Arrival:
    """Changes that one commit added to a table."""

    table: str
    changes: Sequence[Change]
    state: TableState

    def seconds(self, change: Change) -> float:
        """Return the time from the database commit to the Iceberg commit."""
        return (
            self.state.committed_at - datetime.fromtimestamp(change.changed_ms / 1000, UTC)
        ).total_seconds()


class Arrivals:
    """Matches Debezium's events with the offsets in the latest snapshot of each table."""

    def __init__(self, topics: ChangeTopics, tables: ShopTables, catalog: SqlCatalog) -> None:
        self._topics = topics
        self._tables = tables
        self._catalog = catalog
        self._snapshot_ids: dict[str, int] = {}  # ID of each table's latest snapshot

    def new(self) -> list[Arrival]:
        """Return the changes that have arrived since the last call, grouped by table."""
        self._topics.read()
        arrivals = []
        for table in sorted(self._topics.tables()):
            state = self._tables.state(table)
            if state is None or self._snapshot_ids.get(table) == state.snapshot_id:
                continue
            self._snapshot_ids[table] = state.snapshot_id
            if changes := self._topics.take(table, state.offsets):
                arrivals.append(Arrival(table, changes, state))
        return arrivals

    def row(self, table: str, key: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a row as PyIceberg reads it, or None if the table does not contain it."""
        rows: list[dict[str, Any]] = (
            self._catalog.load_table(f"{NAMESPACE}.{table}").scan().to_arrow().to_pylist()
        )
        expected = {name: str(value) for name, value in key.items()}
        return next(
            (row for row in rows if {name: str(row.get(name)) for name in expected} == expected),
            None,
        )
