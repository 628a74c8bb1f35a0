"""Schema changes that tasks request and the catalog applies, and the policy for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeAlias


class ChangeKind(Enum):
    """Kind of change of a column."""

    ADD = "add"  # add a column, optional
    WIDEN = "widen"  # a wider primitive type
    OPTIONAL = "make optional"  # no longer required
    RENAME = "rename"  # another name, the same field id
    # another column, for values of a type that the column does not accept; both are optional
    VERSION = "add version"


class ChangeAction(Enum):
    """Treatment of a change of a table's schema."""

    APPLY = "apply"  # the coordinator applies it
    # the table is unchanged; fields without a column are dropped, values must fit their columns
    IGNORE = "ignore"
    # partitions wait at the first such row until a user changes the table or the configuration
    HOLD = "hold"
    DEAD_LETTER = "dead-letter"  # the rows are bad records


# Treatment of each kind of change. If RENAME is ignored, a renamed field is a new column. If
# VERSION is ignored, the conversion of each value decides.
EvolutionPolicy: TypeAlias = Mapping[ChangeKind, ChangeAction]


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's schema, sent as JSON to the coordinator and to its JVM.

    `path` contains the names of struct fields, `element` for the items of a list, and `value` for
    the values of a map; the last part is the name of the column. Names may contain dots, so the
    parts are never joined.
    """

    kind: ChangeKind
    path: tuple[str, ...]
    # except RENAME: JSON such as `"long"` or `{"type":...}`; its field IDs are provisional
    type: str | None = None
    # ADD: the default of the source's column, as Iceberg's single-value JSON
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
        """Return the description for logs, errors, and metrics."""
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
    text = type_ or ""
    return text.strip('"') if text.startswith('"') else "struct, list or map"
