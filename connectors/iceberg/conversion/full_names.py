"""`FullNames`: the names of a schema's columns, nested ones too, as Iceberg tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Field = Mapping[str, Any]  # of an Iceberg schema, JSON form


class FullNames:
    """The parts of each name joined by dots. Iceberg refuses a schema in which one comes twice;
    readers an empty part.

    `{"a.b": 1, "a": {"b": 2}}` has two columns `a.b`.
    """

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        """`fields`: of a table that is there."""
        self._names = {
            ".".join(path) for path, _ in columns_inside({"type": "struct", "fields": fields})
        }

    def add(self, path: Sequence[str], type_: Any) -> str | None:
        """Add a column of this type in Iceberg's JSON form; returns why the table cannot have it,
        else None."""
        added: set[str] = set()
        for parts in [tuple(path), *(inner for inner, _ in columns_inside(type_, tuple(path)))]:
            name = ".".join(parts)
            if "" in parts:
                return f"the column {name!r} has an empty name"
            if name in self._names or name in added:
                return f"there would be two columns {name}"
            added.add(name)
        self._names |= added
        return None


def fields_of(type_: Any) -> Sequence[Field]:
    """The fields of a struct or schema; the element of a list, and key and value of a map, as
    such."""
    if isinstance(type_, str):
        return ()
    if type_["type"] == "struct":
        fields: Sequence[Field] = type_["fields"]
        return fields
    return [
        {
            "id": type_[f"{n}-id"],
            "name": n,
            "required": n == "key" or type_[f"{n}-required"],
            "type": type_[n],
        }
        for n in ("element", "key", "value")
        if n in type_
    ]


def columns_inside(
    type_: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Field]]:
    """All columns of a schema or of what is inside of a column, with the names that lead there."""
    for field in fields_of(type_):
        yield (*path, field["name"]), field
        yield from columns_inside(field["type"], (*path, field["name"]))
