"""Checks whether a column accepts the values of a field, based only on their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from connect_py.api.errors import DataError
from connect_py.api.schema import DECIMAL, PRECISION, Schema, Type
from connectors.iceberg.config.sink_options import LogicalTypes
from connectors.iceberg.conversion.full_names import fields_of
from connectors.iceberg.conversion.types import (
    VARIABLE_SCALE_DECIMAL,
    IcebergType,
    TypeOptions,
    decimal_parts,
    type_of_arrow,
    type_of_schema,
)

_TEMPORAL_TYPES = frozenset(
    {"date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
)
_INTEGER_DIGITS = {"int": 10, "long": 19}
# field types that a column accepts in addition to its own type
_ACCEPTS: Mapping[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),  # a schemaless number may or may not be an integer
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"int", "long", "float", "double", "boolean", "uuid"}),
    **{
        name: _TEMPORAL_TYPES - {"time"} for name in _TEMPORAL_TYPES if name.startswith("timestamp")
    },
}
_CONTAINERS = {Type.STRUCT: "struct", Type.ARRAY: "list", Type.MAP: "map"}
# column types whose values are often sent as strings
_READ_FROM_STRING = _TEMPORAL_TYPES | {"string", "uuid", "binary"}


def accepts(
    column: IcebergType, schema: Schema | None, type_: pa.DataType, options: TypeOptions
) -> bool:
    """Return True if a column accepts all values of a field. Fields of structs are not compared.

    Args:
        column: The type of the column.
        schema: The Connect schema of the field, or None if it is schemaless.
        type_: The Arrow type of a schemaless field.
        options: The options for the types of new columns.
    """
    if schema is None:
        incoming = type_of_arrow(type_)
        return incoming is None or _accepts(column, incoming, is_string=incoming == "string")
    if column in ("unknown", "variant"):
        return True
    if schema.name == VARIABLE_SCALE_DECIMAL and (
        column == "string" or decimal_parts(column) is not None
    ):
        return True
    if isinstance(column, Mapping):
        inner = {
            "element": schema.value_schema,
            "key": schema.key_schema,
            "value": schema.value_schema,
        }
        members = () if column["type"] == "struct" else fields_of(column)
        return _CONTAINERS.get(schema.type) == column["type"] and all(
            accepts(part["type"], inner[part["name"]], pa.null(), options) for part in members
        )
    has_precision = PRECISION in schema.parameters
    choices = [replace(options, logical_types=LogicalTypes.FULL) if has_precision else options]
    if column in _TEMPORAL_TYPES or column == "uuid":  # the logical name determines the conversion
        choices.append(replace(options, logical_types=LogicalTypes.FULL, times=True))
    for choice in choices:
        try:
            incoming = type_of_schema(schema, choice)
        except DataError:
            return True  # creating a new column for the field is also impossible
        current = decimal_parts(column)
        if schema.name == DECIMAL and not has_precision and current is not None:
            parts = decimal_parts(incoming)
            if parts is not None and parts[1] <= current[1]:
                return True  # the number of digits depends on the values
        if _accepts(column, incoming, is_string=schema.type is Type.STRING):
            return True
    return False


def _accepts(column: IcebergType, incoming: IcebergType, *, is_string: bool) -> bool:
    if isinstance(column, str):
        if not isinstance(incoming, str):
            return column in ("string", "unknown", "variant")
        if column in (incoming, "unknown", "variant") or incoming in _ACCEPTS.get(column, ()):
            return True
        if is_string and (column in _READ_FROM_STRING or column.startswith("fixed[")):
            return True
        if incoming == "binary":
            return column.startswith("fixed[")
        return _accepts_decimal(column, incoming)
    if isinstance(incoming, str):
        return False
    if column["type"] == "map" and incoming["type"] == "struct":
        return True  # the fields of an object become map entries
    parts = (
        ()
        if column["type"] == "struct"
        else zip(fields_of(column), fields_of(incoming), strict=False)
    )
    return str(column["type"]) == incoming["type"] and all(
        _accepts(part["type"], item["type"], is_string=item["type"] == "string")
        for part, item in parts
    )


def _accepts_decimal(column: str, incoming: str) -> bool:
    current, needed = decimal_parts(column), decimal_parts(incoming)
    if needed is not None and column == "string":
        return True
    if needed is not None and column in _INTEGER_DIGITS:
        return needed[1] == 0 and needed[0] < _INTEGER_DIGITS[column]
    if current is None:
        return False
    if needed is None:
        return _INTEGER_DIGITS.get(incoming, 99) <= current[0] - current[1]
    return needed[1] <= current[1] and needed[0] - needed[1] <= current[0] - current[1]
