"""The two `MERGE INTO` statements. Their source is SQL text: a temporary view fails on copy-on-write tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.iceberg.catalog.sql_names import quoted, same_key

_DELETED = "__connect_py_deleted"


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one relation that change the rows of their keys."""

    relation: str  # a name or a query in parentheses
    deletes: bool  # the rows of these keys go, and nothing comes for them


def delete_matched(target: str, keys: Sequence[str], sources: Sequence[Source], order: str | None = None) -> str:
    """Remove the rows of these keys: what comes in their place is in the staged files already.

    `order`: the column that tells the order of rows; a row that is later than its source stays.
    """
    columns = ", ".join(map(quoted, [*keys, order] if order else keys))
    union = " UNION ALL ".join(f"SELECT {columns} FROM {source.relation}" for source in sources)
    return f"MERGE INTO {target} t USING ({union}) s ON {_same(keys, order)} WHEN MATCHED THEN DELETE"


def replaced_rows(
    table: str, columns: Sequence[str], keys: Sequence[str], sources: Sequence[Source], order: str | None = None
) -> str:
    """The rows of a table that either `MERGE` removes or replaces. `order` as above."""
    names = ", ".join(f"t.{quoted(name)}" for name in columns)
    given = ", ".join(map(quoted, [*keys, order] if order else keys))
    union = " UNION ALL ".join(f"SELECT {given} FROM {source.relation}" for source in sources)
    return f"SELECT {names} FROM {table} t LEFT SEMI JOIN ({union}) s ON {_same(keys, order)}"


def full_merge(
    target: str, columns: Sequence[str], keys: Sequence[str], sources: Sequence[Source], order: str | None = None
) -> str:
    """Insert, update and delete by Spark alone: whatever the table's format and write mode. `order` as above."""
    selects = []
    given = {*keys, order}
    for source in sources:
        listed = ", ".join(
            quoted(name) if name in given or not source.deletes else f"NULL AS {quoted(name)}" for name in columns
        )
        selects.append(f"SELECT {listed}, {str(source.deletes).lower()} AS {_DELETED} FROM {source.relation}")
    assigned = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    names, values = ", ".join(map(quoted, columns)), ", ".join(f"s.{quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {target} t USING ({' UNION ALL '.join(selects)}) s ON {_same(keys, order)} "
        f"WHEN MATCHED AND s.{_DELETED} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {assigned} "
        f"WHEN NOT MATCHED AND NOT s.{_DELETED} THEN INSERT ({names}) VALUES ({values})"
    )


def last_deletes(deletes: str, upserts: str | None, keys: Sequence[str], order: str) -> str:
    """A source with one delete per key, for keys that are not upserted: a full MERGE takes each row once."""
    columns = ", ".join(f"d.{quoted(key)}" for key in keys)
    without = f" LEFT ANTI JOIN {upserts} u ON {same_key(keys, 'd', 'u')}" if upserts else ""
    newest = f"max(d.{quoted(order)}) AS {quoted(order)}"
    return f"(SELECT {columns}, {newest} FROM {deletes} d{without} GROUP BY {columns})"


def _same(keys: Sequence[str], order: str | None) -> str:
    later = f" AND NOT coalesce(t.{quoted(order)} > s.{quoted(order)}, false)" if order else ""
    return same_key(keys) + later
