"""Field paths: a field name in syntax version V1, or a dotted path in V2.

In V2, backticks enclose names that contain dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connect_py.api.errors import ConfigError, DataError
from connect_py.api.schema import Field, Schema, Struct, Type, Value
from transforms.requirements import require_map, require_struct

PURPOSE = "nested field access"


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Path from a top-level field to a nested field."""

    text: str
    steps: Sequence[str]

    @classmethod
    def parse(cls, text: str, version: str) -> FieldPath:
        """Parse a path. `version` is `V1` or `V2` (not case-sensitive).

        A `V1` path is a single name, which may contain dots.

        Raises:
            ConfigError: A backtick is not closed.
        """
        return cls(text, (text,) if version.upper() == "V1" else tuple(_steps(text)))

    def field_of(self, schema: Schema) -> Field | None:
        """Return the field at this path in a struct schema, or None if it does not exist.

        Raises:
            DataError: A field on the path is not a struct.
        """
        field: Field | None = None
        for step in self.steps:
            inside = schema if field is None else field.schema
            if inside.type is not Type.STRUCT:
                raise DataError("Cannot look up fields on non-struct type")
            field = inside.field(step)
            if field is None:
                return None
        return field

    def value_of_struct(self, row: Struct, *, replace_null_with_default: bool) -> Value:
        """Return the value at this path, or None if a struct on the path is null.

        The schema of the row must have the field.
        """
        value: Value = row
        for step in self.steps:
            if value is None:
                return None
            inside = require_struct(value, PURPOSE)
            value = (
                inside.get(step) if replace_null_with_default else inside.get_without_default(step)
            )
        return value

    def value_of_map(self, row: Value) -> Value:
        """Return the value at this path in a map, or None if an entry on the path is missing.

        Raises:
            DataError: An entry on the path is not a map.
        """
        value = row
        for step in self.steps:
            if value is None:
                return None
            value = require_map(value, PURPOSE).get(step)
        return value


def _steps(text: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while True:
        if text[at : at + 1] == "`":
            end = _closing(text, at)
            steps.append(text[at + 1 : end].replace("\\`", "`"))
            at = end + 1
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            steps.append(text[at:end].replace("\\`", "`"))
            at = end
        if at >= len(text):
            return steps
        at += 1  # skip the dot


def _closing(text: str, opening: int) -> int:
    """Return the index of the backtick that closes a quoted name.

    A closing backtick is followed by a dot or the end of the path, and is not preceded by a
    backslash.
    """
    at = opening
    while True:
        at = text.find("`", at + 1)
        if at < 0:
            raise ConfigError(
                "",
                f"Incomplete backtick pair in path: [{text}], consider adding a backslash before "
                f"backtick at position {opening} to escape it",
            )
        if text[at - 1] != "\\" and text[at + 1 : at + 2] in ("", "."):
            return at
