"""Conversion of JSON Schemas to Connect schemas, as in Confluent's JsonSchemaData."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    OPTIONAL_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    Type,
)
from connect_py.converters.json.json_text import read_json
from connect_py.converters.json.json_values import JsonValueReader
from connect_py.converters.registry import generalized_sums

Tree: TypeAlias = Any  # parsed JSON

ENUM: Final = "io.confluent.connect.json.Enum"
ONE_OF: Final = "io.confluent.connect.json.OneOf"
MAP: Final = "map"
ANY: Final = "io.debezium.data.Json"  # name of strings that contain arbitrary JSON
# field with the additional properties of an object
EXTRAS: Final = "__connect_additional_properties__"
# maximum number of unions, counting each use; validating a value against this many takes 30 ms
MAX_UNIONS: Final = 1_000
# maximum number of `allOf` merges, which may double at each level of references
MAX_MERGES: Final = 10_000
_LOGICAL_VERSIONS: Final = {DECIMAL: 1, DATE: 1, TIME: 1, TIMESTAMP: 1}
_DEFAULT_TYPES: Final = {
    "integer": Type.INT64,
    "number": Type.FLOAT64,
    "string": Type.STRING,
    "boolean": Type.BOOLEAN,
}
_CONNECT_TYPES: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "bytes": Type.BYTES,
    "string": Type.STRING,
    "boolean": Type.BOOLEAN,
}
_NULL: Final = {"type": "null"}


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading schemas, named after the converter properties."""

    optional_for_nonrequired: bool = False
    generalized_sums: bool = False
    flatten_singletons: bool = True
    additional_properties: bool = False  # preserve.additional.properties


@dataclass(frozen=True, slots=True)
class Branch:
    """The JSON Schema of one type in a union. References in it are relative to `document`."""

    tree: Tree
    document: str


@dataclass(frozen=True, slots=True)
class JsonSchemaType:
    """A JSON Schema, and its conversion to a Connect schema."""

    schema: Schema
    branches: Mapping[tuple[Field, ...], Sequence[Branch]]
    """JSON Schemas of the types in each union, keyed by the fields of the union's struct."""
    documents: Mapping[str, Tree]
    """The schema, under the name `""`, and all referenced schemas, for validation."""

    def branches_of(self, schema: Schema) -> Sequence[Branch] | None:
        """Return the JSON Schemas of the types in a union, or None if the schema is not a union.

        The union may be optional or required.
        """
        return self.branches.get(schema.fields) if is_union(schema) else None


def json_schema_type(
    text: str,
    references: Mapping[str, str] | None = None,
    version: int | None = None,
    options: Options | None = None,
) -> JsonSchemaType:
    """Convert a JSON Schema.

    Raises:
        DataError: The schema is invalid or has no equivalent in Connect.
    """
    try:
        documents = {
            "": json.loads(text),
            **{name: json.loads(each) for name, each in (references or {}).items()},
        }
        reader = _SchemaReader(documents, options or Options())
        schema = reader.read(documents[""], "")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"Not a JSON Schema: {error}") from error
    if version is not None and schema.version is None:
        schema = schema.replace(version=version)
    return JsonSchemaType(schema, reader.branches, documents)


def is_enum(schema: Schema) -> bool:
    """Return True if a schema represents an enum."""
    return ENUM in schema.parameters or generalized_sums.ENUM in schema.parameters


def is_union(schema: Schema) -> bool:
    """Return True if a struct represents a union of several types."""
    return schema.name == ONE_OF or generalized_sums.is_union(schema)


