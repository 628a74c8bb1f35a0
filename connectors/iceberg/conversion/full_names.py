"""`FullNames`: dotted names of all columns of a schema, including nested ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Field = Mapping[str, Any]  # of an Iceberg schema as JSON


class FullNames:
    """Names of columns. Iceberg rejects a schema with duplicates, and readers reject empty parts.

    `{"a.b": 1, "a": {"b": 2}}` has two columns `a.b`.
    """

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        """`fields` are those of an existing table."""
        self._names = {
            ".".join(path) for path, _ in columns_inside({"type": "struct", "fields": fields})
        }

    def add(self, path: Sequence[str], type_: Any) -> str | None:
        """Add a column of an Iceberg type as JSON, or return why the table cannot have it."""
        new_names: set[str] = set()
        for parts in [tuple(path), *(inner for inner, _ in columns_inside(type_, tuple(path)))]:
            name = ".".join(parts)
            if "" in parts:
                return f"the column {name!r} has an empty name"
            if name in self._names or name in new_names:
                return f"there would be two columns {name}"
            new_names.add(name)
        self._names |= new_names
        return None


def fields_of(type_: Any) -> Sequence[Field]:
    """Return the fields of a struct or schema, or the items of a list or map as fields."""
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
    """Yield all columns of a schema or inside of a type, with their paths."""
    for field in fields_of(type_):
        yield (*path, field["name"]), field
        yield from columns_inside(field["type"], (*path, field["name"]))
