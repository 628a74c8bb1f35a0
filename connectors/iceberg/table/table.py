"""Requests for tables, descriptions of tables, and staged files.

Tasks and coordinator exchange them as JSON on the channel topic, so tasks need no catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from connectors.iceberg.table.schema_change import SchemaChange


class WriteMode(Enum):
    """Write mode of a table."""

    APPEND = "append"  # every record is a row
    MERGE = "merge"  # change data: the last row per key


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Table or columns that a task needs before it can stage rows.

    `OpenTable` contains the request as a string.
    """

    # Iceberg schema as JSON for a new table; None: unknown
    schema: Mapping[str, Any] | None
    reason: str = ""  # why it is unknown
    changes: tuple[SchemaChange, ...] = ()
    schema_id: int | None = None  # of the table's schema without these changes
    keys: tuple[str, ...] = ()  # key of the rows, for a table without key columns

    def to_text(self) -> str:
        changes = [change.to_json() for change in self.changes]
        return json.dumps({**asdict(self), "changes": changes}, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> TableRequest:
        data = json.loads(text)
        changes = tuple(SchemaChange.from_json(change) for change in data["changes"])
        return TableRequest(
            data["schema"],
            data["reason"],
            changes,
            data.get("schema_id"),
            tuple(data.get("keys", ())),
        )


@dataclass(frozen=True, slots=True)
class TableDescription:
    """Description of a table that is sufficient for staging rows, without a catalog."""

    name: str  # as routed, `db.orders`
    uuid: str
    format_version: int
    location: str  # URI of the table
    data_location: str  # URI under which data files are written
    schema_id: int
    schema: str  # Iceberg schema as JSON, with field IDs
    spec: str  # Iceberg partition spec as JSON
    mode: WriteMode
    key_columns: tuple[str, ...] = ()  # MERGE only, as named in the table
    properties: Mapping[str, str] = field(default_factory=dict)  # of the table
    io_properties: Mapping[str, str] = field(default_factory=dict)  # for PyIceberg's file IO
    sort_by: tuple[
        tuple[str, bool, bool], ...
    ] = ()  # path of a column, descending, nulls first: order in new files
    open_pairs: tuple[
        str, ...
    ] = ()  # changes of keys of which the delete was committed, and the insert was not

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mode": self.mode.value, "key_columns": list(self.key_columns)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TableDescription:
        tuples = {name: tuple(data.get(name, ())) for name in ("key_columns", "open_pairs")}
        tuples["sort_by"] = tuple(tuple(each) for each in data.get("sort_by", ()))
        return TableDescription(**{**data, **tuples, "mode": WriteMode(data["mode"])})


class StagedKind(Enum):
    """Meaning of the rows of a staged file."""

    # table schema with field IDs: appended unchanged; in MERGE mode, upserts, one row per key
    ROWS = "rows"
    DELETES = "deletes"  # key columns: rows to delete
    CHANGES = "changes"  # changes that complete rows: see `staging/staged_changes.py`
    # table schema: replayed dead letters, which are inserted if the table lacks their key
    INSERTS = "inserts"
    TRUNCATES = "truncates"  # no file: all rows of earlier cycles are deleted


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Parquet file of one table, Kafka partition, and cycle."""

    kind: StagedKind
    path: str  # URI
    rows: int
    size: int  # bytes
    schema_id: int
    spec_id: int
    partition: Sequence[
        str | None
    ] = ()  # partition values in spec order, as Iceberg's single-value JSON text
    unavailable: Sequence[str] = ()  # CHANGES: columns that some rows lack
    order: str = ""  # TRUNCATES of ordered rows: rows with a lower order are deleted
    pairs: bool = False  # CHANGES: some change a key
    partial: int = 0  # CHANGES: number of rows to complete

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StagedFile:
        tuples = {name: tuple(data[name]) for name in ("partition", "unavailable")}
        return StagedFile(**{**data, **tuples, "kind": StagedKind(data["kind"])})
