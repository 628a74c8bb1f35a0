"""Reading and writing Connect schemas in JsonConverter envelopes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Type
from connect_py.converters.json.json_text import write_json, write_string
from connect_py.converters.json.json_values import JsonValueReader, JsonValueWriter, Tree
from connect_py.java.strings import wrap

_TYPES: Mapping[str, Type] = {t.value: t for t in Type}


def read_schema(tree: Tree, values: JsonValueReader) -> Schema | None:
    """Return the schema that parsed JSON describes, or None for null.

    Args:
        tree: The parsed JSON.
        values: Reader for default values.

    Raises:
        DataError: The schema is invalid.
    """
    if tree is None:
        return None
    kind = _TYPES.get(_type_of(tree))
    if kind is None:
        raise DataError(f"Unknown schema type: {tree['type']}")
    arguments: dict[str, Any] = {"optional": tree.get("optional") is True}
    if kind is Type.ARRAY:
        arguments["value_schema"] = _member(
            tree, "items", "Array schema did not specify the element type", values
        )
    elif kind is Type.MAP:
        arguments["key_schema"] = _member(
            tree, "keys", "Map schema did not specify the key type", values
        )
        arguments["value_schema"] = _member(
            tree, "values", "Map schema did not specify the value type", values
        )
    elif kind is Type.STRUCT:
        arguments["fields"] = _fields(tree, values)
    for attribute in ("name", "doc"):
        text = tree.get(attribute)
        if text is not None and not isinstance(text, str):
            raise DataError(f"Invalid schema {attribute}: it must be a string")
        arguments[attribute] = text
    version = tree.get("version")
    # Java also ignores values of other types
    arguments["version"] = wrap(version, 32) if type(version) is int else None
    arguments["parameters"] = _parameters(tree.get("parameters"))
    schema = Schema(kind, **arguments)
    default = tree.get("default")
    return schema if default is None else schema.replace(default=values.read(schema, default))


def _type_of(tree: Tree) -> str:
    name = tree.get("type") if isinstance(tree, dict) else None
    if not isinstance(name, str):
        raise DataError("Schema must contain 'type' field")
    return name


def _member(tree: Tree, key: str, problem: str, values: JsonValueReader) -> Schema:
    schema = read_schema(tree.get(key), values)
    if schema is None:
        raise DataError(problem)
    return schema


def _fields(tree: Tree, values: JsonValueReader) -> list[tuple[str, Schema]]:
    fields = tree.get("fields")
    if not isinstance(fields, list):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    result = []
    for field in fields:
        name = field.get("field") if isinstance(field, dict) else None
        if not isinstance(name, str):
            raise DataError("Struct schema's field name not specified properly")
        schema = read_schema(field, values)
        assert schema is not None  # `field` is a dict
        result.append((name, schema))
    return result


def _parameters(tree: Tree) -> dict[str, str]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise DataError("Schema parameters must be a map.")
    if not all(isinstance(v, str) for v in tree.values()):
        raise DataError("Schema parameters must have string values.")
    return tree


def write_schema(schema: Schema | None, values: JsonValueWriter, field: str | None = None) -> str:
    """Return a schema as JSON. The members are in the same order as in Java.

    Args:
        schema: The schema.
        values: Writer for default values.
        field: Name of the struct field that has this schema, or None if there is no such field.
    """
    if schema is None:
        return "null"
    members = [f'"type":"{schema.type.value}"']
    if schema.type is Type.ARRAY:
        members.append(f'"items":{write_schema(schema.value_schema, values)}')
    elif schema.type is Type.MAP:
        members.append(f'"keys":{write_schema(schema.key_schema, values)}')
        members.append(f'"values":{write_schema(schema.value_schema, values)}')
    elif schema.type is Type.STRUCT:
        fields = ",".join([write_schema(f.schema, values, f.name) for f in schema.fields])
        members.append(f'"fields":[{fields}]')
    members.append(f'"optional":{write_json(schema.optional)}')
    if schema.name is not None:
        members.append(f'"name":{write_string(schema.name)}')
    if schema.version is not None:
        members.append(f'"version":{schema.version}')
    if schema.doc is not None:
        members.append(f'"doc":{write_string(schema.doc)}')
    if schema.parameters:
        members.append(f'"parameters":{write_json(dict(schema.parameters))}')
    if schema.default is not None:
        members.append(f'"default":{values.write(schema, schema.default)}')
    if field is not None:
        members.append(f'"field":{write_string(field)}')
    return "{" + ",".join(members) + "}"
