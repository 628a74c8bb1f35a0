"""Whether a column can take every value of a field, without looking at any value."""

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
# By column: the types of fields that it takes too, beside its own.
_TAKES: Mapping[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),  # schemaless numbers change between whole and not
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"int", "long", "float", "double", "boolean", "uuid"}),
    **{
        name: _TEMPORAL_TYPES - {"time"} for name in _TEMPORAL_TYPES if name.startswith("timestamp")
    },
}
_CONTAINERS = {Type.STRUCT: "struct", Type.ARRAY: "list", Type.MAP: "map"}
# a text is how these usually travel
_READ_FROM_TEXT = _TEMPORAL_TYPES | {"string", "uuid", "binary"}


def takes(
    column: IcebergType, schema: Schema | None, type_: pa.DataType, options: TypeOptions
) -> bool:
    """Whether a column takes all values of a field with this Connect schema or, schemaless, of this
    Arrow type.

    What is inside structs is not looked at: their fields are columns of their own.
    """
    if schema is None:
        wanted = type_of_arrow(type_)
        return wanted is None or _takes(column, wanted, text=wanted == "string")
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
            takes(part["type"], inner[part["name"]], pa.null(), options) for part in members
        )
    text = schema.type is Type.STRING
    choices = [
        replace(options, logical_types=LogicalTypes.FULL)
        if PRECISION in schema.parameters
        else options
    ]
    if column in _TEMPORAL_TYPES or column == "uuid":  # then the logical name decides
        choices.append(replace(options, logical_types=LogicalTypes.FULL, times=True))
    for choice in choices:
        try:
            wanted = type_of_schema(schema, choice)
        except DataError:
            return True  # nothing could be made for it either
        if (
            schema.name == DECIMAL
            and PRECISION not in schema.parameters
            and (have := decimal_parts(column))
        ):
            parts = decimal_parts(wanted)
            if parts is not None and parts[1] <= have[1]:
                return True  # how many digits there are is known by the values only
        if _takes(column, wanted, text=text):
            return True
    return False


def _takes(column: IcebergType, wanted: IcebergType, *, text: bool) -> bool:
    if isinstance(column, str):
        if not isinstance(wanted, str):
            return column in ("string", "unknown", "variant")
        if column == wanted or wanted in _TAKES.get(column, ()) or column in ("unknown", "variant"):
            return True
        if text and (column in _READ_FROM_TEXT or column.startswith("fixed[")):
            return True
        if wanted == "binary":
            return column.startswith("fixed[")
        return _decimal_takes(column, wanted)
    if isinstance(wanted, str):
        return False
    if column["type"] == "map" and wanted["type"] == "struct":
        return True  # an object's members are entries
    parts = (
        ()
        if column["type"] == "struct"
        else zip(fields_of(column), fields_of(wanted), strict=False)
    )
    return str(column["type"]) == wanted["type"] and all(
        _takes(part["type"], given["type"], text=given["type"] == "string") for part, given in parts
    )


def _decimal_takes(column: str, wanted: str) -> bool:
    have, want = decimal_parts(column), decimal_parts(wanted)
    if want is not None and column == "string":
        return True
    if want is not None and column in _INTEGER_DIGITS:
        return want[1] == 0 and want[0] < _INTEGER_DIGITS[column]
    if have is None:
        return False
    if want is None:
        return _INTEGER_DIGITS.get(wanted, 99) <= have[0] - have[1]
    return want[1] <= have[1] and want[0] - want[1] <= have[0] - have[1]