class _SchemaReader:
    def __init__(self, documents: Mapping[str, Tree], options: Options) -> None:
        self._documents = documents
        self._options = options
        self._open: list[int] = []  # `id()` of each enclosing tree
        self.branches: dict[tuple[Field, ...], Sequence[Branch]] = {}
        self._unions = count()
        self._merges = 0
        self._unions_read = 0

    def read(self, tree: Tree, document: str) -> Schema:
        """Return the Connect schema for a type. References are relative to `document`."""
        if tree is True or tree == {}:
            return Schema(Type.STRING, name=ANY, optional=True)
        if id(tree) in self._open:
            raise DataError("The schema is recursive, which Connect schemas do not support")
        self._open.append(id(tree))
        try:
            return self._read(tree, document)
        finally:
            self._open.pop()

    def _read(self, tree: Tree, document: str) -> Schema:
        if "$ref" in tree:
            document, target = self._resolve(tree["$ref"], document)
            schema = self.read(target, document)
            return self._attributed(schema, {k: v for k, v in tree.items() if k != "$ref"})
        for word in ("oneOf", "anyOf"):
            if word in tree:
                return self._union(tree, list(tree[word]), document)
        if "allOf" in tree:
            return self.read(self._merged(tree, document), document)
        kinds = tree.get("type")
        if isinstance(kinds, list):
            if len(kinds) != 1:
                return self._union(tree, [{**_inner(tree), "type": k} for k in kinds], document)
            kinds = kinds[0]
        return self._attributed(self._plain(tree, kinds, document), tree)

    def _plain(self, tree: Tree, kind: str | None, document: str) -> Schema:
        if "enum" in tree or "const" in tree:
            symbols = tree.get("enum", [tree.get("const")])
            if self._options.generalized_sums:
                return Schema(
                    Type.STRING,
                    parameters=generalized_sums.enum_parameters("", list(map(str, symbols))),
                )
            return Schema(
                Type.STRING, parameters={ENUM: "", **{f"{ENUM}.{s}": str(s) for s in symbols}}
            )
        if kind is None:
            kind = "object" if "properties" in tree else "array" if "items" in tree else None
        connect_type = tree.get("connect.type")
        if kind == "object":
            if connect_type == MAP or (
                "properties" not in tree and isinstance(tree.get("additionalProperties"), dict)
            ):
                values = tree.get("additionalProperties", True)
                keys = OPTIONAL_STRING if tree.get("connect.optional.keys") else STRING
                return Schema(Type.MAP, key_schema=keys, value_schema=self.read(values, document))
            return self._struct(tree, document)
        if kind == "array":
            items = tree.get("items", True)
            if connect_type == MAP:
                entry = items["properties"]
                keys, values = (self.read(entry[n], document) for n in ("key", "value"))
                return Schema(Type.MAP, key_schema=keys, value_schema=values)
            return Schema(Type.ARRAY, value_schema=self.read(items, document))
        if kind == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        if kind is None:
            return Schema(Type.STRING, name=ANY, optional=True)
        if connect_type is not None and connect_type not in _CONNECT_TYPES:
            raise DataError(f"Unsupported connect.type {connect_type}")
        return Schema(_CONNECT_TYPES[connect_type] if connect_type else _DEFAULT_TYPES[kind])

    def _struct(self, tree: Tree, document: str) -> Schema:
        properties: Mapping[str, Tree] = tree.get("properties", {})
        required = set(tree.get("required", ()))
        positions = {
            name: (_index(p, len(properties) + n), n)
            for n, (name, p) in enumerate(properties.items())
        }
        fields = []
        for name in sorted(properties, key=positions.__getitem__):
            schema = self.read(properties[name], document)
            if name not in required and self._options.optional_for_nonrequired:
                schema = schema.replace(optional=True)
            fields.append((name, schema))
        extras = tree.get("additionalProperties", True)
        if self._options.additional_properties and extras is not False and EXTRAS not in properties:
            values = self.read(extras, document).replace(optional=True)
            fields.append(
                (EXTRAS, Schema(Type.MAP, key_schema=STRING, value_schema=values, optional=True))
            )
        return Schema(Type.STRUCT, fields=fields)

    def _union(self, tree: Tree, branches: list[Tree], document: str) -> Schema:
        types = [b for b in branches if not _is_null(b)]
        optional = len(types) < len(branches)
        if len(types) == 1 and (optional or self._options.flatten_singletons):
            schema = self.read(types[0], document)
            return self._attributed(schema.replace(optional=schema.optional or optional), tree)
        self._unions_read += 1
        if self._unions_read > MAX_UNIONS:
            raise DataError(f"The schema has more than {MAX_UNIONS} unions")
        name, parameters = ONE_OF, {}
        if self._options.generalized_sums:
            name = generalized_sums.union_name(next(self._unions))
            parameters = {generalized_sums.UNION: name}
        fields = [
            (self._branch_name(n), self.read(b, document).replace(optional=True))
            for n, b in enumerate(types)
        ]
        union = Schema(
            Type.STRUCT, name=name, fields=fields, optional=optional, parameters=parameters
        )
        union = self._attributed(union, {k: v for k, v in tree.items() if k != "title"})
        self.branches[union.fields] = [self._branch(b, document) for b in types]
        return union

    def _branch(self, tree: Tree, document: str) -> Branch:
        if "$ref" in tree:
            document, tree = self._resolve(tree["$ref"], document)
        return Branch(tree, document)

    def _branch_name(self, index: int) -> str:
        if self._options.generalized_sums:
            return generalized_sums.branch_name(index)
        return f"{ONE_OF}.field.{index}"

    def _merged(self, tree: Tree, document: str) -> Tree:
        """Merge the schemas in `allOf`."""
        self._merges += 1
        if self._merges > MAX_MERGES:
            raise DataError(f"The schema has more than {MAX_MERGES} uses of allOf")
        merged = _inner(tree)
        for part in tree["allOf"]:
            if "$ref" in part:
                _, part = self._resolve(part["$ref"], document)
            if "allOf" in part:
                part = self._merged(part, document)
            for word, value in part.items():
                if word == "properties":
                    merged[word] = {**merged.get(word, {}), **value}
                elif word == "required":
                    merged[word] = [*merged.get(word, ()), *value]
                else:
                    merged.setdefault(word, value)
        return merged

    def _resolve(self, reference: str, document: str) -> tuple[str, Tree]:
        name, _, pointer = reference.partition("#")
        if name:
            document = self._document(name)
        target = self._documents[document]
        for part in filter(None, pointer.split("/")):
            part = part.replace("~1", "/").replace("~0", "~")
            target = target[int(part)] if isinstance(target, list) else target[part]
        return document, target

    def _document(self, name: str) -> str:
        for document, tree in self._documents.items():
            if document == name or (isinstance(tree, dict) and tree.get("$id") == name):
                return document
        raise DataError(f"Undefined reference: {name}")

    def _attributed(self, schema: Schema, tree: Tree) -> Schema:
        changes: dict[str, Any] = {}
        if tree.get("title") is not None:
            changes["name"] = tree["title"]
        version = tree.get("connect.version", _LOGICAL_VERSIONS.get(tree.get("title", "")))
        if version is not None:
            changes["version"] = int(version)
        if tree.get("description") is not None:
            changes["doc"] = tree["description"]
        parameters = tree.get("connect.parameters")
        if parameters:
            changes["parameters"] = {
                **schema.parameters,
                **{k: str(v) for k, v in parameters.items()},
            }
        if changes:
            schema = schema.replace(**changes)
        if tree.get("default") is not None:
            exact = read_json(json.dumps(tree["default"]).encode(), exact=True)
            schema = schema.replace(default=JsonValueReader().read(schema, exact))
        return schema


def _inner(tree: Tree) -> dict[str, Any]:
    """Return a schema without the attributes of the enclosing union or `allOf`."""
    outer = (
        "allOf",
        "title",
        "default",
        "description",
        "connect.index",
        "connect.version",
        "connect.parameters",
    )
    return {k: v for k, v in tree.items() if k not in outer or (k != "allOf" and "allOf" in tree)}


def _index(tree: Tree, last: int) -> int:
    return int(tree.get("connect.index", last)) if isinstance(tree, dict) else last


def _is_null(tree: Tree) -> bool:
    return isinstance(tree, dict) and tree.get("type") == _NULL["type"]
