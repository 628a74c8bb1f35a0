"""Kinds of values in a pipeline file.

Each kind parses nodes of the file and describes its values with a JSON schema.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from connectors.iceberg_tools.pipeline.mistake import FilePosition, Mistakes, did_you_mean
from connectors.iceberg_tools.pipeline.yaml_tree import Entries, Items, Node, Scalar

# matches references that the worker resolves, such as `${env:TOKEN}`
PROVIDER: Final = re.compile(r"\$\{[^${}:]+:[^{}]+\}")


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value in the file, with its position.

    The value is a string, a number, a Boolean, a tuple of `FieldValue`, or a dict of `FieldValue`.
    """

    position: FilePosition
    path: str
    value: Any

    def plain(self) -> Any:
        """Return the value without positions."""
        if isinstance(self.value, tuple):
            return tuple(item.plain() for item in self.value)
        if isinstance(self.value, dict):
            return {key: each.plain() for key, each in self.value.items()}
        return self.value


class Kind(ABC):
    """Kind of the values that a field accepts."""

    words: str  # description of the values in messages, such as `a whole number`

    @abstractmethod
    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        """Return the value, or add a mistake and return None if the value is invalid."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the values."""

    def refuse(self, node: Node, path: str, mistakes: Mistakes, hint: str = "") -> None:
        problem = (
            "is empty" if isinstance(node, Scalar) and node.kind == "nothing" else f"is {node}"
        )
        mistakes.add(node.position, path, f"{problem}, expected {self.words}", hint)


@dataclass(frozen=True, slots=True)
class String(Kind):
    """A string with an optional check. References to config providers are not checked."""

    words: str = "a string"
    check: Callable[[str], object] | None = None  # raises ValueError if the string is invalid
    pattern: str = ""  # must match the whole string; part of the JSON schema
    hint: str = ""
    any_scalar: bool = False  # also accepts numbers, true, and false
    resolved: bool = True  # may contain references to config providers, which the worker resolves

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if not isinstance(node, Scalar) or node.kind == "nothing":
            self.refuse(node, path, mistakes, self.hint)
            return None
        # In YAML 1.1, `NO` is a Boolean.
        spelled = node.kind != "boolean" or node.value.lower() in ("true", "false")
        if node.kind != "string" and not (self.any_scalar and spelled):
            self.refuse(node, path, mistakes, f'put it in quotes: "{node.value}"')
            return None
        if node.kind == "boolean":
            node = replace(node, value=node.value.lower())
        if PROVIDER.search(node.value) is not None:
            if self.resolved:
                return FieldValue(node.position, path, node.value)
            mistakes.add(
                node.position, path, "cannot come from a config provider", f"write {self.words}"
            )
            return None
        if not self._accepts(node, path, mistakes):
            return None
        return FieldValue(node.position, path, node.value)

    def _accepts(self, node: Scalar, path: str, mistakes: Mistakes) -> bool:
        if self.pattern and re.fullmatch(self.pattern, node.value) is None:
            mistakes.add(
                node.position,
                path,
                f"{node.value or 'an empty string'} is not {self.words}",
                self.hint,
            )
            return False
        if self.check is not None:
            try:
                self.check(node.value)
            except ValueError as error:
                mistakes.add(node.position, path, str(error), self.hint)
                return False
        return True

    def schema(self) -> dict[str, Any]:
        text: dict[str, Any] = {
            "type": ["string", "number", "boolean"] if self.any_scalar else "string"
        }
        if self.pattern:
            text["pattern"] = f"^({self.pattern})$" + (r"|\$\{.+:.+\}" if self.resolved else "")
        return text


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of several strings."""

    choices: tuple[str, ...]

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return f"one of {', '.join(self.choices)}"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if not isinstance(node, Scalar) or node.kind != "string":
            self.refuse(node, path, mistakes)
            return None
        if node.value not in self.choices:
            problem = f"{node.value} is not one of {', '.join(self.choices)}"
            mistakes.add(node.position, path, problem, did_you_mean(node.value, self.choices))
            return None
        return FieldValue(node.position, path, node.value)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A whole number."""

    least: int = 1
    words = "a whole number"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if (
            not isinstance(node, Scalar)
            or node.kind != "number"
            or not re.fullmatch(r"-?\d{1,18}", node.value)
        ):
            self.refuse(node, path, mistakes)
            return None
        if int(node.value) < self.least:
            mistakes.add(node.position, path, f"{node.value} is less than {self.least}")
            return None
        return FieldValue(node.position, path, int(node.value))

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least}


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """True or false."""

    words = "true or false"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if not isinstance(node, Scalar) or node.kind != "boolean":
            self.refuse(node, path, mistakes)
            return None
        return FieldValue(node.position, path, node.value.lower() in ("true", "yes", "on"))

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class ListOf(Kind):
    """A non-empty list. If `single` is True, a single item without a list is also valid."""

    item: Kind
    single: bool = True

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return (
            f"{self.item.words}, or a list"
            if self.single
            else f"a list, each item {self.item.words}"
        )

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if self.single and isinstance(node, Scalar) and node.kind != "nothing":
            one = self.item.read(node, path, mistakes)
            return None if one is None else FieldValue(node.position, path, (one,))
        if not isinstance(node, Items):
            self.refuse(node, path, mistakes)
            return None
        if not node.items:
            mistakes.add(node.position, path, "is an empty list")
            return None
        results = [
            self.item.read(item, f"{path}[{at}]", mistakes) for at, item in enumerate(node.items)
        ]
        values = tuple(each for each in results if each is not None)
        strings: set[Any] = set()
        for each in values:
            if isinstance(each.value, str):
                if each.value in strings:
                    mistakes.add(
                        each.position, path, f"{each.value} is listed twice", "remove one of them"
                    )
                strings.add(each.value)
        return FieldValue(node.position, path, values) if len(values) == len(results) else None

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        several: dict[str, Any] = {"type": "array", "items": item, "minItems": 1}
        if isinstance(self.item, String | Choice):
            several["uniqueItems"] = True
        return {"anyOf": [item, several]} if self.single else several


