"""Values as Java prints them."""

from __future__ import annotations

from decimal import Decimal

from connect_py.api.schema import Schema, Struct, Type, Value
from connect_py.converters.json_text import double_text, float_text


def java_text(schema: Schema | None, value: Value) -> str:
    """What `Object.toString` gives for a value; `schema`, if known, tells 32-bit floats."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value) if schema is not None and schema.type is Type.FLOAT32 else double_text(value)
    if isinstance(value, Struct):
        return "Struct{" + ",".join(f"{f.name}={java_text(f.schema, v)}" for f, v in value if v is not None) + "}"
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return "[" + ", ".join(java_text(items, v) for v in value) + "]"
    if isinstance(value, dict):
        keys, items = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return "{" + ", ".join(f"{java_text(keys, k)}={java_text(items, v)}" for k, v in value.items()) + "}"
    if isinstance(value, Decimal):
        return decimal_text(value)
    return str(value)


def decimal_text(value: Decimal) -> str:
    """Java's `BigDecimal.toString`."""
    return str(value)  # the same rules: an exponent when the scale is negative or the number very small
