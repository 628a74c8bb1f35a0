"""JSON trees as structs whose schema is guessed from the values."""

from __future__ import annotations

from typing import Any

from connect_py.api.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    Schema,
    SchemaAndValue,
    Struct,
    Value,
    array,
    struct,
)
from connect_py.api.schema import Type as SchemaType


def expanded(tree: Any) -> SchemaAndValue:
    """Guess a schema for a tree and convert; members that are null everywhere are left out.

    No schema: there is nothing in the tree, or items of an array have nothing in common.
    """
    schema = _schema(tree)
    return SchemaAndValue(None, None) if schema is None else SchemaAndValue(schema, _value(schema, tree))


def _schema(tree: Any) -> Schema | None:
    if isinstance(tree, dict):
        fields = [(name, inside) for name, value in tree.items() if (inside := _schema(value)) is not None]
        return struct(*fields, optional=True)
    if isinstance(tree, list):
        found: Schema | None = None
        for item in tree:
            found = _joined(found, _schema(item))
        return None if found is None else array(found, optional=True)
    if tree is None:
        return None
    if isinstance(tree, bool):
        return OPTIONAL_BOOLEAN
    if isinstance(tree, int):
        return OPTIONAL_INT32 if -(2**31) <= tree < 2**31 else OPTIONAL_INT64
    return OPTIONAL_FLOAT64 if isinstance(tree, float) else OPTIONAL_STRING


def _joined(left: Schema | None, right: Schema | None) -> Schema | None:
    """One schema for both; texts when they have nothing in common."""
    if left is None or right is None or left == right:
        return left or right
    if left.type is SchemaType.STRUCT and right.type is SchemaType.STRUCT:
        fields = {f.name: f.schema for f in left.fields}
        for field in right.fields:
            fields[field.name] = _joined(fields.get(field.name), field.schema) or field.schema
        return struct(*fields.items(), optional=True)
    numbers = (OPTIONAL_INT32, OPTIONAL_INT64, OPTIONAL_FLOAT64)
    if left in numbers and right in numbers:
        return max(left, right, key=numbers.index)
    return OPTIONAL_STRING


def _value(schema: Schema, tree: Any) -> Value:
    if tree is None:
        return None
    if schema.type is SchemaType.STRUCT:
        return Struct(schema, [_value(f.schema, tree.get(f.name)) for f in schema.fields])
    if schema.value_schema is not None:
        items = schema.value_schema
        return [_value(items, item) for item in tree]
    if schema.type is SchemaType.FLOAT64:
        return float(tree)
    return tree if schema.type is not SchemaType.STRING or isinstance(tree, str) else str(tree)
