"""What a transformation may ask of a value, with the messages that all of them share."""

from __future__ import annotations

from typing import Any

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Struct, Value, java_class_name


def require_struct(value: Value, purpose: str, schema: Schema | None = None) -> Struct:
    """Return the value if it is a `Struct`; DataError names its class (of that schema) and the
    purpose otherwise."""
    if isinstance(value, Struct):
        return value
    raise DataError(
        f"Only Struct objects supported for [{purpose}], found: {java_class_name(value, schema)}"
    )


def require_map(value: Value, purpose: str) -> dict[Any, Any]:
    """Return the value if it is a `dict`; DataError names its class and the purpose otherwise."""
    if isinstance(value, dict):
        return value
    raise DataError(
        f"Only Map objects supported in absence of schema for [{purpose}], found: "
        f"{java_class_name(value)}"
    )
