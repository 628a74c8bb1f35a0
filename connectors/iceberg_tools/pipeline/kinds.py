"""Kinds of values in a pipeline file. Each reads a part of the file, and describes itself as JSON
schema."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from connectors.iceberg_tools.pipeline.mistake import Mistakes, Place, did_you_mean
from connectors.iceberg_tools.pipeline.yaml_tree import Entries, Items, Node, Scalar

# `${env:TOKEN}`: the worker looks the value up
PROVIDER: Final = re.compile(r"\$\{[^${}:]+:[^{}]+\}")


@dataclass(frozen=True, slots=True)
class Found:
    """A value of the file and its place: a text, number or boolean, a tuple of `Found`, or a dict
    of them by key."""

    place: Place
    path: str
    value: Any

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, tuple):
            return tuple(item.plain() for item in self.value)
        if isinstance(self.value, dict):
            return {key: each.plain() for key, each in self.value.items()}
        return self.value


class Kind(ABC):
    """What a field takes."""

    words: str  # for people: `a whole number`

    @abstractmethod
    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        """Return the value; None: it is wrong, which is among the mistakes."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the values."""

    def refuse(self, node: Node, path: str, mistakes: Mistakes, hint: str = "") -> None:
        problem = (
            "is empty" if isinstance(node, Scalar) and node.kind == "nothing" else f"is {node}"
        )
        mistakes.add(node.place, path, f"{problem}, expected {self.words}", hint)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text, checked by a function if one is given. A reference to a config provider is not
    checked."""

    words: str = "a text"
    check: Callable[[str], object] | None = None  # raises ValueError
    pattern: str = ""  # what the whole text matches, for editors as well
    hint: str = ""
    any_scalar: bool = False  # numbers, true and false are texts, too
    resolved: bool = True  # the worker gets it as it is, and resolves references

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if not isinstance(node, Scalar) or node.kind == "nothing":
            self.refuse(node, path, mistakes, self.hint)
            return None
        # `NO` is Norway, too
        spelled = node.kind != "boolean" or node.text.lower() in ("true", "false")
        if node.kind != "text" and not (self.any_scalar and spelled):
            self.refuse(node, path, mistakes, f'put it in quotes: "{node.text}"')
            return None
        if node.kind == "boolean":
            node = replace(node, text=node.text.lower())
        if PROVIDER.search(node.text) is not None:
            if self.resolved:
                return Found(node.place, path, node.text)
            mistakes.add(
                node.place, path, "cannot come from a config provider", f"write {self.words}"
            )
            return None
        if not self._accepts(node, path, mistakes):
            return None
        return Found(node.place, path, node.text)

    def _accepts(self, node: Scalar, path: str, mistakes: Mistakes) -> bool:
        if self.pattern and re.fullmatch(self.pattern, node.text) is None:
            mistakes.add(
                node.place, path, f"{node.text or 'an empty text'} is not {self.words}", self.hint
            )
            return False
        if self.check is not None:
            try:
                self.check(node.text)
            except ValueError as error:
                mistakes.add(node.place, path, str(error), self.hint)
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
    """One of a few words."""

    choices: tuple[str, ...]

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return f"one of {', '.join(self.choices)}"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if not isinstance(node, Scalar) or node.kind != "text":
            self.refuse(node, path, mistakes)
            return None
        if node.text not in self.choices:
            problem = f"{node.text} is none of {', '.join(self.choices)}"
            mistakes.add(node.place, path, problem, did_you_mean(node.text, self.choices))
            return None
        return Found(node.place, path, node.text)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A whole number."""

    least: int = 1
    words = "a whole number"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if (
            not isinstance(node, Scalar)
            or node.kind != "number"
            or not re.fullmatch(r"-?\d{1,18}", node.text)
        ):
            self.refuse(node, path, mistakes)
            return None
        if int(node.text) < self.least:
            mistakes.add(node.place, path, f"{node.text} is below {self.least}")
            return None
        return Found(node.place, path, int(node.text))

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least}


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """True or false."""

    words = "true or false"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if not isinstance(node, Scalar) or node.kind != "boolean":
            self.refuse(node, path, mistakes)
            return None
        return Found(node.place, path, node.text.lower() in ("true", "yes", "on"))

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class ListOf(Kind):
    """A list that is not empty; a single item may stand for itself."""

    item: Kind
    single: bool = True

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return (
            f"{self.item.words}, or a list"
            if self.single
            else f"a list, each item {self.item.words}"
        )

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if self.single and isinstance(node, Scalar) and node.kind != "nothing":
            one = self.item.read(node, path, mistakes)
            return None if one is None else Found(node.place, path, (one,))
        if not isinstance(node, Items):
            self.refuse(node, path, mistakes)
            return None
        if not node.items:
            mistakes.add(node.place, path, "is an empty list")
            return None
        read = [
            self.item.read(item, f"{path}[{at}]", mistakes) for at, item in enumerate(node.items)
        ]
        found = tuple(each for each in read if each is not None)
        seen: set[Any] = set()
        for each in found:
            if isinstance(each.value, str):
                if each.value in seen:
                    mistakes.add(
                        each.place, path, f"{each.value} is given twice", "remove one of them"
                    )
                seen.add(each.value)
        return Found(node.place, path, found) if len(found) == len(read) else None

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        several: dict[str, Any] = {"type": "array", "items": item, "minItems": 1}
        if isinstance(self.item, Text | Choice):
            several["uniqueItems"] = True
        return {"anyOf": [item, several]} if self.single else several


