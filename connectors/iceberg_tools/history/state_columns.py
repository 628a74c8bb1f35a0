"""Columns of two snapshots, matched by field ID and converted to the later schema.

Expressions are Spark SQL. Types are written as in Iceberg's schema JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Field = Mapping[str, Any]
IcebergType = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """Differences between the columns of two snapshots."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    retyped: tuple[str, ...] = ()  # includes columns with added or dropped nested fields

    @staticmethod
    def between(before: Sequence[Field], after: Sequence[Field]) -> ColumnChanges:
        old, new = {each["id"]: each for each in before}, {each["id"]: each for each in after}
        both = [(old[number], new[number]) for number in new if number in old]
        return ColumnChanges(
            tuple(each["name"] for number, each in new.items() if number not in old),
            tuple(each["name"] for number, each in old.items() if number not in new),
            tuple((a["name"], b["name"]) for a, b in both if a["name"] != b["name"]),
            tuple(b["name"] for a, b in both if a["type"] != b["type"]),
        )


def in_later_schema(
    fields: Sequence[Field],
    later: Sequence[Field],
    spark_types: Mapping[str, DataType],
    row: str = "",
) -> dict[str, str]:
    """Return expressions that convert a row to the columns of a later schema, by column name.

    A column that the snapshot lacks gets its initial default or null, as it does in every reader.
    """
    old = {each["id"]: each for each in fields}
    expressions = {}
    for new in later:
        name, spark_type = new["name"], spark_types[new["name"]]
        field = old.get(new["id"])
        if field is None:
            expressions[name] = _default(new, spark_type)
        else:
            expressions[name] = _converted(
                f"{row}{quoted(field['name'])}", field["type"], new["type"], spark_type, 0
            )
    return expressions


def comparable(expression: str, kind: IcebergType, depth: int = 0) -> str:
    """Return the expression in a form that Spark can compare, group, and sort.

    Maps are converted to sorted entries, and variants to JSON.
    """
    if not _has_uncomparable(kind):
        return expression
    if isinstance(kind, str):
        return f"to_json({expression})"
    x = f"c{depth}"
    if kind["type"] == "list":
        return f"transform({expression}, {x} -> {comparable(x, kind['element'], depth + 1)})"
    if kind["type"] == "map":
        key, value = (
            comparable(f"{x}.key", kind["key"], depth + 1),
            comparable(f"{x}.value", kind["value"], depth + 1),
        )
        return (
            f"array_sort(transform(map_entries({expression}), {x} -> struct({key} AS key, "
            f"{value} AS value)))"
        )
    parts = []
    for each in kind["fields"]:
        part = f"{expression}.{quoted(each['name'])}"
        parts.append(f"{literal(each['name'])}, {comparable(part, each['type'], depth)}")
    return f"IF({expression} IS NULL, NULL, named_struct({', '.join(parts)}))"


def _has_uncomparable(kind: IcebergType) -> bool:
    if isinstance(kind, str):
        return kind == "variant"
    if kind["type"] == "list":
        return _has_uncomparable(kind["element"])
    return kind["type"] == "map" or any(_has_uncomparable(each["type"]) for each in kind["fields"])


def _default(field: Field, spark_type: DataType) -> str:
    value, kind = field.get("initial-default"), spark_type.simpleString()
    if value is None or not isinstance(field["type"], str):
        return f"CAST(NULL AS {kind})"
    if field["type"] == "binary" or field["type"].startswith("fixed"):
        return f"unhex({literal(value)})"
    return f"CAST({literal(str(value))} AS {kind})"


def _converted(
    expression: str, before: IcebergType, after: IcebergType, spark_type: Any, depth: int
) -> str:
    """Convert a value of the earlier type to the later type. Fields are matched by ID."""
    if before == after:
        return expression
    if isinstance(before, str) or isinstance(after, str):
        return f"CAST({expression} AS {spark_type.simpleString()})"
    x = f"v{depth}"
    if after["type"] == "list":
        element = _converted(
            x, before["element"], after["element"], spark_type.elementType, depth + 1
        )
        return f"transform({expression}, {x} -> {element})"
    if after["type"] == "map":
        key = _converted(f"{x}.key", before["key"], after["key"], spark_type.keyType, depth + 1)
        value = _converted(
            f"{x}.value", before["value"], after["value"], spark_type.valueType, depth + 1
        )
        pairs = (
            f"transform(map_entries({expression}), {x} -> struct({key} AS key, {value} AS value))"
        )
        return f"map_from_entries({pairs})"
    types = {each.name: each.dataType for each in spark_type.fields}
    fields = in_later_schema(before["fields"], after["fields"], types, f"{expression}.")
    parts = ", ".join(f"{literal(name)}, {each}" for name, each in fields.items())
    return f"IF({expression} IS NULL, NULL, named_struct({parts}))"