@dataclass(frozen=True, slots=True)
class MapOf(Kind):
    """A mapping whose keys are chosen by the user."""

    value: Kind
    key: String = field(default_factory=String)
    least: int = 0  # minimum number of entries

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return f"a mapping, each value {self.value.words}"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if not isinstance(node, Entries):
            self.refuse(node, path, mistakes)
            return None
        if len(node.entries) < self.least:
            mistakes.add(node.position, path, "is an empty mapping")
            return None
        values = {}
        for key, value in node.entries:
            below = f"{path}.{key.value}"
            accepted = self.key.read(Scalar(key.position, key.value, "string"), below, mistakes)
            each = self.value.read(value, below, mistakes)
            if accepted is not None and each is not None:
                values[key.value] = FieldValue(key.position, below, each.value)
        return FieldValue(node.position, path, values)

    def schema(self) -> dict[str, Any]:
        result: dict[str, Any] = {"type": "object", "additionalProperties": self.value.schema()}
        if self.key.pattern:
            result["propertyNames"] = {"pattern": f"^({self.key.pattern})$"}
        if self.least:
            result["minProperties"] = self.least
        return result


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the file, declared once for validation, JSON schema, and reference pages."""

    name: str
    kind: Kind
    doc: str
    key: str = ""  # config key for the value, or empty if `Compiler` has code for the field
    required: bool = False


@dataclass(frozen=True, slots=True)
class Fields(Kind):
    """A mapping with declared keys."""

    fields: tuple[Field, ...]
    words: str = "a mapping"
    undeclared: Kind | None = None  # kind of undeclared keys, or None if they are mistakes
    may_be_empty: bool = False
    # hints for keys that are valid elsewhere in the file
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        if self.may_be_empty and isinstance(node, Scalar) and node.kind == "nothing":
            return FieldValue(node.position, path, {})
        if not isinstance(node, Entries):
            self.refuse(node, path, mistakes)
            return None
        declared = {each.name: each for each in self.fields}
        values = {}
        for key, value in node.entries:
            below = f"{path}.{key.value}" if path else key.value
            kind = declared[key.value].kind if key.value in declared else self.undeclared
            if kind is None:
                hint = self.elsewhere.get(key.value) or did_you_mean(key.value, declared)
                mistakes.add(key.position, below, "is unknown", hint)
                continue
            each = kind.read(value, below, mistakes)
            if each is not None:
                values[key.value] = FieldValue(key.position, below, each.value)
        present = {key.value for key, _ in node.entries}
        for each_field in self.fields:
            if each_field.required and each_field.name not in present:
                mistakes.add(node.position, path, f"lacks `{each_field.name}`", each_field.doc)
        return FieldValue(node.position, path, values)

    def schema(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "type": ["object", "null"] if self.may_be_empty else "object",
            "properties": {
                each.name: {"description": each.doc, **each.kind.schema()} for each in self.fields
            },
            "additionalProperties": False if self.undeclared is None else self.undeclared.schema(),
        }
        required = [each.name for each in self.fields if each.required]
        return {**result, "required": required} if required else result


@dataclass(frozen=True, slots=True)
class Either(Kind):
    """A value whose kind depends on its YAML form: scalar, list, or mapping."""

    single: Kind | None = None
    several: Kind | None = None
    mapping: Kind | None = None

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return ", or ".join(each.words for each in self._kinds())

    def _kinds(self) -> list[Kind]:
        return [each for each in (self.single, self.several, self.mapping) if each is not None]

    def read(self, node: Node, path: str, mistakes: Mistakes) -> FieldValue | None:
        kind = (
            self.mapping
            if isinstance(node, Entries)
            else self.several
            if isinstance(node, Items)
            else self.single
        )
        if kind is None or (isinstance(node, Scalar) and node.kind == "nothing"):
            self.refuse(node, path, mistakes)
            return None
        return kind.read(node, path, mistakes)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [each.schema() for each in self._kinds()]}
