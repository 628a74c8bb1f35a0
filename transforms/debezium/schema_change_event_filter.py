"""`SchemaChangeEventFilter`: drops schema change events of the configured types."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.record import R
from connect_py.api.schema import Struct
from connect_py.api.transformation import Transformation
from transforms.validators import non_empty_list

_SUFFIX = ".SchemaChangeValue"


class SchemaChangeEventFilter(Transformation[R]):
    """Drops an event if its first change has an excluded type."""

    config_def = ConfigDef().define(
        "schema.change.event.exclude.list",
        Type.LIST,
        validator=non_empty_list,
        importance=Importance.MEDIUM,
        doc="Types of changes to drop, such as DROP or TRUNCATE.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._excluded = frozenset(
            kind.upper() for kind in props["schema.change.event.exclude.list"]
        )

    def apply(self, record: R) -> R | None:
        schema = record.value_schema
        if (
            schema is None
            or not (schema.name or "").endswith(_SUFFIX)
            or not isinstance(record.value, Struct)
        ):
            return record
        field = schema.field("tableChanges")
        changes = [] if field is None else record.value.values[field.index] or []
        return None if changes and str(changes[0].get("type")).upper() in self._excluded else record
