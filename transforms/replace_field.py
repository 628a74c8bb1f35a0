"""`ReplaceField`: removes and renames fields."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Field, Schema, Struct, Value, java_class_name
from connect_py.api.transformation import Transformation
from transforms.by_schema import BySchema
from transforms.rebuild import Rules, rebuilt, values_of
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import Side

if TYPE_CHECKING:
    from transforms.replace_columns import ReplaceColumns

log = logging.getLogger(__name__)

PURPOSE = "field replacement"
_MOST_NAMES = 10_000


def _renames(name: str, value: Parsed) -> None:
    for mapping in value or []:
        if len(mapping.split(":")) != 2:
            raise ConfigValueError(name, value, f"Invalid rename mapping: {mapping}")


class Replaced(NamedTuple):
    """What becomes of structs of one schema."""

    schema: Schema
    sources: tuple[int, ...]  # for each field afterwards the index of the one its value comes from
    rules: Rules | None  # of the fields afterwards; None: one is renamed onto one that stays, of another schema
    in_place: bool  # every field stays where it is


class ReplaceField(Transformation[R]):
    """Keeps the fields that are included and not excluded, under their new names. Null values pass unchanged."""

    config_def = (
        ConfigDef()
        .define(
            "exclude", Type.LIST, default="", importance=Importance.MEDIUM,
            doc="Fields to remove; stronger than include.",
        )
        .define(
            "include", Type.LIST, default="", importance=Importance.MEDIUM, doc="Fields to keep; empty keeps all."
        )
        .define(
            "renames", Type.LIST, default="", validator=_renames, importance=Importance.MEDIUM,
            doc="New names of fields, each as old:new.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
        .define(
            "blacklist", Type.LIST, default="", importance=Importance.LOW, internal=True,
            doc="Old name of exclude.",
        )
        .define(
            "whitelist", Type.LIST, default="", importance=Importance.LOW, internal=True,
            doc="Old name of include.",
        )
    )  # fmt: skip
    side: ClassVar[Side]

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        for old, new in (("blacklist", "exclude"), ("whitelist", "include")):
            if props[old]:
                log.warning("%s is deprecated, use %s", old, new)
        self._exclude = frozenset(props["exclude"] or props["blacklist"])
        self._include = frozenset(props["include"] or props["whitelist"])
        self._new_names: dict[str, str] = dict(mapping.split(":") for mapping in props["renames"])
        self._old_names = {new: old for old, new in self._new_names.items()}
        self._names = _Names(self)
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self.result = BySchema(self._result)
        self._columns: ReplaceColumns | None = None

    def keeps(self, name: str) -> bool:
        """Whether a field of this (original) name stays."""
        return name not in self._exclude and (not self._include or name in self._include)

    def new_name(self, name: str) -> str:
        """What a field is called afterwards."""
        return self._new_names.get(name, name)

    def _result(self, schema: Schema) -> Replaced:
        """What becomes of structs of a schema.

        Raises:
            SchemaBuilderError: Two fields get the same name.
            DataError: A value is to come from a field that is not there: what is renamed to the name of a field
                that stays must exist.
        """
        result = rebuilt(schema, [(self.new_name(f.name), f.schema) for f in schema.fields if self.keeps(f.name)])
        sources = []
        for field in result.fields:
            name = self._old_names.get(field.name, field.name)
            source = schema.field(name)
            if source is None:
                raise DataError(f"{name} is not a valid field name")
            sources.append(source.index)
        same = all(schema.fields[i].schema is f.schema for i, f in zip(sources, result.fields, strict=True))
        in_place = same and sources == list(range(len(schema.fields)))
        return Replaced(result, tuple(sources), Rules(result) if same else None, in_place=in_place)

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if schema is None:
            names = self._names
            pairs = require_map(value, PURPOSE).items()
            return self.side.put(record, None, {new: v for k, v in pairs if (new := names[k]) is not None})
        row = require_struct(value, PURPOSE, schema)
        result, sources, rules, in_place = self.result(row.schema)
        old = values_of(row, replace_null_with_default=self.replace_null_with_default)
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
        if self._columns is None:
            from transforms.replace_columns import ReplaceColumns

            self._columns = ReplaceColumns(self)
        return self._columns.apply(batch)


class _Names(dict[Any, str | None]):
    """The name of each member of a map afterwards, None: it is removed; worked out once, up to a bound."""

    def __init__(self, reference: ReplaceField[Any]) -> None:
        self._reference = reference

    def __missing__(self, name: Any) -> str | None:
        if len(self) > _MOST_NAMES:
            self.clear()
        found = self[name] = self._reference.new_name(name) if self._reference.keeps(name) else None
        return found


def _check_class(origin: Schema, field: Field, value: Value) -> None:
    """Fail where Java's objects of one schema are none of the other's, though Python's would be: dates, widths."""
    found = java_class_name(value, origin)
    if value is not None and found != java_class_name(value, field.schema):
        label = "" if field.schema.name is None else f' "{field.schema.name}"'
        raise DataError(
            f"Invalid Java object for schema{label} with type {field.schema.type.name}: class {found} "
            f'for field: "{field.name}"'
        )


class ReplaceFieldKey(ReplaceField[R]):
    """`ReplaceField$Key`."""

    side = Side.KEY


class ReplaceFieldValue(ReplaceField[R]):
    """`ReplaceField$Value`."""

    side = Side.VALUE
