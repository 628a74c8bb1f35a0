"""Changes that have come into their Iceberg tables since the last look."""

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
    """The changes that a commit brought into a table, and when."""

    table: str
    changes: Sequence[Change]
    state: TableState

    def seconds(self, change: Change) -> float:
        """From the commit in the database to the commit of the table."""
        return (
            self.state.committed_at - datetime.fromtimestamp(change.changed_ms / 1000, UTC)
        ).total_seconds()


class Arrivals:
    """Joins Debezium's events with the offsets that each table's newest snapshot names."""

    def __init__(self, topics: ChangeTopics, tables: ShopTables, catalog: SqlCatalog) -> None:
        self._topics = topics
        self._tables = tables
        self._catalog = catalog
        self._seen: dict[str, int] = {}  # snapshot ids

    def new(self) -> list[Arrival]:
        """What arrived since the last call, table by table."""
        self._topics.read()
        found = []
        for table in sorted(self._topics.tables()):
            state = self._tables.state(table)
            if state is None or self._seen.get(table) == state.snapshot_id:
                continue
            self._seen[table] = state.snapshot_id
            if changes := self._topics.take(table, state.offsets):
                found.append(Arrival(table, changes, state))
        return found

    def row(self, table: str, key: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A row as PyIceberg reads it; None: the table does not have it."""
        rows: list[dict[str, Any]] = (
            self._catalog.load_table(f"{NAMESPACE}.{table}").scan().to_arrow().to_pylist()
        )
        wanted = {name: str(value) for name, value in key.items()}
        return next(
            (row for row in rows if {name: str(row.get(name)) for name in wanted} == wanted), None
        )
