"""What a task asks of a table that it cannot stage rows for yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from connectors.iceberg.schema_change import SchemaChange


@dataclass(frozen=True, slots=True)
class TableRequest:
    """How to create the table, and what it lacks. Travels as text inside `OpenTable`."""

    schema: Mapping[str, Any] | None  # Iceberg schema JSON for a new table; None: the rows do not tell
    reason: str = ""  # why they do not
    changes: tuple[SchemaChange, ...] = ()
    schema_id: int | None = None  # of the table's schema that lacks them
    keys: tuple[str, ...] = ()  # the key of these rows, for a table that has no key columns

    def to_text(self) -> str:
        changes = [change.to_json() for change in self.changes]
        return json.dumps({**asdict(self), "changes": changes}, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> TableRequest:
        data = json.loads(text)
        changes = tuple(SchemaChange.from_json(change) for change in data["changes"])
        return TableRequest(data["schema"], data["reason"], changes, data.get("schema_id"), tuple(data.get("keys", ())))
