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
    """Ways to write records to a table."""

    APPEND = "append"  # every record becomes a row
    MERGE = "merge"  # records are change data; the table contains the latest row for each key


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Request for a table or for columns that a task requires before it can stage rows.

    The `OpenTable` message contains the request as a string.
    """

    # Iceberg schema as JSON for a new table, or None if it is unknown
    schema: Mapping[str, Any] | None
    reason: str = ""  # why the schema is unknown
    changes: tuple[SchemaChange, ...] = ()
    schema_id: int | None = None  # ID of the table schema to which the changes apply
    keys: tuple[str, ...] = ()  # key columns of the records, used if the table has none

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
    """Description of a table that is sufficient for staging rows without access to the catalog."""

    name: str  # name that the connector's routing produced, such as `db.orders`
    uuid: str
    format_version: int
    location: str  # URI of the table
    data_location: str  # URI under which data files are written
    schema_id: int
    schema: str  # Iceberg schema as JSON, with field IDs
    spec: str  # Iceberg partition spec as JSON
    mode: WriteMode
    key_columns: tuple[str, ...] = ()  # names in the table; empty unless the mode is MERGE
    properties: Mapping[str, str] = field(default_factory=dict)  # table properties
    io_properties: Mapping[str, str] = field(default_factory=dict)  # for PyIceberg's FileIO
    # sort order of the rows in new files: column path, True if descending, True if nulls are first
    sort_by: tuple[tuple[str, bool, bool], ...] = ()
    # If a primary key changes, Debezium emits a pair of events: the delete of the old key and the
    # insert of the new key. These are the IDs of the pairs for which only the delete has been
    # committed.
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

    # rows with the table's schema and field IDs; they are appended or, in MERGE mode, upserted (the
    # file contains one row per key)
    ROWS = "rows"
    DELETES = "deletes"  # key columns of rows to delete
    CHANGES = "changes"  # changes that depend on other rows (see `staging/staged_changes.py`)
    # replayed dead-letter rows with the table's schema; a row is inserted unless its key exists
    INSERTS = "inserts"
    TRUNCATES = "truncates"  # no file; all rows from earlier cycles are deleted


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Parquet file with changes to one table from one Kafka partition in one cycle."""

    kind: StagedKind
    path: str  # URI
    rows: int
    size: int  # bytes
    schema_id: int
    spec_id: int
    # partition values in spec order, as Iceberg's single-value JSON
    partition: Sequence[str | None] = ()
    unavailable: Sequence[str] = ()  # CHANGES: columns without a value in some rows
    order: str = ""  # TRUNCATES: position in the source, or empty; earlier rows are deleted
    pairs: bool = False  # CHANGES: True if some changes are halves of key-change pairs
    partial: int = 0  # CHANGES: number of rows whose missing values must be filled in

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StagedFile:
        tuples = {name: tuple(data[name]) for name in ("partition", "unavailable")}
        return StagedFile(**{**data, **tuples, "kind": StagedKind(data["kind"])})
