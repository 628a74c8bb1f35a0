"""Conversion of JSON Schema values.

Adds support for unions, and for maps that are lists of entries, to JsonConverter's conversion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Struct, Type, Value
from connect_py.converters.json.json_text import check_nesting, write_json
from connect_py.converters.json.json_values import JsonValueReader, node_type, without_schema
from connect_py.converters.json_schema.json_schema_type import (
    ANY,
    EXTRAS,
    Branch,
    JsonSchemaType,
    Tree,
    is_enum,
)


class JsonSchemaValidator:
    """Validates trees with the jsonschema library. Validators are created on first use."""

    def __init__(self, documents: Mapping[str, Tree], *, modern: bool = True) -> None:
        """Create a validator. If `modern` is False, all documents use draft 7."""
        self._documents = documents
        self._modern = modern
        self._validators: dict[int, Any] = {}
        self._whole = Branch(documents[""], "")

    @staticmethod
    def of(text: str, references: Mapping[str, str], *, modern: bool = True) -> JsonSchemaValidator:
        """Return a validator for a schema and its references.

        Raises:
            DataError: The schema or a reference is not valid JSON.
        """
        try:
            return JsonSchemaValidator({"": json.loads(text), **_parsed(references)}, modern=modern)
        except ValueError as error:
            raise DataError(f"Not a JSON Schema: {error}") from error

    def check(self, tree: Tree) -> None:
        """Validate a value.

        Raises:
            DataError: The value does not match the schema.
        """
        problem = self.problem(self._whole, tree)
        if problem is not None:
            raise DataError(f"The message does not match its schema: {problem}")

    def problem(self, part: Branch, tree: Tree) -> str | None:
        """Return the first violation of a subschema, or None if the value matches the subschema.

        Raises:
            DataError: The schema or a reference is invalid.
        """
        try:
            validator = self._validators.get(id(part))
            if validator is None:
                validator = self._validators[id(part)] = self._make(part)
            error = next(validator.iter_errors(without_schema(tree)), None)
        except Exception as schema_error:  # the library raises arbitrary exceptions
            raise DataError(
                f"The schema cannot be used for validation: "
                f"{type(schema_error).__name__}: {schema_error}"
            ) from schema_error
        return None if error is None else str(error.message)

    def _make(self, part: Branch) -> Any:
        from jsonschema.validators import Draft7Validator, validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        documents, tree = dict(self._documents), part.tree
        document = documents[part.document]
        # references in `tree` are relative to `document`
        if tree is not document and isinstance(document, dict):
            documents[_PART] = {**{k: v for k, v in document.items() if k != "$id"}, _PLACE: tree}
            tree = {"$ref": f"{_PART}#/{_PLACE}"}
        registry: Any = Registry().with_resources(
            [
                (name, Resource.from_contents(d, default_specification=DRAFT7))
                for name, d in documents.items()
            ]
        )
        kind = (
            validator_for(self._documents[""], default=Draft7Validator)
            if self._modern
            else Draft7Validator
        )
        return kind(tree, registry=registry)


_PART: Final = "urn:connect-py:part"
_PLACE: Final = "connect-py-part"


def _with_extras(schema: Schema, tree: Tree) -> Tree:
    """Move additional properties to the `EXTRAS` field if the schema has this field."""
    if schema.field(EXTRAS) is None or not isinstance(tree, dict):
        return tree
    extras = {
        name: member
        for name, member in tree.items()
        if name == EXTRAS or schema.field(name) is None
    }
    return {**tree, EXTRAS: extras or None}


def _parsed(references: Mapping[str, str]) -> dict[str, Tree]:
    return {name: json.loads(text) for name, text in references.items()}


@dataclass(frozen=True, slots=True)
class JsonSchemaValueReader(JsonValueReader):
    """Converts the trees that `read_json(..., exact=True)` returns to Connect values."""

    type: JsonSchemaType = field(kw_only=True)
    validator: JsonSchemaValidator = field(kw_only=True)

    def read_message(self, schema: Schema, tree: Tree) -> Value:
        """Convert a complete payload.

        Missing top-level members become null, even if they are required.

        Raises:
            DataError: The payload does not match the schema.
        """
        if tree is None:
            return None
        if schema.type is not Type.STRUCT or self.type.branches_of(schema) is not None:
            return self.read(schema, tree)
        if not isinstance(tree, dict):
            raise DataError(
                f"Structs should be encoded as JSON objects, but found {node_type(tree)}"
            )
        tree = _with_extras(schema, tree)
        members = ((f.schema, tree.get(f.name)) for f in schema.fields)
        return Struct(
            schema,
            [None if t is None and s.default is None else self.read(s, t) for s, t in members],
        )

    def read(self, schema: Schema | None, tree: Tree) -> Value:
        if schema is not None and tree is not None:
            branches = self.type.branches_of(schema)
            if branches is not None or schema.name == ANY or is_enum(schema):
                check_nesting(tree)  # the schema does not limit the nesting depth
            if branches is not None:
                return self._union(schema, branches, tree)
            if schema.name == ANY:
                return tree if isinstance(tree, str) else write_json(tree, str)
            if is_enum(schema) and not isinstance(tree, str):
                return write_json(tree, str)
            if schema.type is Type.STRUCT:
                tree = _with_extras(schema, tree)
        return super(JsonSchemaValueReader, self).read(schema, tree)

    def _union(self, schema: Schema, branches: Sequence[Branch], tree: Tree) -> Struct:
        values: list[Value] = [None] * len(schema.fields)
        for index, branch in enumerate(branches):
            if self.validator.problem(branch, tree) is None:
                values[index] = self.read(schema.fields[index].schema, tree)
                return Struct(schema, values)
        raise DataError(
            f"Did not find matching oneof field for data: {json.dumps(without_schema(tree))[:100]}"
        )

    def _map(self, schema: Schema, tree: Tree) -> dict[Value, Value]:
        if isinstance(tree, list) and all(isinstance(e, dict) for e in tree):
            tree = [[e.get("key"), e.get("value")] for e in tree]
            assert schema.key_schema is not None
            try:
                return {
                    self.read(schema.key_schema, k): self.read(schema.value_schema, v)
                    for k, v in tree
                }
            except TypeError as error:
                raise DataError("map keys must be primitive") from error
        return super(JsonSchemaValueReader, self)._map(schema, tree)
