"""Parse a YAML file into a tree of nodes with positions.

This is the only module that imports the YAML library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from connectors.iceberg_tools.pipeline.mistake import FilePosition, Mistakes

_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = {
    "str": "string",
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "null": "nothing",
}
_DEEPEST: Final = 100  # maximum nesting depth, limited because files are parsed recursively


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    position: FilePosition
    value: str  # as written; a Boolean may be `yes` or `OFF`
    kind: str  # string, number, boolean, or nothing

    def __str__(self) -> str:
        return "nothing" if self.kind == "nothing" else f"the {self.kind} {self.value}"


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    position: FilePosition
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping with unique keys."""

    position: FilePosition
    entries: tuple[tuple[Scalar, Node], ...]

    def __str__(self) -> str:
        return "a mapping"


Node: TypeAlias = Scalar | Items | Entries


def read_yaml(content: str, mistakes: Mistakes) -> Node | None:
    """Return the tree of a document.

    If the document is missing or invalid, add a mistake and return None.
    """
    try:
        nodes = list(_documents(content))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        mistakes.add(_position(mark), "", f"is not YAML: {error.problem}", error.context or "")
        return None
    except yaml.YAMLError as error:  # a character that is invalid in YAML
        mistakes.add(FilePosition(1, 1), "", f"is not YAML: {error}".replace("\n", " "))
        return None
    if not nodes:
        mistakes.add(FilePosition(1, 1), "", "the file is empty", "expected `pipeline: <name>`")
        return None
    for extra in nodes[1:]:
        mistakes.add(
            _position(extra.start_mark),
            "",
            "a second document begins here",
            "write one file per pipeline",
        )
    return _TreeBuilder(mistakes).node(nodes[0], "")


def _documents(content: str) -> Iterator[Any]:
    loader = _Loader(content)
    try:
        while loader.check_node():
            yield loader.get_node()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the library has no types
    """Loads YAML and limits its nesting to protect Python's stack."""

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


def _position(mark: Any) -> FilePosition:
    return FilePosition(1, 1) if mark is None else FilePosition(mark.line + 1, mark.column + 1)


class _TreeBuilder:
    """Builds each node once, even if several aliases refer to it."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        # by identity of the library's node; None while a node is incomplete
        self._nodes: dict[int, Node | None] = {}

    def node(self, node: Any, path: str) -> Node:
        position = _position(node.start_mark)
        if id(node) in self._nodes:
            tree = self._nodes[id(node)]
            if tree is None:
                self._mistakes.add(position, path, "contains itself through an alias")
            return tree or Scalar(position, "", "string")
        self._nodes[id(node)] = None
        tree = self._of(node, position, path)
        self._nodes[id(node)] = tree
        return tree

    def _of(self, node: Any, position: FilePosition, path: str) -> Node:
        if isinstance(node, yaml.SequenceNode):
            return Items(
                position,
                tuple(self.node(item, f"{path}[{at}]") for at, item in enumerate(node.value)),
            )
        if isinstance(node, yaml.MappingNode):
            return Entries(position, tuple(self._entries(node, path)))
        return self._scalar(node, path)

    def _entries(self, node: Any, path: str) -> Iterator[tuple[Scalar, Node]]:
        positions: dict[str, FilePosition] = {}
        for key, value in node.value:
            position = _position(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self._mistakes.add(position, path, "a key must be a single value")
                continue
            if key.tag == f"{_TAG}merge":
                self._mistakes.add(
                    position,
                    path,
                    "merge keys are not supported",
                    "move shared fields to `defaults`",
                )
                continue
            name = self._scalar(key, path)
            below = f"{path}.{name.value}" if path else name.value
            if name.value in positions:
                self._mistakes.add(
                    position,
                    below,
                    f"duplicates the key in line {positions[name.value].line}",
                    "remove one of them",
                )
                continue
            positions[name.value] = position
            yield name, self.node(value, below)

    def _scalar(self, node: Any, path: str) -> Scalar:
        position, name = _position(node.start_mark), node.tag.removeprefix(_TAG)
        if name not in _SCALARS and name != "timestamp":
            self._mistakes.add(position, path, f"the tag {node.tag} is not supported")
        elif name != "str" and not _fits(name, node.value):
            self._mistakes.add(
                position, path, f'the tag !!{name} does not fit "{node.value}"', "remove the tag"
            )
            return Scalar(position, node.value, "string")
        return Scalar(position, node.value, _SCALARS.get(name, "string"))


def _fits(tag: str, value: str) -> bool:
    """Return True if a value matches its tag. A value without an explicit tag always matches."""
    tag_of_value = (
        yaml.resolver.Resolver().resolve(yaml.ScalarNode, value, (True, False)).removeprefix(_TAG)
    )
    return tag_of_value == tag or (tag_of_value, tag) == ("int", "float")
