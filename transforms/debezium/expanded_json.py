"""Conversion of JSON to structs with inferred schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    OPTIONAL_BYTES,
    Schema,
    SchemaAndValue,
    Struct,
    Value,
    array,
    struct,
)
from connect_py.api.schema import Type as SchemaType
from transforms.plain_values import scalar_schema


@dataclass(frozen=True, slots=True)
class JsonExpansion:
    """Converts JSON. Nulls and empty arrays are omitted or converted to optional BYTES."""

    nulls_as_bytes: bool = False
    empty_arrays_as_bytes: bool = False

    def expanded(self, tree: Any, name: str) -> SchemaAndValue | None:
        """Convert a JSON object or array to a value with an inferred schema.

        The schema name of an object is its path, which begins with `name`. Returns None if the
        items of an array have different types or no type, or if a number does not fit in 64 bits.
        """
        try:
            schema = self._schema(tree, name)
        except DataError:
            return None
        return None if schema is None else SchemaAndValue(schema, _value(schema, tree))

    def _schema(self, tree: Any, name: str) -> Schema | None:
        """Return the schema of a value, or None if the value is omitted."""
        if isinstance(tree, dict):
            schemas = [
                (member, self._schema(value, f"{name}.{member}")) for member, value in tree.items()
            ]
            fields = [(member, schema) for member, schema in schemas if schema is not None]
            return struct(*fields, name=name, optional=True)
        if isinstance(tree, list):
            return self._array(tree, name)
        if tree is None:
            return OPTIONAL_BYTES if self.nulls_as_bytes else None
        return _scalar(tree)

    def _array(self, trees: list[Any], name: str) -> Schema | None:
        if not trees:
            return array(OPTIONAL_BYTES, optional=True) if self.empty_arrays_as_bytes else None
        items: Schema | None = None
        for tree in trees:
            if tree is not None:
                items = _joined(items, self._schema(tree, name))
        if items is None and self.nulls_as_bytes and trees.count(None) == len(trees):
            items = OPTIONAL_BYTES
        if items is None:
            raise DataError("the items of an array have no type")
        return array(items, optional=True)


def _scalar(tree: Any) -> Schema:
    schema = scalar_schema(tree)
    if schema.name is not None:
        raise DataError("a number does not fit in 64 bits")
    return schema


def _joined(first: Schema | None, second: Schema | None) -> Schema | None:
    """Return a common schema for both schemas; raise DataError if they are incompatible."""
    if first is None or second is None or first == second:
        return first or second
    if first.type is SchemaType.STRUCT and second.type is SchemaType.STRUCT:
        fields = {f.name: f.schema for f in first.fields}
        for field in second.fields:
            fields[field.name] = _joined(fields.get(field.name), field.schema) or field.schema
        return first.replace(fields=fields.items())
    if OPTIONAL_BYTES in (first, second):  # from an array with only nulls
        return second if first == OPTIONAL_BYTES else first
    raise DataError("the items of an array have different types")


def _value(schema: Schema, tree: Any) -> Value:
    if tree is None:
        return None
    if schema.type is SchemaType.STRUCT:
        return Struct(schema, [_value(f.schema, tree.get(f.name)) for f in schema.fields])
    if schema.value_schema is not None:
        items = schema.value_schema
        return [_value(items, item) for item in tree]
    return tree
