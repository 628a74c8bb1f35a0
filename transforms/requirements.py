"""Checks of the type of a key or value, with the messages of Java's transformations."""

from __future__ import annotations

from typing import Any

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Struct, Value, java_class_name


def require_struct(value: Value, purpose: str, schema: Schema | None = None) -> Struct:
    """Return the value if it is a `Struct`.

    Raises:
        DataError: It is not. The message names its Java class (under the schema) and the purpose.
    """
    if isinstance(value, Struct):
        return value
    raise DataError(
        f"Only Struct objects supported for [{purpose}], found: {java_class_name(value, schema)}"
    )


def require_map(value: Value, purpose: str) -> dict[Any, Any]:
    """Return the value if it is a `dict`.

    Raises:
        DataError: It is not. The message contains its Java class and the purpose.
    """
    if isinstance(value, dict):
        return value
    raise DataError(
        f"Only Map objects supported in absence of schema for [{purpose}], found: "
        f"{java_class_name(value)}"
    )
