"""Conversion of Connect values to plain Python values, and schemas of JSON scalars."""

from __future__ import annotations

from typing import Any

from connect_py.api.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    Schema,
    Struct,
    Value,
    decimal,
)


def plain(value: Value) -> Any:
    """Return the value with all structs converted to dicts."""
    if isinstance(value, Struct):
        return {field.name: plain(inside) for field, inside in value}
    if isinstance(value, dict):
        return {name: plain(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [plain(inside) for inside in value]
    return value


def scalar_schema(value: bool | float | str) -> Schema:
    """Return the narrowest schema for a JSON scalar. Integers wider than 64 bits are decimals."""
    if isinstance(value, bool):
        return OPTIONAL_BOOLEAN
    if isinstance(value, float):
        return OPTIONAL_FLOAT64
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return OPTIONAL_INT32
        return OPTIONAL_INT64 if -(2**63) <= value < 2**63 else decimal(0, optional=True)
    return OPTIONAL_STRING
