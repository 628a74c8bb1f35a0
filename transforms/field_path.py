"""Where a field is: a name, or (syntax version 2) a dotted path with backticks around names that
have dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connect_py.api.errors import ConfigError, DataError
from connect_py.api.schema import Field, Schema, Struct, Type, Value
from transforms.requirements import require_map, require_struct

PURPOSE = "nested field access"


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Steps from the top to a field."""

    text: str
    steps: Sequence[str]

    @classmethod
    def parse(cls, text: str, version: str) -> FieldPath:
        """Read a path of syntax `V1` (one name, dots and all) or `V2`, in any case.

        Raises:
            ConfigError: A backtick has no partner.
        """
        return cls(text, (text,) if version.upper() == "V1" else tuple(_steps(text)))

    def field_of(self, schema: Schema) -> Field | None:
        """The field of a struct schema; None when it has none. DataError: the way leads through
        something else."""
        found: Field | None = None
        for step in self.steps:
            inside = schema if found is None else found.schema
            if inside.type is not Type.STRUCT:
                raise DataError("Cannot look up fields on non-struct type")
            found = inside.field(step)
            if found is None:
                return None
        return found

    def value_of_struct(self, row: Struct, *, replace_null_with_default: bool) -> Value:
        """The value in a row whose schema has the field; null when something on the way is."""
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
        """The value in a map; null when something on the way is missing. DataError: the way leads
        through a scalar."""
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
        at += 1  # the dot


def _closing(text: str, opening: int) -> int:
    """The backtick that ends a quoted name: the next one before a dot or the end that no backslash
    precedes."""
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
