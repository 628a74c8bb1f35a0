"""A YAML file as a tree whose parts know their place. The one module that imports the YAML
library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from connectors.iceberg_tools.pipeline.mistake import Mistakes, Place

_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = {
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "null": "nothing",
}
_DEEPEST: Final = 100  # levels; the parts of a file are read by functions that call themselves


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    place: Place
    text: str  # as written: a boolean may be `yes` or `OFF`, too
    kind: str  # text, number, boolean or nothing

    def __str__(self) -> str:
        return "nothing" if self.kind == "nothing" else f"the {self.kind} {self.text}"


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping; each key once."""

    place: Place
    entries: tuple[tuple[Scalar, Node], ...]

    def __str__(self) -> str:
        return "a mapping"


Node: TypeAlias = Scalar | Items | Entries


def read_yaml(text: str, mistakes: Mistakes) -> Node | None:
    """The document of a text; None: there is none, or it is not YAML, which is one of the
    mistakes."""
    try:
        nodes = list(_documents(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        mistakes.add(_place(mark), "", f"is not YAML: {error.problem}", error.context or "")
        return None
    except yaml.YAMLError as error:  # a character that no YAML file has
        mistakes.add(Place(1, 1), "", f"is not YAML: {error}".replace("\n", " "))
        return None
    if not nodes:
        mistakes.add(Place(1, 1), "", "the file is empty", "it begins with `pipeline: <name>`")
        return None
    for extra in nodes[1:]:
        mistakes.add(
            _place(extra.start_mark),
            "",
            "a second document begins here",
            "write one file per pipeline",
        )
    return _TreeBuilder(mistakes).node(nodes[0], "")


def _documents(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            yield loader.get_node()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the library has no types
    """Refuses nesting before it is as deep as Python's stack."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(
                problem=f"it is nested more than {_DEEPEST} levels deep", problem_mark=mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _place(mark: Any) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


class _TreeBuilder:
    """Makes each node once, however many aliases name it."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._made: dict[
            int, Node | None
        ] = {}  # by identity of the library's node; None: it is being made

    def node(self, node: Any, path: str) -> Node:
        place = _place(node.start_mark)
        if id(node) in self._made:
            made = self._made[id(node)]
            if made is None:
                self._mistakes.add(place, path, "contains itself by an alias")
            return made or Scalar(place, "", "text")
        self._made[id(node)] = None
        made = self._of(node, place, path)
        self._made[id(node)] = made
        return made

    def _of(self, node: Any, place: Place, path: str) -> Node:
        if isinstance(node, yaml.SequenceNode):
            return Items(
                place, tuple(self.node(item, f"{path}[{at}]") for at, item in enumerate(node.value))
            )
        if isinstance(node, yaml.MappingNode):
            return Entries(place, tuple(self._entries(node, path)))
        return self._scalar(node, path)

    def _entries(self, node: Any, path: str) -> Iterator[tuple[Scalar, Node]]:
        seen: dict[str, Place] = {}
        for key, value in node.value:
            place = _place(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self._mistakes.add(place, path, "a key must be a single value")
                continue
            if key.tag == f"{_TAG}merge":
                self._mistakes.add(
                    place,
                    path,
                    "merge keys are not supported",
                    "put shared fields below `defaults`",
                )
                continue
            name = self._scalar(key, path)
            below = f"{path}.{name.text}" if path else name.text
            if name.text in seen:
                self._mistakes.add(
                    place,
                    below,
                    f"is given twice, first in line {seen[name.text].line}",
                    "remove one of them",
                )
                continue
            seen[name.text] = place
            yield name, self.node(value, below)

    def _scalar(self, node: Any, path: str) -> Scalar:
        place, name = _place(node.start_mark), node.tag.removeprefix(_TAG)
        if name not in _SCALARS and name != "timestamp":
            self._mistakes.add(place, path, f"the tag {node.tag} is not supported")
        elif name != "str" and not _fits(name, node.value):
            self._mistakes.add(
                place, path, f'the tag !!{name} does not fit "{node.value}"', "remove the tag"
            )
            return Scalar(place, node.value, "text")
        return Scalar(place, node.value, _SCALARS.get(name, "text"))


def _fits(tag: str, text: str) -> bool:
    """Whether a text is what its tag says. Without a tag it has the one that it fits."""
    found = (
        yaml.resolver.Resolver().resolve(yaml.ScalarNode, text, (True, False)).removeprefix(_TAG)
    )
    return found == tag or (found, tag) == ("int", "float")