@dataclass(frozen=True, slots=True)
class MapOf(Kind):
    """A mapping whose keys are names that the user chooses."""

    value: Kind
    key: Text = field(default_factory=Text)
    least: int = 0  # entries

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return f"a mapping, each value {self.value.words}"

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if not isinstance(node, Entries):
            self.refuse(node, path, mistakes)
            return None
        if len(node.entries) < self.least:
            mistakes.add(node.place, path, "is an empty mapping")
            return None
        found = {}
        for key, value in node.entries:
            below = f"{path}.{key.text}"
            accepted = self.key.read(Scalar(key.place, key.text, "text"), below, mistakes)
            each = self.value.read(value, below, mistakes)
            if accepted is not None and each is not None:
                found[key.text] = Found(key.place, below, each.value)
        return Found(node.place, path, found)

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "object", "additionalProperties": self.value.schema()}
        if self.key.pattern:
            found["propertyNames"] = {"pattern": f"^({self.key.pattern})$"}
        if self.least:
            found["minProperties"] = self.least
        return found


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the file: declared once, for validation, JSON schema and reference."""

    name: str
    kind: Kind
    doc: str
    key: str = ""  # the connector's key that has its value; empty: see `Compiler`
    required: bool = False


@dataclass(frozen=True, slots=True)
class Fields(Kind):
    """A mapping with declared keys."""

    fields: tuple[Field, ...]
    words: str = "a mapping"
    others: Kind | None = None  # what keys that are not declared have; None: they are mistakes
    may_be_empty: bool = False
    # keys that belong to another place: hints
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
        if self.may_be_empty and isinstance(node, Scalar) and node.kind == "nothing":
            return Found(node.place, path, {})
        if not isinstance(node, Entries):
            self.refuse(node, path, mistakes)
            return None
        declared = {each.name: each for each in self.fields}
        found = {}
        for key, value in node.entries:
            below = f"{path}.{key.text}" if path else key.text
            kind = declared[key.text].kind if key.text in declared else self.others
            if kind is None:
                hint = self.elsewhere.get(key.text) or did_you_mean(key.text, declared)
                mistakes.add(key.place, below, "is not known", hint)
                continue
            each = kind.read(value, below, mistakes)
            if each is not None:
                found[key.text] = Found(key.place, below, each.value)
        given = {key.text for key, _ in node.entries}
        for each_field in self.fields:
            if each_field.required and each_field.name not in given:
                mistakes.add(node.place, path, f"lacks `{each_field.name}`", each_field.doc)
        return Found(node.place, path, found)

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "type": ["object", "null"] if self.may_be_empty else "object",
            "properties": {
                each.name: {"description": each.doc, **each.kind.schema()} for each in self.fields
            },
            "additionalProperties": False if self.others is None else self.others.schema(),
        }
        required = [each.name for each in self.fields if each.required]
        return {**found, "required": required} if required else found


@dataclass(frozen=True, slots=True)
class Either(Kind):
    """One kind for each form that a value may have."""

    single: Kind | None = None
    several: Kind | None = None
    mapping: Kind | None = None

    @property
    def words(self) -> str:  # type: ignore[override]  # computed
        return ", or ".join(each.words for each in self._kinds())

    def _kinds(self) -> list[Kind]:
        return [each for each in (self.single, self.several, self.mapping) if each is not None]

    def read(self, node: Node, path: str, mistakes: Mistakes) -> Found | None:
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
