"""`Cast`: casts fields, or the whole key or value, to a primitive type."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed
from connect_py.api.config import Type as ConfigType
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    Value,
    java_class_name,
)
from connect_py.java.date_format import MILLIS_PER_DAY, java_date_format
from connect_py.java.numbers import parse_float, parse_integer, to_double, to_integer
from connect_py.java.strings import java_text
from transforms.field_changes import Conversion, FieldChanges
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both

if TYPE_CHECKING:
    import pyarrow as pa

BITS: Mapping[Type, int] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_FLOATS: Mapping[Type, int] = {Type.FLOAT32: 32, Type.FLOAT64: 64}
_TARGETS: Mapping[str, Type] = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}
_OUTPUTS = ", ".join(kind.name for kind in _TARGETS.values())
_MOMENTS = frozenset({DATE, TIME, TIMESTAMP})
_TIME_FORMAT = java_date_format("HH:mm:ss.SSS'Z'")
_DATE_FORMAT = java_date_format("yyyy-MM-dd")
_MOMENT_FORMAT = java_date_format("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _spec(name: str, value: Parsed) -> None:
    if not value:
        raise ConfigError("", "Must specify at least one field to cast.")
    _parsed_spec(value)


def _parsed_spec(items: Sequence[str]) -> tuple[dict[str, Type], Type | None]:
    """Return the target type of each field, and the target type of the whole value, if any.

    Raises:
        ConfigError: The spec is invalid. The message is the same as in Java.
    """
    fields: dict[str, Type] = {}
    whole: Type | None = None
    for item in items:
        parts = item.split(":")
        if len(parts) > 2:
            raise ConfigValueError("renames", list(items), f"Invalid rename mapping: {item}")
        kind = _target(parts[-1].strip())
        if len(parts) == 1:
            whole = kind
        else:
            fields[parts[0].strip()] = kind
    if whole is not None and len(items) > 1:
        raise ConfigError(
            "",
            "Cast transformations that specify a type to cast the entire value to may only "
            "specify a single cast in their spec",
        )
    return fields, whole


def _target(name: str) -> Type:
    kind = _TARGETS.get(name.lower())
    if kind is None:
        if name.lower() in {t.name.lower() for t in Type}:
            raise ConfigError(
                "",
                f"Cast transformation does not support casting to {name.upper()}; supported types "
                f"are [{_OUTPUTS}]",
            )
        raise ConfigError("", f"Invalid type found in casting spec: {name}")
    return kind


class Cast(FieldTransformation[R]):
    """Casts values in the same way as Kafka Connect's `Cast`. Nulls remain null."""

    config_def = (
        ConfigDef()
        .define(
            "spec",
            ConfigType.LIST,
            validator=_spec,
            importance=Importance.HIGH,
            doc="Types of the fields, as field:type pairs, or one type for the whole key or value.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    purpose = "cast types"

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        types, whole = _parsed_spec(props["spec"])
        changes = FieldChanges(conversions={name: CastTo(type_) for name, type_ in types.items()})
        self.declare(
            changes if whole is None else FieldChanges(whole=CastWholeTo(whole)),
            replace_null_with_default=props["replace.null.with.default"],
        )

    def result_schema(self, schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
        return schema.replace(fields=fields, default=None)

    def require_row(self, schema: Schema, value: Value) -> Struct:
        if schema.type is not Type.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        return super().require_row(schema, value)


class CastTo(Conversion):
    """Converts a field to a primitive type."""

    def __init__(self, target: Type) -> None:
        self.target: Final = target

    def schema(self, schema: Schema) -> Schema:
        default = cast(schema, schema.default, self.target)
        return Schema(self.target, optional=schema.optional, default=default)

    def value(self, schema: Schema | None, value: Value) -> Value:
        return cast(schema, value, self.target)

    def integers(self, strings: pa.StringArray) -> pa.Int64Array | None:
        from transforms.columns import whole_numbers

        bits = BITS.get(self.target)
        return None if bits is None else whole_numbers(strings, bits)

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Cast the column if Arrow returns the same values as Java; otherwise return None."""
        import pyarrow as pa

        from connect_py.columns.arrow import arrow_type

        if schema.name in _MOMENTS or schema.name == DECIMAL:
            return None
        source, target = schema.type, result.type
        if source is target:
            return data
        if source in BITS and (target is Type.STRING or BITS.get(target, 0) > BITS[source]):
            return data.cast(arrow_type(result))
        if source is Type.BOOLEAN and (target in BITS or target is Type.STRING):
            return data.cast(arrow_type(result))
        if source in BITS and target in BITS:
            return data.cast(arrow_type(result), safe=False)  # drops the high bits
        if source is Type.FLOAT32 and target is Type.FLOAT64:
            return data.cast(pa.float64())
        return None


class CastWholeTo(CastTo):
    """Converts a whole key or value. Unlike a field cast, this retains the schema metadata."""

    def schema(self, schema: Schema) -> Schema:
        result = super().schema(schema)
        if schema.type is not self.target and schema.name in {*_MOMENTS, DECIMAL}:
            # the logical type does not apply to the target type
            return result.replace(doc=schema.doc)
        return result.replace(
            name=schema.name, version=schema.version, doc=schema.doc, parameters=schema.parameters
        )


def cast(schema: Schema | None, value: Value, target: Type) -> Value:
    """Return the value converted to the target type.

    Raises:
        DataError: The cast is not supported, or a string cannot be parsed as the target type.
    """
    if value is None:
        return None
    kind = _type_of(value) if schema is None else schema.type
    if kind not in _INPUTS:
        raise DataError(
            f"Cast transformation does not support casting from {kind.name}; supported types are "
            f"[{_OUTPUTS}, BYTES]"
        )
    if target is Type.STRING:
        return _string(schema, value)
    try:
        if target is Type.BOOLEAN:
            return _boolean(value)
        if isinstance(value, bytes):
            raise DataError(
                f"Unexpected type in Cast transformation: class {java_class_name(value)}"
            )
        if target in BITS:
            bits = BITS[target]
            return parse_integer(value, bits) if isinstance(value, str) else to_integer(value, bits)
        bits = _FLOATS[target]
        return to_double(parse_float(value) if isinstance(value, str) else value, bits)
    except ValueError as error:
        raise DataError(f"Value ({value}) was out of range for requested data type") from error


def _type_of(value: Value) -> Type:
    if isinstance(value, Decimal):
        return Type.BYTES
    for python, kind in _SCHEMALESS:
        if isinstance(value, python):
            return kind
    raise DataError(
        f"Cast transformation was passed a value of type class {java_class_name(value)} which is "
        "not supported by Connect's data API"
    )


_SCHEMALESS: Sequence[tuple[type[Any], Type]] = (
    (bool, Type.BOOLEAN),
    (int, Type.INT64),
    (float, Type.FLOAT64),
    (str, Type.STRING),
    (bytes, Type.BYTES),
    (list, Type.ARRAY),
    (dict, Type.MAP),
    (Struct, Type.STRUCT),
)
_INPUTS = frozenset({*_TARGETS.values(), Type.BYTES})


def _boolean(value: Value) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, bytes):
        raise DataError(f"Unexpected type in Cast transformation: class {java_class_name(value)}")
    return to_integer(value, 64) != 0


def _string(schema: Schema | None, value: Value) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if schema is not None and schema.name in _MOMENTS:
        millis = value * MILLIS_PER_DAY if schema.name == DATE else value
        if millis < MILLIS_PER_DAY:
            return _TIME_FORMAT.format(millis)
        return (_MOMENT_FORMAT if millis % MILLIS_PER_DAY else _DATE_FORMAT).format(millis)
    return java_text(schema, value)


CastKey, CastValue = for_both(Cast)
