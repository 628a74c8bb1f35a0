"""`FullNames`: the dotted names of all columns of a schema, including nested columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Field = Mapping[str, Any]  # field of an Iceberg schema as JSON


class FullNames:
    """Checks that the full names of a schema's columns are unique and have no empty parts.

    Iceberg rejects duplicate names, and readers reject empty parts. For example, the row
    `{"a.b": 1, "a": {"b": 2}}` has two columns with the full name `a.b`.
    """

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        """Add the full names of an existing table's columns."""
        self._names = {
            ".".join(path) for path, _ in columns_inside({"type": "struct", "fields": fields})
        }

    def add(self, path: Sequence[str], type_: Any) -> str | None:
        """Add a column with its nested columns, or return the reason why that is impossible.

        Args:
            path: Names of the column and its parents.
            type_: Iceberg type of the column as JSON.
        """
        new_names: set[str] = set()
        for parts in [tuple(path), *(inner for inner, _ in columns_inside(type_, tuple(path)))]:
            name = ".".join(parts)
            if "" in parts:
                return f"the column {name!r} has an empty name"
            if name in self._names or name in new_names:
                return f"there would be two columns named {name}"
            new_names.add(name)
        self._names |= new_names
        return None


def fields_of(type_: Any) -> Sequence[Field]:
    """Return the fields of a struct or schema, or the element, key, and value types as fields."""
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
    """Yield the path and the field of each column in a schema or type, including nested columns."""
    for field in fields_of(type_):
        yield (*path, field["name"]), field
        yield from columns_inside(field["type"], (*path, field["name"]))
