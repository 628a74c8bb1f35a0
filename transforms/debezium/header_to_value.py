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
    """Adds a field for each configured header that exists. Tombstones pass through unchanged."""

    config_def = (
        ConfigDef()
        .define(
            "headers",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="Names of the headers.",
        )
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="Names of the fields, in the order of the headers. A dot separates a struct from "
            "its field.",
        )
        .define(
            "operation",
            Type.STRING,
            validator=one_of("move", "copy"),
            importance=Importance.HIGH,
            doc="move removes the headers; copy retains them.",
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
        existing = {h.key: h for h in record.headers if h.key in self._paths}
        if not existing:
            return record
        for name, header in existing.items():
            row = _with_field(row, self._paths[name], header)
        headers = record.headers
        if self._moves:
            for name in existing:
                headers = headers.remove(name)
        return record.replace(value_schema=row.schema, value=row, headers=headers)


def _with_field(row: Struct, path: Sequence[str], header: Header) -> Struct:
    """Return the row with the header's value at this path. Missing structs are created."""
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
            return row  # the struct is null
        if nested is not None and not isinstance(nested, Struct):
            raise DataError(
                f"Field '{name}' is not a struct. Cannot add nested field '{'.'.join(path)}'."
            )
        new_struct = _with_field(
            Struct(Schema(SchemaType.STRUCT)) if nested is None else nested, rest, header
        )
        inside = new_struct.schema
        if nested is None:
            inside = inside.replace(optional=True)
        value = Struct(inside, new_struct.values)
    values = values_of(row, replace_null_with_default=True)
    if old is None:
        values.append(value)
        return Struct(rebuilt(schema, [*members(schema), (name, inside)]), values)
    if not rest:  # the schema of an existing field does not change
        validate_value(old.schema, value, name)
        inside = old.schema
    values[old.index] = value
    fields = [(n, inside if n == name else s) for n, s in members(schema)]
    return Struct(rebuilt(schema, fields), values)
