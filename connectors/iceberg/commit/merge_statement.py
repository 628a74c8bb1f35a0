"""The `MERGE INTO` statements. Their sources are SQL text: a temporary view fails on copy-on-write
tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from connectors.iceberg.catalog.sql_names import literal, quoted, same_key

DUPLICATE_KEY: Final = "connect-py: a key is staged twice"  # in the message of a failed key check
_DELETED: Final = "__connect_py_deleted"
_COUNT: Final = "__connect_py_count"


@dataclass(frozen=True, slots=True)
class MergeSource:
    """A relation whose keys change rows of the table."""

    relation: str  # a name, or a query in parentheses
    deletes: bool  # the rows of these keys are removed without a replacement


def delete_matched(
    target: str,
    keys: Sequence[str],
    sources: Sequence[MergeSource],
    order: str | None = None,
    *,
    checks_keys: bool = False,
    in_one_task: bool = False,
) -> str:
    """Return the statement that removes the rows of the keys; the staged files already hold the new
    rows.

    Args: target: The recorded table. keys: The key columns. sources: The staged rows. order: The
        column that holds the order of rows; a row that is later than its source is kept. None: no
        order. checks_keys: Fail with `DUPLICATE_KEY` if a key is staged twice. in_one_task: Read
        the keys in one task, which saves a shuffle for small cycles.
    """
    source = _changed_keys(keys, sources, order)
    if checks_keys:
        columns = ", ".join(map(quoted, keys))
        hint = "/*+ COALESCE(1) */ " if in_one_task else ""
        counted = (
            f"SELECT {columns}, count(*) AS {_COUNT} FROM (SELECT {hint}{columns} FROM "
            f"({source})) GROUP BY {columns}"
        )
        source = (
            f"SELECT {columns} FROM ({counted}) WHERE assert_true({_COUNT} = 1, "
            f"{literal(DUPLICATE_KEY)}) IS NULL"
        )
    return (
        f"MERGE INTO {target} t USING ({source}) s ON {_same(keys, order)} WHEN MATCHED THEN DELETE"
    )


def replaced_rows(
    table: str,
    columns: Sequence[str],
    keys: Sequence[str],
    sources: Sequence[MergeSource],
    order: str | None,
) -> str:
    """Return a query of the rows of a table that either `MERGE` removes or replaces."""
    names = ", ".join(f"t.{quoted(name)}" for name in columns)
    source = _changed_keys(keys, sources, order)
    return f"SELECT {names} FROM {table} t LEFT SEMI JOIN ({source}) s ON {_same(keys, order)}"


def full_merge(
    target: str,
    columns: Sequence[str],
    keys: Sequence[str],
    sources: Sequence[MergeSource],
    order: str | None,
) -> str:
    """Return the statement that inserts, updates, and deletes, for every table format and write
    mode."""
    selects = []
    staged = {*keys, order}
    for source in sources:
        listed = ", ".join(
            quoted(name) if name in staged or not source.deletes else f"NULL AS {quoted(name)}"
            for name in columns
        )
        selects.append(
            f"SELECT {listed}, {str(source.deletes).lower()} AS {_DELETED} FROM {source.relation}"
        )
    assigned = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    names, values = (
        ", ".join(map(quoted, columns)),
        ", ".join(f"s.{quoted(name)}" for name in columns),
    )
    return (
        f"MERGE INTO {target} t USING ({' UNION ALL '.join(selects)}) s ON {_same(keys, order)} "
        f"WHEN MATCHED AND s.{_DELETED} THEN DELETE WHEN MATCHED THEN UPDATE SET {assigned} WHEN "
        f"NOT MATCHED AND NOT s.{_DELETED} THEN INSERT ({names}) VALUES ({values})"
    )


def last_deletes(deletes: str, upserts: str | None, keys: Sequence[str], order: str) -> str:
    """Return a source with one delete per key, for keys that are not upserted: a full MERGE takes
    each row once."""
    columns = ", ".join(f"d.{quoted(key)}" for key in keys)
    without = f" LEFT ANTI JOIN {upserts} u ON {same_key(keys, 'd', 'u')}" if upserts else ""
    newest = f"max(d.{quoted(order)}) AS {quoted(order)}"
    return f"(SELECT {columns}, {newest} FROM {deletes} d{without} GROUP BY {columns})"


def _changed_keys(keys: Sequence[str], sources: Sequence[MergeSource], order: str | None) -> str:
    columns = ", ".join(map(quoted, [*keys, order] if order else keys))
    return " UNION ALL ".join(f"SELECT {columns} FROM {source.relation}" for source in sources)


def _same(keys: Sequence[str], order: str | None) -> str:
    later = f" AND NOT coalesce(t.{quoted(order)} > s.{quoted(order)}, false)" if order else ""
    return same_key(keys) + later
