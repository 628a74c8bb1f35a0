"""`ReplaceField`: removes and renames fields."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Field, Schema, Struct, Value, java_class_name
from transforms.kept_fields import KeptFields
from transforms.rebuild import values_of
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import SideTransformation, for_both

log = logging.getLogger(__name__)

PURPOSE = "field replacement"


def _renames(name: str, value: Parsed) -> None:
    for mapping in value or []:
        if len(mapping.split(":")) != 2:
            raise ConfigValueError(name, value, f"Invalid rename mapping: {mapping}")


class ReplaceField(SideTransformation[R]):
    """Keeps the fields that are included and not excluded, under their new names. Null values pass
    unchanged."""

    config_def = (
        ConfigDef()
        .define(
            "exclude",
            Type.LIST,
            default="",
            importance=Importance.MEDIUM,
            doc="Fields to remove; stronger than include.",
        )
        .define(
            "include",
            Type.LIST,
            default="",
            importance=Importance.MEDIUM,
            doc="Fields to keep; empty keeps all.",
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
            doc="Old name of exclude.",
        )
        .define(
            "whitelist",
            Type.LIST,
            default="",
            importance=Importance.LOW,
            internal=True,
            doc="Old name of include.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        for old, new in (("blacklist", "exclude"), ("whitelist", "include")):
            if props[old]:
                log.warning("%s is deprecated, use %s", old, new)
        self._kept = KeptFields(
            props["exclude"] or props["blacklist"],
            props["include"] or props["whitelist"],
            dict(mapping.split(":") for mapping in props["renames"]),
        )
        self._replace_null_with_default: bool = props["replace.null.with.default"]

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if schema is None:
            names = self._kept.names
            pairs = require_map(value, PURPOSE).items()
            return self.side.put(
                record, None, {new: v for k, v in pairs if (new := names[k]) is not None}
            )
        row = require_struct(value, PURPOSE, schema)
        result, sources, rules, in_place = self._kept.result(row.schema)
        old = values_of(row, replace_null_with_default=self._replace_null_with_default)
        values = old if in_place else [old[source] for source in sources]
        if rules is not None:
            rules.check(values)
            return self.side.put(record, result, Struct(result, values))
        made = Struct(result)
        for field, source, value in zip(result.fields, sources, values, strict=True):
            _check_class(row.schema.fields[source].schema, field, value)
            made.put(field.name, value)
        return self.side.put(record, result, made)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.replace_columns import replaced

        return replaced(
            self._kept,
            self.side,
            batch,
            self.apply,
            replace_null_with_default=self._replace_null_with_default,
        )


def _check_class(origin: Schema, field: Field, value: Value) -> None:
    """Fail where Java's objects of one schema are none of the other's, though Python's would be:
    dates, widths."""
    found = java_class_name(value, origin)
    if value is not None and found != java_class_name(value, field.schema):
        label = "" if field.schema.name is None else f' "{field.schema.name}"'
        raise DataError(
            f"Invalid Java object for schema{label} with type {field.schema.type.name}: class "
            f"{found} "
            f'for field: "{field.name}"'
        )


ReplaceFieldKey, ReplaceFieldValue = for_both(ReplaceField)
