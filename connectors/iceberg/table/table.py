"""Table requests, table descriptions, and staged files.

Tasks and the coordinator exchange these values as JSON on the channel topic, so tasks do not access
the catalog.
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
    MERGE = "merge"  # change data; the table contains the last row of each key


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Request for a table or for columns that a task requires before it can stage rows.

    `OpenTable` contains the request as a string.
    """

    # Iceberg schema as JSON for a new table, or None if it is unknown
    schema: Mapping[str, Any] | None
    reason: str = ""  # why the schema is unknown
    changes: tuple[SchemaChange, ...] = ()
    schema_id: int | None = None  # ID of the table schema without these changes
    keys: tuple[str, ...] = ()  # key columns of the rows, for a table without key columns

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

    name: str  # as routed, such as `db.orders`
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
    # sort order of the rows in new files: path of a column, descending, nulls first
    sort_by: tuple[tuple[str, bool, bool], ...] = ()
    # IDs of key changes whose delete was committed and whose insert was not
    open_pairs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mode": self.mode.value, "key_columns": list(self.key_columns)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TableDescription:
        tuples = {name: tuple(data.get(name, ())) for name in ("key_columns", "open_pairs")}
        tuples["sort_by"] = tuple(tuple(each) for each in data.get("sort_by", ()))
        return TableDescription(**{**data, **tuples, "mode": WriteMode(data["mode"])})


class StagedKind(Enum):
    """Content of a staged file."""

    # rows with the table schema and field IDs: appended, or upserted in MERGE mode (one per key)
    ROWS = "rows"
    DELETES = "deletes"  # key columns of rows to delete
    CHANGES = "changes"  # changes that require other rows (see `staging/staged_changes.py`)
    # replayed dead-letter rows with the table schema, inserted if the table lacks their key
    INSERTS = "inserts"
    TRUNCATES = "truncates"  # no file; all rows of earlier cycles are deleted


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Parquet file of one table, Kafka partition, and cycle."""

    kind: StagedKind
    path: str  # URI
    rows: int
    size: int  # bytes
    schema_id: int
    spec_id: int
    # partition values in spec order, as Iceberg's single-value JSON
    partition: Sequence[str | None] = ()
    unavailable: Sequence[str] = ()  # CHANGES: columns that some rows lack
    order: str = ""  # TRUNCATES of ordered rows: rows with a lower order are deleted
    pairs: bool = False  # CHANGES: True if some of them change a key
    partial: int = 0  # CHANGES: number of rows to complete

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StagedFile:
        tuples = {name: tuple(data[name]) for name in ("partition", "unavailable")}
        return StagedFile(**{**data, **tuples, "kind": StagedKind(data["kind"])})
