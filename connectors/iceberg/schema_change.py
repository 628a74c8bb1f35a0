"""`SchemaChange`: one step of a table's evolution, as tasks wish for it and the catalog carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class ChangeKind(Enum):
    """How a column changes."""

    ADD = "add"  # add a column, optional
    WIDEN = "widen"  # a wider primitive type
    OPTIONAL = "make optional"  # no longer required


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's schema; plain data that travels as JSON, to the coordinator and to its JVM.

    `path` leads to the column: struct fields by name, `element` into a list, `value` into the values of a map; its
    last part is the column's own name. Names may hold dots, so the parts are never joined.
    """

    kind: ChangeKind
    path: tuple[str, ...]
    type: str | None = None  # ADD and WIDEN: JSON text, `"long"` or `{"type":...}`; field ids in it are provisional
    default: str | None = None  # ADD: the default of the source's column, as Iceberg's single-value JSON

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value, "path": list(self.path)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SchemaChange:
        return SchemaChange(ChangeKind(data["kind"]), tuple(data["path"]), data["type"], data["default"])
