"""Render the Spark SQL statement that creates a table, for display.

The sink itself creates tables through Iceberg's catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from connectors.iceberg.catalog.sql_names import literal, shown
from connectors.iceberg.coordinator.new_table import NewTable

# Iceberg types whose names differ in Spark SQL. Spark has no types for UUIDs and nanoseconds.
_TYPES: Final[Mapping[str, str]] = {
    "long": "bigint",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "uuid": "string /* uuid */",
    "timestamptz_ns": "timestamp /* ns */",
    "timestamp_ns": "timestamp_ntz /* ns */",
}
_TRANSFORMS: Final[Mapping[str, str]] = {
    "year": "years",
    "month": "months",
    "day": "days",
    "hour": "hours",
}


def create_statement(name: str, table: NewTable) -> str:
    """Return the `CREATE TABLE` statement, with one column per line."""
    columns = ",\n".join(f"  {each}" for each in _columns(table.schema["fields"]))
    parts = ", ".join(_partitions(table))
    properties = ", ".join(
        f"{literal(key)} = {literal(value)}" for key, value in sorted(table.properties.items())
    )
    lines = [f"CREATE TABLE {'.'.join(map(shown, name.split('.')))} (", columns, ") USING iceberg"]
    lines += [f"PARTITIONED BY ({parts})"] if parts else []
    lines += [f"TBLPROPERTIES ({properties})"] if properties else []
    return "\n".join(lines)


def _columns(fields: Any) -> Iterator[str]:
    for each in fields:
        yield (
            f"{shown(each['name'])} {_type(each['type'])}{' NOT NULL' if each['required'] else ''}"
        )


def _type(kind: Any) -> str:
    if isinstance(kind, str):
        return "binary" if kind.startswith("fixed") else _TYPES.get(kind, kind)
    if kind["type"] == "list":
        return f"array<{_type(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{_type(kind['key'])}, {_type(kind['value'])}>"
    members = ", ".join(f"{shown(each['name'])}: {_type(each['type'])}" for each in kind["fields"])
    return f"struct<{members}>"


def _partitions(table: NewTable) -> Iterator[str]:
    names = {each["id"]: each["name"] for each in table.schema["fields"]}
    for field in table.spec["fields"]:
        column, transform = shown(names.get(field["source-id"], field["name"])), field["transform"]
        kind, _, argument = transform.partition("[")
        if transform == "identity":
            yield column
        elif argument:
            yield f"{kind}({argument.rstrip(']')}, {column})"
        else:
            yield f"{_TRANSFORMS.get(transform, transform)}({column})"
