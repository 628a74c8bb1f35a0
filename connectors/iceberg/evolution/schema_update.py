"""What is left to do of changes of a table's schema, and what the table remembers of them. Standard library only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.evolution.column_history import HISTORY, ColumnHistory
from connectors.iceberg.schema_change import ChangeKind, SchemaChange

_DEFAULTS_SINCE: Final = 3  # format version
Field = Mapping[str, Any]  # of an Iceberg schema, JSON form


def pending(table: str, schema: Field, format_version: int, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    """The changes that a table with this schema lacks.

    Raises:
        TableUnsuitableError: A change is of a column that is not there.
    """
    found: list[SchemaChange] = []
    for change in changes:
        column = find_field(schema, change.path)
        beside = None if change.name is None else find_field(schema, (*change.path[:-1], change.name))
        match change.kind:
            case ChangeKind.ADD:
                if column is None:
                    known = change.default if format_version >= _DEFAULTS_SINCE else None
                    found.append(dataclasses.replace(change, default=known))
                continue
            case ChangeKind.RENAME if beside is not None:
                continue
        if column is None:
            raise TableUnsuitableError(table, f"no column {'.'.join(change.path)}")
        match change.kind:
            case ChangeKind.VERSION if beside is not None:
                continue
            case ChangeKind.VERSION:
                found.append(change)
                if column["id"] not in (schema.get("identifier-field-ids") or ()):
                    found.append(SchemaChange(ChangeKind.OPTIONAL, change.path))  # a row has its value in one version
            case ChangeKind.WIDEN if column["type"] == json.loads(change.type or "null"):
                continue
            case ChangeKind.OPTIONAL if not column["required"]:
                continue
            case _:
                found.append(change)
    return found


def remembered(
    properties: Mapping[str, str], before: Field, after: Field, changes: Sequence[SchemaChange]
) -> dict[str, str]:
    """The property that tells of former names and versions of columns, if these changes made some."""
    history = ColumnHistory.of(properties)
    names, versions = dict(history.names), dict(history.versions)
    noted = [change for change in changes if change.kind in (ChangeKind.RENAME, ChangeKind.VERSION)]
    for change in noted:
        column = find_field(before, change.path)
        assert column is not None  # else the change was refused
        if change.kind is ChangeKind.RENAME:
            names[column["id"]] = (*names.get(column["id"], ()), change.path[-1])
        else:  # added beside it: in the struct, which may have another name by now
            struct = find_field(before, change.path[:-1])
            (made,) = (f["id"] for parent, f in _walk(after) if (parent, f["name"]) == (_id(struct), change.name))
            versions[column["id"]] = (*versions.get(column["id"], ()), made)
    return {HISTORY: ColumnHistory(names, versions).to_json()} if noted else {}


def find_field(schema: Field, path: Sequence[str]) -> Field | None:
    """The column that a path leads to: struct fields by name, `element` into a list, `key` or `value` into a map."""
    found: Field | None = {"type": schema}
    for part in path:
        if found is None:
            return None
        found = next((field for field in _members(found["type"]) if field["name"] == part), None)
    return found


def _id(field: Field | None) -> int | None:
    return None if field is None else field.get("id")


def _members(type_: Any) -> Sequence[Field]:
    if isinstance(type_, str):
        return ()
    if type_["type"] == "struct":
        fields: Sequence[Field] = type_["fields"]
        return fields
    return [
        {"id": type_[f"{n}-id"], "name": n, "required": n == "key" or type_[f"{n}-required"], "type": type_[n]}
        for n in ("element", "key", "value") if n in type_
    ]  # fmt: skip


def _walk(type_: Any, parent: int | None = None) -> Iterator[tuple[int | None, Field]]:
    """All columns of a schema, with the id of the one that they are part of."""
    for field in _members(type_):
        yield parent, field
        yield from _walk(field["type"], field["id"])
