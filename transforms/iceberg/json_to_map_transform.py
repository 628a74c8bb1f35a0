"""Iceberg's `JsonToMapTransform`: converts a string that contains a JSON object to a struct."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import (
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Value,
    array,
    map_of,
    struct,
)
from connect_py.api.transformation import Transformation
from connect_py.java.strings import double_text
from transforms.plain_values import scalar_schema

_MAP = map_of(STRING, STRING, optional=True)
_ITEM_MAP = map_of(OPTIONAL_STRING, OPTIONAL_STRING, optional=True)
_ROOT = struct(("payload", map_of(STRING, STRING, optional=True)))


_BLANKS = " \t\r\n"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid in JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


class JsonToMapTransform(Transformation[R]):
    """Converts each member to a field with an inferred type. Each record has its own schema."""

    config_def = ConfigDef().define(
        "json.root",
        Type.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Convert to a single field, `payload`, with a map of all members as strings.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._root: bool = self.config_def.parse(configs)["json.root"]

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        if not isinstance(record.value, str):
            raise DataError("JsonToMapTransform requires a string")
        try:
            # trailing characters are ignored, as in Java
            tree, _ = _DECODER.raw_decode(record.value.lstrip(_BLANKS))
        except (ValueError, RecursionError) as error:
            raise DataError("the string is not valid JSON") from error
        if not isinstance(tree, dict):
            raise DataError("the string is not a JSON object")
        if self._root:
            row = Struct(_ROOT, [{name: _string(value) for name, value in tree.items()}])
            return record.replace(value_schema=_ROOT, value=row)
        fields = [
            (name, schema, value)
            for name, value in tree.items()
            if (schema := _schema(value)) is not None
        ]
        result = struct(*((name, schema) for name, schema, _ in fields))
        return record.replace(
            value_schema=result, value=Struct(result, [_value(s, v) for _, s, v in fields])
        )


def _schema(tree: Any) -> Schema | None:
    """Return the schema of a member, or None if the member is omitted."""
    if tree is None or tree in ({}, []):
        return None
    if isinstance(tree, dict):
        return _MAP
    if isinstance(tree, list):
        items = _items(tree)
        return None if items is None else array(items, optional=True)
    return scalar_schema(tree)


def _items(trees: Sequence[Any]) -> Schema | None:
    """Return the common schema of the items, or the string schema if their types differ.

    Returns None if all items are empty lists.
    """
    if all(isinstance(tree, dict) for tree in trees):
        return _ITEM_MAP
    if all(isinstance(tree, list) for tree in trees):
        inner = {_schema(tree) for tree in trees}
        if inner == {None}:
            return None
        return (inner.pop() if len(inner) == 1 else None) or array(OPTIONAL_STRING, optional=True)
    kinds = {
        None if tree is None or isinstance(tree, dict | list) else scalar_schema(tree)
        for tree in trees
    }
    return (kinds.pop() or OPTIONAL_STRING) if len(kinds) == 1 else OPTIONAL_STRING


def _value(schema: Schema, tree: Any) -> Value:
    if tree is None:
        return None
    if schema in (_MAP, _ITEM_MAP):
        return {name: _string(value) for name, value in tree.items()}
    if schema.value_schema is not None:
        inside = schema.value_schema
        return [_value(inside, item) for item in tree]
    if schema == OPTIONAL_STRING:
        return _string(tree)
    if schema.name is not None:
        return Decimal(tree)
    return tree


def _string(tree: Any) -> str:
    """Return strings unchanged, and all other values as JSON."""
    return tree if isinstance(tree, str) else _json(tree)


def _json(tree: Any) -> str:
    """Return JSON in the same format as Java. Floats that JSON does not support are quoted."""
    if isinstance(tree, dict):
        return f"{{{','.join(f'{_json(name)}:{_json(value)}' for name, value in tree.items())}}}"
    if isinstance(tree, list):
        return f"[{','.join(map(_json, tree))}]"
    if isinstance(tree, float):
        return double_text(tree) if math.isfinite(tree) else f'"{double_text(tree)}"'
    return json.dumps(tree, ensure_ascii=False)
