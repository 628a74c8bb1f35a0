"""`ColumnHistory`: what the sink itself changed about a table's columns, kept in a table property.

Field ids never change, so the history goes by them: which names a column had, and which columns
were added because another one could not take the values of a new type. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

HISTORY: Final = "connect-py.columns"  # {"names":{"2":["b"]},"versions":{"4":[9,11]}}


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """Former names, and versions in the order in which they were added, by field id."""

    names: Mapping[int, Sequence[str]] = field(default_factory=dict)
    versions: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @staticmethod
    def of(properties: Mapping[str, str]) -> ColumnHistory:
        """Read a table's property; a text that is none of ours counts as no history."""
        try:
            data = json.loads(properties.get(HISTORY, "{}"))
            return ColumnHistory(
                {int(id_): tuple(map(str, names)) for id_, names in data.get("names", {}).items()},
                {int(id_): tuple(map(int, ids)) for id_, ids in data.get("versions", {}).items()},
            )
        except (ValueError, TypeError, AttributeError):
            return ColumnHistory()

    def to_json(self) -> str:
        """The text of the property."""
        members = {"names": self.names, "versions": self.versions}
        return json.dumps(
            {key: value for key, value in members.items() if value}, separators=(",", ":")
        )

    def versions_of(
        self, column: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """The versions of a column that are still among the fields of its level, oldest first."""
        by_id = {f["id"]: f for f in fields}
        return [by_id[id_] for id_ in self.versions.get(column["id"], ()) if id_ in by_id]
