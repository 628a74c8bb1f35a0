"""Type checks of keys and values, with the same error messages as in Java."""

from __future__ import annotations

from typing import Any

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Struct, Value, java_class_name


def require_struct(value: Value, purpose: str, schema: Schema | None = None) -> Struct:
    """Return the value if it is a `Struct`.

    Raises:
        DataError: It is not a `Struct`. The message contains the purpose and the value's Java
            class, which depends on the schema.
    """
    if isinstance(value, Struct):
        return value
    raise DataError(
        f"Only Struct objects supported for [{purpose}], found: {java_class_name(value, schema)}"
    )


def require_map(value: Value, purpose: str) -> dict[Any, Any]:
    """Return the value if it is a `dict`.

    Raises:
        DataError: It is not a `dict`. The message contains its Java class and the purpose.
    """
    if isinstance(value, dict):
        return value
    raise DataError(
        f"Only Map objects supported in absence of schema for [{purpose}], found: "
        f"{java_class_name(value)}"
    )
