"""`FullNames`: the names of a schema's columns, nested ones too, as Iceberg tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


class FullNames:
    """The parts of each name joined by dots. Iceberg refuses a schema in which one comes twice; readers an empty part.

    `{"a.b": 1, "a": {"b": 2}}` has two columns `a.b`.
    """

    def __init__(self, fields: Iterable[Mapping[str, Any]] = ()) -> None:
        """`fields`: in Iceberg's JSON form, of a table that is there."""
        self._names: set[str] = set()
        for field in fields:
            self._names.update(".".join(path) for path in _paths((field["name"],), field["type"]))

    def add(self, path: Sequence[str], type_: Any) -> str | None:
        """Add a column of this type in Iceberg's JSON form; returns why the table cannot have it, else None."""
        added: set[str] = set()
        for parts in _paths(tuple(path), type_):
            name = ".".join(parts)
            if "" in parts:
                return f"the column {name!r} has an empty name"
            if name in self._names or name in added:
                return f"there would be two columns {name}"
            added.add(name)
        self._names |= added
        return None


def _paths(path: tuple[str, ...], type_: Any) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(type_, str):
        return
    for field in type_.get("fields", ()):
        yield from _paths((*path, field["name"]), field["type"])
    for part in ("element", "key", "value"):
        if part in type_:
            yield from _paths((*path, part), type_[part])
