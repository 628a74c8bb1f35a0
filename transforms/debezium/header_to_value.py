"""`HeaderToValue`: copies or moves headers into the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import Header, R
from connect_py.api.schema import Schema, Struct, validate_value
from connect_py.api.schema import Type as SchemaType
from connect_py.api.transformation import Transformation
from transforms.rebuild import members, rebuilt, values_of
from transforms.requirements import require_struct
from transforms.validators import non_empty_list

PURPOSE = "Header field insertion"


class HeaderToValue(Transformation[R]):
    """Adds a field for each header that is there. Tombstones pass."""

    config_def = (
        ConfigDef()
        .define(
            "headers",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="The headers.",
        )
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="The fields, in the same order; a dot leads into a struct.",
        )
        .define(
            "operation",
            Type.STRING,
            validator=one_of("move", "copy"),
            importance=Importance.HIGH,
            doc="move: the headers go; copy: they stay.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        if len(props["headers"]) != len(props["fields"]):
            raise ConfigError(
                "", "'fields' config must have the same number of elements as 'headers' config."
            )
        self._paths: dict[str, list[str]] = {
            header: field.split(".")
            for header, field in zip(props["headers"], props["fields"], strict=True)
        }
        self._moves: bool = props["operation"] == "move"

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        row = require_struct(record.value, PURPOSE, record.value_schema)
        found = {h.key: h for h in record.headers if h.key in self._paths}
        if not found:
            return record
        for name, header in found.items():
            row = _with_field(row, self._paths[name], header)
        headers = record.headers
        if self._moves:
            for name in found:
                headers = headers.remove(name)
        return record.replace(value_schema=row.schema, value=row, headers=headers)


def _with_field(row: Struct, path: Sequence[str], header: Header) -> Struct:
    """The row with one field more, in the struct where the path leads; structs on the way are
    made."""
    schema = row.schema
    name, *rest = path
    old = schema.field(name)
    if not rest:
        inside = header.schema or Schema(SchemaType.STRING, optional=True)
        value = (
            header.value if header.schema is not None or header.value is None else str(header.value)
        )
    else:
        nested = None if old is None else row.values[old.index]
        if old is not None and nested is None:
            return row  # nothing there to add to
        if nested is not None and not isinstance(nested, Struct):
            raise DataError(
                f"Field '{name}' is not a struct. Cannot add nested field '{'.'.join(path)}'."
            )
        made = _with_field(
            Struct(Schema(SchemaType.STRUCT)) if nested is None else nested, rest, header
        )
        inside = made.schema if nested is not None else made.schema.replace(optional=True)
        value = Struct(inside, made.values)
    values = values_of(row, replace_null_with_default=True)
    if old is None:
        values.append(value)
        return Struct(rebuilt(schema, [*members(schema), (name, inside)]), values)
    if not rest:  # the field stays what it was
        validate_value(old.schema, value, name)
        inside = old.schema
    values[old.index] = value
    fields = [(n, inside if n == name else s) for n, s in members(schema)]
    return Struct(rebuilt(schema, fields), values)
