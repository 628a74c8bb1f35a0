"""`UnifiedView`: a table with versions of columns, seen as if each column had one type. Standard library only.

A row has a value in one version of a column at most, so the first that is not null is the row's value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from connectors.iceberg.evolution.column_history import ColumnHistory
from connectors.iceberg.evolution.type_fit import common_type
from connectors.iceberg.table import TableDescription

_SQL_TYPES = {
    "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "STRING", "boolean": "BOOLEAN",
    "binary": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class UnifiedView:
    """What the catalog needs to make the view."""

    schema: str  # Iceberg schema JSON of its columns
    sql: str  # in Spark's words

    @staticmethod
    def of(table: TableDescription) -> UnifiedView | None:
        """The view over a table; None when no column on its top level has versions."""
        history = ColumnHistory.of(table.properties)
        schema = json.loads(table.schema)
        fields: Sequence[Mapping[str, Any]] = schema["fields"]
        versions = {f["id"]: found for f in fields if (found := history.versions_of(f, fields))}
        if not versions:
            return None
        hidden = history.version_ids()
        columns, shown = [], []
        for field in fields:
            if field["id"] in hidden:
                continue
            if field["id"] not in versions:
                columns.append(_quoted(field["name"]))
                shown.append(field)
                continue
            column, type_ = _coalesced(field, versions[field["id"]])
            columns.append(f"{column} AS {_quoted(field['name'])}")
            shown.append({**field, "required": False, "type": type_, "initial-default": None, "write-default": None})
        name = ".".join(map(_quoted, table.name.split(".")))
        plain = [{k: v for k, v in field.items() if v is not None} for field in shown]
        return UnifiedView(
            json.dumps({"type": "struct", "schema-id": 0, "fields": plain}), f"SELECT {', '.join(columns)} FROM {name}"
        )


def _coalesced(base: Mapping[str, Any], versions: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The expression over all versions, the newest first, and its Iceberg type."""
    every = [base, *versions]
    readable = [_readable(f["type"]) for f in every]
    type_ = reduce(common_type, readable)
    parts = [_cast(field, type_) for field in reversed(every)]
    return f"coalesce({', '.join(parts)})", type_


def _readable(type_: Any) -> str:
    """The type as SQL can cast it: what Spark shows as text, or could only print, is a string here."""
    return type_ if isinstance(type_, str) and (type_ in _SQL_TYPES or _DECIMAL.fullmatch(type_)) else "string"


def _cast(field: Mapping[str, Any], type_: str) -> str:
    name = _quoted(field["name"])
    if not isinstance(field["type"], str):
        return f"to_json({name})"
    decimal = _DECIMAL.fullmatch(type_)
    wanted = f"DECIMAL({decimal[1]}, {decimal[2]})" if decimal else _SQL_TYPES[type_]
    return f"CAST({name} AS {wanted})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
