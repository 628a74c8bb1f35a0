"""`ShopTables`: reads the shop's tables with PyIceberg, without the worker's code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from connect_py.api.record import TopicPartition
from connect_py.plurals import pluralize
from connect_py.quickstart.shop import KEYS, Key, Row, Shop

CATALOG = "shop"
NAMESPACE = "shop"
_OFFSETS = "kafka.connect.source-offsets."


@dataclass(frozen=True, slots=True)
class TableState:
    """Metadata of a table's latest snapshot."""

    table: str
    rows: int
    snapshots: int
    snapshot_id: int
    committed_at: datetime
    offsets: Mapping[TopicPartition, int]  # next offsets to read, from the snapshot summary


class ShopTables:
    """Reads the tables in a catalog whose files are in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._catalog = SqlCatalog(
            CATALOG, uri=catalog_uri(directory), warehouse=warehouse_uri(directory)
        )

    def state(self, table: str) -> TableState | None:
        """Return the state of a table, or None before its first commit."""
        loaded = self._load(table)
        snapshot = loaded.current_snapshot() if loaded is not None else None
        if loaded is None or snapshot is None or snapshot.summary is None:
            return None
        summary = snapshot.summary.additional_properties
        rows = int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
        source_offsets = next(
            (value for key, value in summary.items() if key.startswith(_OFFSETS)), "{}"
        )
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in json.loads(source_offsets).items()
            for partition, offset in partitions.items()
        }
        committed_at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        return TableState(
            table, rows, len(loaded.snapshots()), snapshot.snapshot_id, committed_at, offsets
        )

    def differences(self, shop: Shop) -> list[str]:
        """Compare every row and column of the tables with the shop and return the differences."""
        differences = []
        for table, expected in shop.tables.items():
            actual = self._rows(table)
            missing, extra = expected.keys() - actual.keys(), actual.keys() - expected.keys()
            wrong = [
                key
                for key in expected.keys() & actual.keys()
                if _plain(expected[key]) != actual[key]
            ]
            if missing:
                rows = pluralize(len(missing), "row is missing", "rows are missing")
                differences.append(f"{table}: {rows}, for example {min(missing)}")
            if extra:
                rows = pluralize(len(extra), "row is unexpected", "rows are unexpected")
                differences.append(f"{table}: {rows}, for example {min(extra)}")
            if wrong:
                key = min(wrong)
                rows = pluralize(len(wrong), "row differs", "rows differ")
                differences.append(
                    f"{table}: {rows}, for example {_plain(expected[key])} is {actual[key]}"
                )
        return differences

    def _rows(self, table: str) -> dict[Key, Row]:
        loaded = self._load(table)
        if loaded is None:
            return {}
        rows: list[dict[str, Any]] = loaded.scan().to_arrow().to_pylist()
        keyed = {tuple(row[name] for name in KEYS[table]): row for row in rows}
        if len(keyed) != len(rows):
            duplicates = pluralize(len(rows) - len(keyed), "duplicate key")
            raise AssertionError(f"{table} contains {duplicates}")
        return keyed

    def _load(self, table: str) -> Table | None:
        try:
            return self._catalog.load_table(f"{NAMESPACE}.{table}")
        except NoSuchTableError:
            return None


def _plain(row: Row) -> Row:
    """Return a row of the shop as PyIceberg reads it, with timestamps without a time zone."""
    return {
        name: datetime.fromtimestamp(value / 1_000_000, UTC).replace(
            tzinfo=None, microsecond=value % 1_000_000
        )
        if name in ("since", "ordered_at")
        else value
        for name, value in row.items()
    }


def catalog_uri(directory: Path) -> str:
    """Return the catalog URI for PyIceberg.

    Java's URI begins with `jdbc:` and has one fewer slash.
    """
    # PyIceberg decodes the URI, but Java does not
    return f"sqlite:///{quote(str(directory / 'catalog.db'))}"


def warehouse_uri(directory: Path) -> str:
    return f"file://{directory / 'warehouse'}"
