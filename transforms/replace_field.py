"""`ReplaceField`: removes and renames fields."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Field, Schema, Value, java_class_name, validate_value
from transforms.field_changes import FieldChanges, Plan
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both

log = logging.getLogger(__name__)


def _renames(name: str, value: Parsed) -> None:
    for mapping in value or []:
        if len(mapping.split(":")) != 2:
            raise ConfigValueError(name, value, f"Invalid rename mapping: {mapping}")


class ReplaceField(FieldTransformation[R]):
    """Removes fields that are excluded or not included, and renames fields.

    Null values are passed through unchanged.
    """

    purpose = "field replacement"
    config_def = (
        ConfigDef()
        .define(
            "exclude",
            Type.LIST,
            default="",
            importance=Importance.MEDIUM,
            doc="Fields to remove. Takes precedence over include.",
        )
        .define(
            "include",
            Type.LIST,
            default="",
            importance=Importance.MEDIUM,
            doc="Fields to retain. Empty to retain all fields.",
        )
        .define(
            "renames",
            Type.LIST,
            default="",
            validator=_renames,
            importance=Importance.MEDIUM,
            doc="New names of fields, each as old:new.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
        .define(
            "blacklist",
            Type.LIST,
            default="",
            importance=Importance.LOW,
            internal=True,
            doc="Deprecated: use exclude.",
        )
        .define(
            "whitelist",
            Type.LIST,
            default="",
            importance=Importance.LOW,
            internal=True,
            doc="Deprecated: use include.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        for old, new in (("blacklist", "exclude"), ("whitelist", "include")):
            if props[old]:
                log.warning("%s is deprecated, use %s", old, new)
        self._exclude = frozenset(props["exclude"] or props["blacklist"])
        self._include = frozenset(props["include"] or props["whitelist"])
        self._new_names: dict[str, str] = dict(mapping.split(":") for mapping in props["renames"])
        self._old_names = {new: old for old, new in self._new_names.items()}
        self.declare(
            FieldChanges(new_name=self._new_name),
            replace_null_with_default=props["replace.null.with.default"],
        )

    def _new_name(self, name: str) -> str | None:
        if name in self._exclude or (self._include and name not in self._include):
            return None
        return self._new_names.get(name, name)

    def make_plan(self, schema: Schema) -> Plan:
        """Return the plan for a struct schema. As in Java, values are looked up by new field name.

        If a field is renamed to the name of another retained field, both fields therefore get the
        value of the renamed field, which may not match the schema of the other field.
        """
        result = super().make_plan(schema).schema
        return Plan(schema, result, [self._source(schema, field.name) for field in result.fields])

    def _source(self, schema: Schema, new_name: str) -> int:
        name = self._old_names.get(new_name, new_name)
        source = schema.field(name)
        if source is None:
            raise DataError(f"{name} is not a valid field name")
        return source.index

    def check(self, plan: Plan, values: Sequence[Value]) -> None:
        """Validate each field of a row in the same way as Java's `Struct.put`."""
        if plan.keeps_schemas:
            plan.rules.check(values)
            return
        fields = plan.source.fields
        for field, source, value in zip(plan.schema.fields, plan.sources, values, strict=True):
            _check_class(fields[source].schema, field, value)
            validate_value(field.schema, value, field.name)


def _check_class(origin: Schema, field: Field, value: Value) -> None:
    """Raise DataError if the value has different Java classes under the two schemas.

    The Python class may be the same, for example for integers of different widths.
    """
    java_class = java_class_name(value, origin)
    if value is not None and java_class != java_class_name(value, field.schema):
        label = "" if field.schema.name is None else f' "{field.schema.name}"'
        raise DataError(
            f"Invalid Java object for schema{label} with type {field.schema.type.name}: class "
            f'{java_class} for field: "{field.name}"'
        )


ReplaceFieldKey, ReplaceFieldValue = for_both(ReplaceField)
