"""`Target`: the fields of one target, including `defaults`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.iceberg_tools.pipeline.file_fields import APPEND, AUTO, IGNORE, NONE
from connectors.iceberg_tools.pipeline.kinds import FieldValue
from connectors.iceberg_tools.pipeline.mistake import FilePosition


@dataclass(frozen=True, slots=True)
class Target:
    """One target. Invalid fields are missing, because they are reported as mistakes."""

    name: str
    position: FilePosition
    pipeline: str
    fields: Mapping[str, FieldValue] = field(default_factory=dict)

    @staticmethod
    def of(
        pipeline: str, name: str, target_field: FieldValue, defaults: Mapping[str, FieldValue]
    ) -> Target:
        """Create a target. Its fields take precedence over the defaults. Mappings are merged."""
        fields = dict(defaults)
        for key, each in target_field.value.items():
            default = fields.get(key)
            if (
                default is not None
                and isinstance(default.value, dict)
                and isinstance(each.value, dict)
            ):
                each = FieldValue(each.position, each.path, {**default.value, **each.value})
            fields[key] = each
        return Target(name, target_field.position, pipeline, fields)

    @property
    def connector(self) -> str:
        """Return the name of the connector."""
        return str(self.plain("connector", f"{self.pipeline}-{self.name}"))

    @property
    def path(self) -> str:
        return f"targets.{self.name}"

    def plain(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, without positions."""
        value = self.fields.get(name)
        return default if value is None else value.plain()

    def field(self, name: str) -> FieldValue | None:
        return self.fields.get(name)

    def entries(self, name: str) -> Mapping[str, FieldValue]:
        """Return the entries of a mapping field, or no entries if it is not a mapping."""
        value = self.fields.get(name)
        return value.value if value is not None and isinstance(value.value, dict) else {}

    def items(self, name: str) -> tuple[FieldValue, ...]:
        """Return the items of a list field, or no items if it is not a list."""
        value = self.fields.get(name)
        return value.value if value is not None and isinstance(value.value, tuple) else ()

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
        """Return True if each topic has its own table."""
        return AUTO in (self.plain("tables"), self.plain("route"))

    @property
    def table_settings(self) -> Mapping[str, FieldValue]:
        """Return each table's settings by table name."""
        without_settings = {
            str(item.value): FieldValue(item.position, item.path, {})
            for item in self.items("tables")
        }
        return without_settings or self.entries("tables")

    @property
    def fixed_tables(self) -> tuple[str, ...]:
        """Return the tables that all rows are written to, or one of which a field selects.

        The result is empty if rows are routed by topic or by table name.
        """
        route = self.plain("route")
        if route is None or (isinstance(route, dict) and not route.get("names-table")):
            return tuple(self.table_settings)
        return ()
