"""The two `MERGE INTO` statements. Their source is SQL text: a temporary view fails on copy-on-write tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.iceberg.spark.sql_names import quoted, same_key

_DELETED = "__connect_py_deleted"


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one relation that change the rows of their keys."""

    relation: str  # a name or a query in parentheses
    deletes: bool  # the rows of these keys go, and nothing comes for them


def delete_matched(target: str, keys: Sequence[str], sources: Sequence[Source]) -> str:
    """Remove the rows of these keys: what comes in their place is in the staged files already."""
    columns = ", ".join(map(quoted, keys))
    union = " UNION ALL ".join(f"SELECT {columns} FROM {source.relation}" for source in sources)
    return f"MERGE INTO {target} t USING ({union}) s ON {same_key(keys)} WHEN MATCHED THEN DELETE"


def full_merge(target: str, columns: Sequence[str], keys: Sequence[str], sources: Sequence[Source]) -> str:
    """Insert, update and delete by Spark alone: whatever the table's format and write mode."""
    selects = []
    for source in sources:
        listed = ", ".join(
            quoted(name) if name in keys or not source.deletes else f"NULL AS {quoted(name)}" for name in columns
        )
        selects.append(f"SELECT {listed}, {str(source.deletes).lower()} AS {_DELETED} FROM {source.relation}")
    assigned = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    names, values = ", ".join(map(quoted, columns)), ", ".join(f"s.{quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {target} t USING ({' UNION ALL '.join(selects)}) s ON {same_key(keys)} "
        f"WHEN MATCHED AND s.{_DELETED} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {assigned} "
        f"WHEN NOT MATCHED AND NOT s.{_DELETED} THEN INSERT ({names}) VALUES ({values})"
    )
