"""What is left to do of changes of a table's schema, and what the table remembers of them. Standard
library only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Final

from connectors.iceberg.conversion.column_history import HISTORY, ColumnHistory
from connectors.iceberg.conversion.full_names import Field, columns_inside
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange

_DEFAULTS_SINCE: Final = 3  # format version


def pending(
    table: str, schema: Field, format_version: int, changes: Sequence[SchemaChange]
) -> list[SchemaChange]:
    """The changes that a table with this schema lacks.

    Raises:
        TableUnsuitableError: A change is of a column that is not there.
    """
    found: list[SchemaChange] = []
    for change in changes:
        column = _find(schema, change.path)
        beside = None if change.name is None else _find(schema, (*change.path[:-1], change.name))
        if change.kind is ChangeKind.ADD:
            if column is None:
                known = change.default if format_version >= _DEFAULTS_SINCE else None
                found.append(dataclasses.replace(change, default=known))
            continue
        if change.kind is ChangeKind.RENAME and beside is not None:
            continue
        if column is None:
            raise TableUnsuitableError(table, f"no column {'.'.join(change.path)}")
        widened = change.kind is ChangeKind.WIDEN and column["type"] == json.loads(
            change.type or "null"
        )
        relaxed = change.kind is ChangeKind.OPTIONAL and not column["required"]
        if widened or relaxed or (change.kind is ChangeKind.VERSION and beside is not None):
            continue
        found.append(change)
        if change.kind is ChangeKind.VERSION and column["id"] not in (
            schema.get("identifier-field-ids") or ()
        ):
            # a row has its value in one version
            found.append(SchemaChange(ChangeKind.OPTIONAL, change.path))
    return found


def remembered(
    properties: Mapping[str, str], before: Field, after: Field, changes: Sequence[SchemaChange]
) -> dict[str, str]:
    """The property that tells of former names and versions of columns, if these changes made
    some."""
    history = ColumnHistory.of(properties)
    names, versions = dict(history.names), dict(history.versions)
    noted = [change for change in changes if change.kind in (ChangeKind.RENAME, ChangeKind.VERSION)]
    for change in noted:
        column = _find(before, change.path)
        assert column is not None  # else the change was refused
        if change.kind is ChangeKind.RENAME:
            names[column["id"]] = (*names.get(column["id"], ()), change.path[-1])
        else:  # added beside it: in the struct, which may have another name by now
            (now,) = (path for path, field in columns_inside(after) if field["id"] == column["id"])
            made = _find(after, (*now[:-1], change.name or ""))
            assert made is not None
            versions[column["id"]] = (*versions.get(column["id"], ()), made["id"])
    return {HISTORY: ColumnHistory(names, versions).to_json()} if noted else {}


def _find(schema: Field, path: Sequence[str]) -> Field | None:
    """The column that a path leads to: struct fields by name, `element` into a list, `key` or
    `value` into a map."""
    return dict(columns_inside(schema)).get(tuple(path))
