"""`Target`: the fields of one target, with those of `defaults` filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.iceberg_tools.pipeline.file_fields import APPEND, AUTO, IGNORE, NONE
from connectors.iceberg_tools.pipeline.kinds import Found
from connectors.iceberg_tools.pipeline.mistake import Place


@dataclass(frozen=True, slots=True)
class Target:
    """One target. Fields that were wrong are missing, and are among the mistakes."""

    name: str
    place: Place
    pipeline: str
    fields: Mapping[str, Found] = field(default_factory=dict)

    @staticmethod
    def of(pipeline: str, name: str, own: Found, defaults: Mapping[str, Found]) -> Target:
        """The target's own fields win; mappings are joined key by key."""
        fields = dict(defaults)
        for key, each in own.value.items():
            usual = fields.get(key)
            if usual is not None and isinstance(usual.value, dict) and isinstance(each.value, dict):
                each = Found(each.place, each.path, {**usual.value, **each.value})
            fields[key] = each
        return Target(name, own.place, pipeline, fields)

    @property
    def connector(self) -> str:
        """The connector's name."""
        return str(self.plain("connector", f"{self.pipeline}-{self.name}"))

    @property
    def path(self) -> str:
        return f"targets.{self.name}"

    def plain(self, name: str, default: Any = None) -> Any:
        """The value of a field, without places."""
        found = self.fields.get(name)
        return default if found is None else found.plain()

    def found(self, name: str) -> Found | None:
        return self.fields.get(name)

    def entries(self, name: str) -> Mapping[str, Found]:
        """The entries of a field that is a mapping; empty if it is none."""
        found = self.fields.get(name)
        return found.value if found is not None and isinstance(found.value, dict) else {}

    def items(self, name: str) -> tuple[Found, ...]:
        """The items of a field that is a list; empty if it is none."""
        found = self.fields.get(name)
        return found.value if found is not None and isinstance(found.value, tuple) else ()

    @property
    def write_mode(self) -> str:
        return str(self.plain("write-mode", APPEND))

    @property
    def unwrap(self) -> str:
        return str(self.plain("unwrap", NONE))

    @property
    def schema_changes(self) -> str:
        return str(self.plain("schema-changes", IGNORE))

    @property
    def tables_by_topic(self) -> bool:
        """Whether each topic is a table."""
        return AUTO in (self.plain("tables"), self.plain("route"))

    @property
    def table_settings(self) -> Mapping[str, Found]:
        """The settings of tables by name."""
        named = {str(item.value): Found(item.place, item.path, {}) for item in self.items("tables")}
        return named or self.entries("tables")

    @property
    def fixed_tables(self) -> tuple[str, ...]:
        """The tables that all rows go to, or that a field chooses among; empty: rows are routed by
        topic or name."""
        route = self.plain("route")
        if route is None or (isinstance(route, dict) and not route.get("names-table")):
            return tuple(self.table_settings)
        return ()
