"""Connect values as plain Python ones, for code that reads them without schemas."""

from __future__ import annotations

from typing import Any

from connect_py.api.schema import Struct, Value


def plain(value: Value) -> Any:
    """The value with dicts in place of structs."""
    if isinstance(value, Struct):
        return {field.name: plain(inside) for field, inside in value}
    if isinstance(value, dict):
        return {name: plain(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [plain(inside) for inside in value]
    return value
