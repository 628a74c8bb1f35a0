"""Conversion of Connect schemas to JSON Schemas, as in Confluent's JsonSchemaData."""

from __future__ import annotations

import json
from copy import copy
from typing import Any, Final

from connect_py.api.schema import DECIMAL, Schema, Type, Value
from connect_py.converters.json.json_text import read_json
from connect_py.converters.json.json_values import INTEGER_BITS, JsonValueWriter
from connect_py.converters.json_schema.json_schema_type import ENUM, MAP, is_enum, is_union
from connect_py.converters.json_schema.json_schema_values import JsonSchemaValidator
from connect_py.converters.registry import generalized_sums
from connect_py.converters.registry.schema_registry import RegisteredSchema

_TYPES: Final = {
    **dict.fromkeys(INTEGER_BITS, "integer"),
    Type.FLOAT32: "number",
    Type.FLOAT64: "number",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "string",
}
_CONNECT_TYPES: Final = {
    Type.INT8: "int8",
    Type.INT16: "int16",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float32",
    Type.FLOAT64: "float64",
    Type.BYTES: "bytes",
}


class JsonSchemaWriter:
    """Writes values that have one Connect schema."""

    indexes = b""

    def __init__(
        self,
        schema: Schema,
        values: JsonSchemaValueWriter,
        *,
        additional_properties: bool,
        validate: bool = False,
    ) -> None:
        """Create the JSON Schema. If `validate` is true, reject values that do not match it."""
        self._schema = schema
        self._values = values
        self._additional_properties = additional_properties
        self.text = json.dumps(self._tree(schema))
        self.name = schema.name
        self._validator = JsonSchemaValidator.of(self.text, {}) if validate else None

    def by(self, registered: RegisteredSchema, *, strict: bool) -> JsonSchemaWriter:
        """Return a writer that writes the same JSON with another schema.

        If `strict` is true, values that do not match the other schema are rejected.

        Raises:
            DataError: The schema is invalid.
        """
        writer = copy(self)
        writer._validator = (
            JsonSchemaValidator.of(registered.text, registered.references) if strict else None
        )
        return writer

    def write(self, value: Value) -> bytes:
        """Serialize a value to a message body.

        Raises:
            DataError: The value does not match its schema.
        """
        body = self._values.write(self._schema, value).encode()
        if self._validator is not None:
            self._validator.check(read_json(body, exact=True))
        return body

    def _tree(self, schema: Schema, index: int | None = None) -> dict[str, Any]:
        tree = self._attributed(self._required(schema), schema)
        if schema.optional:
            tree = {"oneOf": [{"type": "null"}, tree]}
            if schema.default is not None and "default" in tree["oneOf"][1]:
                tree["default"] = tree["oneOf"][1].pop("default")
        if index is not None:
            tree["connect.index"] = index
        return tree

    def _required(self, schema: Schema) -> dict[str, Any]:
        if schema.type is Type.STRUCT:
            if is_union(schema):
                return {
                    "oneOf": [self._tree(f.schema.replace(optional=False)) for f in schema.fields]
                }
            return self._object(schema)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return {"type": "array", "items": self._tree(schema.value_schema)}
        if schema.type is Type.MAP:
            return self._map(schema)
        if is_enum(schema):
            marks = tuple(f"{mark}." for mark in (ENUM, generalized_sums.ENUM))
            return {
                "enum": [k.partition(".Enum.")[2] for k in schema.parameters if k.startswith(marks)]
            }
        tree: dict[str, Any] = {"type": _TYPES[schema.type]}
        if schema.name == DECIMAL and self._values.numeric_decimals:
            tree["type"] = "number"
        if schema.type in _CONNECT_TYPES:
            tree["connect.type"] = _CONNECT_TYPES[schema.type]
        return tree

    def _object(self, schema: Schema) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "type": "object",
            "properties": {f.name: self._tree(f.schema, f.index) for f in schema.fields},
        }
        required = [
            f.name for f in schema.fields if not f.schema.optional and f.schema.default is None
        ]
        if required:
            tree["required"] = required
        if not self._additional_properties:
            tree["additionalProperties"] = False
        return tree

    def _map(self, schema: Schema) -> dict[str, Any]:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if schema.key_schema.type is Type.STRING and not schema.key_schema.optional:
            return {
                "type": "object",
                "connect.type": MAP,
                "additionalProperties": self._tree(schema.value_schema),
            }
        entry = {
            "key": self._tree(schema.key_schema, 0),
            "value": self._tree(schema.value_schema, 1),
        }
        return {
            "type": "array",
            "connect.type": MAP,
            "items": {"type": "object", "properties": entry},
        }

    def _attributed(self, tree: dict[str, Any], schema: Schema) -> dict[str, Any]:
        if schema.name is not None and not is_union(schema):
            tree["title"] = schema.name
        if schema.version is not None:
            tree["connect.version"] = schema.version
        if schema.doc is not None:
            tree["description"] = schema.doc
        json_parameters = (ENUM, generalized_sums.ENUM, generalized_sums.UNION)
        parameters = {
            k: v for k, v in schema.parameters.items() if not k.startswith(json_parameters)
        }
        if parameters:
            tree["connect.parameters"] = parameters
        if schema.default is not None:
            text = self._values.write(schema.replace(optional=False), schema.default)
            tree["default"] = read_json(text.encode())
        return tree


class JsonSchemaValueWriter(JsonValueWriter):
    """Writes values like JsonConverter, except for unions and maps with non-string keys."""

    def write(self, schema: Schema | None, value: Value) -> str:
        if schema is not None and value is not None and is_union(schema):
            for field, inside in value:
                if inside is not None:
                    return self.write(field.schema, inside)
            return "null"
        return super().write(schema, value)

    def _map(self, keys: Schema, values: Schema, value: Value) -> str:
        if keys.type is Type.STRING and not keys.optional:
            return super()._map(keys, values, value)
        entries = [
            f'{{"key":{self.write(keys, k)},"value":{self.write(values, v)}}}'
            for k, v in value.items()
        ]
        return "[" + ",".join(entries) + "]"
