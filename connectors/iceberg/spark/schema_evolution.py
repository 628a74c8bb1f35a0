"""Changes of a table's schema, in one transaction, with a note of former names in a property of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.errors import TableUnsuitableError
from connectors.iceberg.spark.iceberg_java import JavaTable
from connectors.iceberg.spark.java_errors import is_a

HISTORY: Final = "connect-py.columns"
_ATTEMPTS: Final = 5
_REFUSED: Final = "org.apache.iceberg.exceptions.CommitFailedException"
_DEFAULTS_SINCE: Final = 3  # format version
Field = Mapping[str, Any]


def evolve(load: Callable[[], JavaTable], changes: Sequence[SchemaChange]) -> bool:
    """Make those changes that the table lacks; returns whether there were any.

    A commit of others in between makes us look again what is left to do. So does a catalog that refuses what it made.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _evolve_once(load(), changes)
        except Exception as error:
            if attempt == _ATTEMPTS - 1 or not is_a(error, _REFUSED):
                raise
    raise AssertionError("the last attempt returns or raises")


def _evolve_once(table: JavaTable, changes: Sequence[SchemaChange]) -> bool:
    metadata = table.metadata()
    before = metadata.schema
    transaction = table.transaction()
    update = table.update_schema(transaction)
    done = [c for c in changes if _apply(table, update, before, c, metadata.format_version)]
    if not done:
        return False
    update.commit()
    after = table.transaction_metadata(transaction).schema
    history = _history(metadata.properties.get(HISTORY), before, after, done)
    if history is not None:
        transaction.updateProperties().set(HISTORY, history).commit()
    transaction.commitTransaction()
    return True


def _apply(table: JavaTable, update: Any, schema: Field, change: SchemaChange, version: int) -> bool:
    path, found = change.path, find_field(schema, change.path)
    parent = _dotted(path[:-1]) if len(path) > 1 else None
    beside = None if change.name is None else find_field(schema, (*path[:-1], change.name))
    match change.kind:
        case ChangeKind.ADD:
            if found is not None:
                return False
            made = change.type or ""
            if change.default is None or version < _DEFAULTS_SINCE:
                update.addColumn(parent, path[-1], table.type(made))
            else:
                update.addColumn(parent, path[-1], table.type(made), None, table.literal(made, change.default))
            return True
        case ChangeKind.RENAME if beside is not None:
            return False
    if found is None:
        raise TableUnsuitableError(table.name, f"no column {_dotted(path)}")
    match change.kind:
        case ChangeKind.RENAME:
            update.renameColumn(_dotted(path), change.name)
        case ChangeKind.VERSION:
            if beside is not None:
                return False
            doc = f"Values of {path[-1]} since their type changed"
            update.addColumn(parent, change.name, table.type(change.type or ""), doc)
            if found["id"] not in (schema.get("identifier-field-ids") or ()):
                update.makeColumnOptional(_dotted(path))  # each row has its value in one version
        case ChangeKind.WIDEN:
            if found["type"] == json.loads(change.type or "null"):
                return False
            update.updateColumn(_dotted(path), table.type(change.type or ""))
        case _:
            if not found["required"]:
                return False
            update.makeColumnOptional(_dotted(path))
    return True


def _history(text: str | None, before: Field, after: Field, changes: Sequence[SchemaChange]) -> str | None:
    """What the property says about former names and versions of columns after these changes; None: as before."""
    history: dict[str, dict[str, list[Any]]] = json.loads(text) if text else {}
    changed = False
    for change in changes:
        if change.kind not in (ChangeKind.RENAME, ChangeKind.VERSION):
            continue
        found = find_field(before, change.path)
        assert found is not None  # else the change was refused
        key = str(found["id"])
        if change.kind is ChangeKind.RENAME:
            history.setdefault("names", {}).setdefault(key, []).append(change.path[-1])
        else:
            history.setdefault("versions", {}).setdefault(key, []).append(_version_id(before, after, change))
        changed = True
    return json.dumps(history, separators=(",", ":")) if changed else None


def _version_id(before: Field, after: Field, change: SchemaChange) -> int:
    """The id of a column added beside the one of this path, whose struct may have been renamed in the same change."""
    assert change.name is not None
    if len(change.path) == 1:
        made = find_field(after, (change.name,))
    else:
        struct = find_field(before, change.path[:-1])
        assert struct is not None
        renamed = _find_id(after, struct["id"])
        made = None if renamed is None else _member(renamed["type"], change.name)
    assert made is not None
    return int(made["id"])


def find_field(schema: Field, path: Sequence[str]) -> Field | None:
    """The column that a path leads to: struct fields by name, `element` into a list, `key` or `value` into a map."""
    at: Any = schema
    found: Field | None = None
    for part in path:
        found = _member(at, part)
        if found is None:
            return None
        at = found["type"]
    return found


def _member(type_: Any, name: str) -> Field | None:
    if not isinstance(type_, Mapping):
        return None
    match type_["type"]:
        case "struct":
            return next((field for field in type_["fields"] if field["name"] == name), None)
        case "list" if name == "element":
            return _inner(type_, name)
        case "map" if name in ("key", "value"):
            return _inner(type_, name)
    return None


def _inner(type_: Field, name: str) -> Field:
    required = name == "key" or type_[f"{name}-required"]
    return {"id": type_[f"{name}-id"], "name": name, "required": required, "type": type_[name]}


def _find_id(type_: Any, field_id: int) -> Field | None:
    if not isinstance(type_, Mapping):
        return None
    fields = type_["fields"] if type_["type"] == "struct" else [
        _inner(type_, name) for name in ("element", "key", "value") if name in type_
    ]  # fmt: skip
    for field in fields:
        found = field if field["id"] == field_id else _find_id(field["type"], field_id)
        if found is not None:
            return found
    return None


def _dotted(path: Sequence[str]) -> str:
    return ".".join(path)
