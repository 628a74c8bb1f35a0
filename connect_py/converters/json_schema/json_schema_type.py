"""JSON Schemas as Connect schemas, the way Confluent's JsonSchemaData maps them."""

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
ANY: Final = "io.debezium.data.Json"  # what a value of any type becomes: its JSON text
# the field of members that a schema does not name
EXTRAS: Final = "__connect_additional_properties__"
# counted where they are used: to validate a value takes time for each, 30 ms for as many
MAX_UNIONS: Final = 1_000
# of `allOf`: one that refers to the same schema twice doubles them at each level
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
    """How schemas are mapped; the names are those of the converter's properties."""

    optional_for_nonrequired: bool = False
    generalized_sums: bool = False
    flatten_singletons: bool = True
    additional_properties: bool = False  # preserve.additional.properties


@dataclass(frozen=True, slots=True)
class Branch:
    """One type of a union: its JSON Schema, and the document where its references begin."""

    tree: Tree
    document: str


@dataclass(frozen=True, slots=True)
class JsonSchemaType:
    """A schema, ready to use."""

    schema: Schema
    branches: Mapping[tuple[Field, ...], Sequence[Branch]]
    """By the fields of a struct that stands for a union of several types: the JSON Schema of
    each."""
    documents: Mapping[str, Tree]
    """The whole schema under the name `""`, and those it refers to, for validation."""

    def branches_of(self, schema: Schema) -> Sequence[Branch] | None:
        """The JSON Schemas of a union's fields; None: the schema is no union. It may be optional
        here and not there."""
        return self.branches.get(schema.fields) if is_union(schema) else None


def json_schema_type(
    text: str,
    references: Mapping[str, str] | None = None,
    version: int | None = None,
    options: Options | None = None,
) -> JsonSchemaType:
    """Read a schema.

    Raises:
        DataError: The text is no JSON Schema, or one that Connect has no type for.
    """
    try:
        documents = {
            "": json.loads(text),
            **{name: json.loads(other) for name, other in (references or {}).items()},
        }
        reader = _SchemaReader(documents, options or Options())
        schema = reader.read(documents[""], "")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"Not a JSON Schema: {error}") from error
    if version is not None and schema.version is None:
        schema = schema.replace(version=version)
    return JsonSchemaType(schema, reader.branches, documents)


def is_enum(schema: Schema) -> bool:
    """Whether a schema stands for an enum."""
    return ENUM in schema.parameters or generalized_sums.ENUM in schema.parameters


def is_union(schema: Schema) -> bool:
    """Whether a struct stands for a union of several types."""
    return schema.name == ONE_OF or generalized_sums.is_union(schema)


class _SchemaReader:
    def __init__(self, documents: Mapping[str, Tree], options: Options) -> None:
        self._documents = documents
        self._options = options
        self._open: list[int] = []  # identities of the trees that are being read
        self.branches: dict[tuple[Field, ...], Sequence[Branch]] = {}
        self._unions = count()
        self._merges = 0
        self._unions_read = 0

    def read(self, tree: Tree, document: str) -> Schema:
        """Read one type; `document` is where its references begin."""
        if tree is True or tree == {}:
            return Schema(Type.STRING, name=ANY, optional=True)
        if id(tree) in self._open:
            raise DataError("The schema contains itself, which has no Connect schema here")
        self._open.append(id(tree))
        try:
            return self._read(tree, document)
        finally:
            self._open.pop()

    def _read(self, tree: Tree, document: str) -> Schema:
        if "$ref" in tree:
            document, found = self._resolve(tree["$ref"], document)
            made = self.read(found, document)
            return self._attributed(made, {k: v for k, v in tree.items() if k != "$ref"})
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
        places = {
            name: (_index(p, len(properties) + n), n)
            for n, (name, p) in enumerate(properties.items())
        }
        fields = []
        for name in sorted(properties, key=places.__getitem__):
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
        others = [b for b in branches if not _is_null(b)]
        optional = len(others) < len(branches)
        if len(others) == 1 and (optional or self._options.flatten_singletons):
            made = self.read(others[0], document)
            return self._attributed(made.replace(optional=made.optional or optional), tree)
        self._unions_read += 1
        if self._unions_read > MAX_UNIONS:
            raise DataError(f"The schema has more than {MAX_UNIONS} unions in it")
        name, parameters = ONE_OF, {}
        if self._options.generalized_sums:
            name = generalized_sums.union_name(next(self._unions))
            parameters = {generalized_sums.UNION: name}
        fields = [
            (self._branch_name(n), self.read(b, document).replace(optional=True))
            for n, b in enumerate(others)
        ]
        union = Schema(
            Type.STRUCT, name=name, fields=fields, optional=optional, parameters=parameters
        )
        made = self._attributed(union, {k: v for k, v in tree.items() if k != "title"})
        self.branches[made.fields] = [self._branch(b, document) for b in others]
        return made

    def _branch(self, tree: Tree, document: str) -> Branch:
        if "$ref" in tree:
            document, tree = self._resolve(tree["$ref"], document)
        return Branch(tree, document)

    def _branch_name(self, place: int) -> str:
        return (
            generalized_sums.branch_name(place)
            if self._options.generalized_sums
            else f"{ONE_OF}.field.{place}"
        )

    def _merged(self, tree: Tree, document: str) -> Tree:
        """All members of `allOf` in one schema."""
        self._merges += 1
        if self._merges > MAX_MERGES:
            raise DataError(f"The schema has more than {MAX_MERGES} `allOf` in it")
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
        found = self._documents[document]
        for part in filter(None, pointer.split("/")):
            part = part.replace("~1", "/").replace("~0", "~")
            found = found[int(part)] if isinstance(found, list) else found[part]
        return document, found

    def _document(self, name: str) -> str:
        for known, tree in self._documents.items():
            if known == name or (isinstance(tree, dict) and tree.get("$id") == name):
                return known
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
    """A schema without what belongs to the union or merge around it."""
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
