"""Schema changes that tasks request and the catalog applies, and the policy for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeAlias


class ChangeKind(Enum):
    """Kind of change to a column."""

    ADD = "add"  # add an optional column
    WIDEN = "widen"  # change a primitive type to a wider type
    OPTIONAL = "make optional"  # make a required column optional
    RENAME = "rename"  # change the name of a column, but not its field ID
    # add a column for values whose type an existing column does not accept; the existing column
    # also becomes optional
    VERSION = "add version"


class ChangeAction(Enum):
    """Reaction to a schema change that rows require."""

    APPLY = "apply"  # the coordinator applies it
    # the table is not changed; fields without a column are dropped, and values must fit the columns
    IGNORE = "ignore"
    # partitions wait at the first row that requires the change, until a user changes the table or
    # the configuration
    HOLD = "hold"
    DEAD_LETTER = "dead-letter"  # the rows that require it are treated as bad records


# Action for each kind of change. If RENAME is ignored, a renamed field is treated as a new column.
# If VERSION is ignored, a value that cannot be converted to the existing column's type is invalid.
EvolutionPolicy: TypeAlias = Mapping[ChangeKind, ChangeAction]


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change to a table's schema. Tasks send it to the coordinator as JSON.

    `path` identifies the column. It contains the names of struct fields, `element` for list items,
    and `value` for map values. The last part is the column's name. Names may contain dots, so a
    path is never stored as one string.
    """

    kind: ChangeKind
    path: tuple[str, ...]
    # Iceberg type as JSON such as `"long"` or `{"type":...}`, with provisional field IDs; None for
    # RENAME
    type: str | None = None
    # ADD: the source column's default value, in Iceberg's single-value JSON serialization
    default: str | None = None
    # RENAME: the new name; VERSION: the name of the additional column
    name: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value, "path": list(self.path)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SchemaChange:
        return SchemaChange(
            ChangeKind(data["kind"]),
            tuple(data["path"]),
            data["type"],
            data["default"],
            data.get("name"),
        )

    def __str__(self) -> str:
        """Describe the change for logs, errors, and metrics."""
        column = ".".join(self.path)
        match self.kind:
            case ChangeKind.ADD:
                return f"add column {column} of type {_shown(self.type)}"
            case ChangeKind.WIDEN:
                return f"widen column {column} to {_shown(self.type)}"
            case ChangeKind.OPTIONAL:
                return f"make column {column} optional"
            case ChangeKind.RENAME:
                return f"rename column {column} to {self.name}"
        return (
            f"add column {self.name} of type {_shown(self.type)} beside {column}, which cannot "
            f"take such values"
        )


def _shown(type_: str | None) -> str:
    type_json = type_ or ""
    return type_json.strip('"') if type_json.startswith('"') else "struct, list or map"
