"""Rows that differ between two snapshots of a table. `compare` runs in the Spark driver.

The rows of both snapshots are read with SQL, with deletes applied, and grouped by key. Without a
key, equal rows are counted in both snapshots. Iceberg's own changelog view does not support tables
with row-level deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import literal, quoted, relation
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.state_columns import (
    ColumnChanges,
    Field,
    comparable,
    in_later_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connectors.iceberg.driver.lake_session import LakeSession


class RowChange(Enum):
    """Kind of difference between rows with the same key or, without a key, between whole rows."""

    INSERTED = "inserted"
    UPDATED = "updated"
    DELETED = "deleted"
    # a snapshot has several rows with this key, so they cannot be matched with the other snapshot
    SEVERAL_ROWS = "several rows"


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """Snapshots to compare, and the output of the comparison."""

    before: int  # snapshot ID
    after: int  # snapshot ID
    # names of key columns in the later schema; if empty, whole rows are compared and counted
    keys: tuple[str, ...] = ()
    limit: int = 20  # maximum number of rows in the result
    parquet: str | None = None  # folder to which all rows are written
    table: str | None = None  # new table to which all rows are written


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Difference between two snapshots."""

    request: DiffRequest
    counts: Mapping[RowChange, int]
    columns: ColumnChanges
    rows: Sequence[Mapping[str, Any]]  # the first rows, as JSON values
    sql: str

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        request = self.request
        return {
            "before": request.before,
            "after": request.after,
            "keys": list(request.keys),
            "counts": {
                change.value.replace(" ", "_"): self.counts.get(change, 0) for change in RowChange
            },
            "columns": asdict(self.columns),
            "rows": list(self.rows),
            "parquet": request.parquet,
            "to_table": request.table,
            "sql": self.sql,
        }


def read_metadata(session: LakeSession, name: str) -> TableMetadata:
    """Return the current metadata of a table."""
    return session.table(name).metadata()


def compare(session: LakeSession, name: str, request: DiffRequest) -> TableDiff:
    """Compare two snapshots of a table.

    Raises:
        TableUnsuitableError: A key column is missing in a snapshot, or the output table exists.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    metadata = read_metadata(session, name)
    points = (request.before, request.after)
    before, after = (metadata.schema_of(number)["fields"] for number in points)
    later = later_schema(metadata, *points)["fields"]
    _check_keys(name, request.keys, later, dict(zip(points, (before, after), strict=True)))
    if request.table is not None and session.spark.catalog.tableExists(
        relation(session.catalog_name, request.table)
    ):
        raise TableUnsuitableError(
            request.table, "already exists; differences can only be written to a new table"
        )
    source = relation(session.catalog_name, name)
    state = session.spark.sql(
        _state("*", source, request.before if later == before else request.after)
    )
    types = {each.name: each.dataType for each in state.schema}
    sides = in_later_schema(before, later, types), in_later_schema(after, later, types)
    statement = _statement(source, request, sides, later)
    changes = session.spark.sql(statement).persist()
    try:
        counted = changes.groupBy("change").agg(F.sum("times").alias("times")).collect()
        if request.parquet is not None:
            changes.drop(*_redundant_columns(request)).write.parquet(request.parquet)
        if request.table is not None:
            changes.drop(*_redundant_columns(request)).writeTo(
                relation(session.catalog_name, request.table)
            ).using("iceberg").create()
        rows = _first(changes, request)
    finally:
        changes.unpersist()
    counts = {RowChange(row["change"]): int(row["times"]) for row in counted}
    return TableDiff(request, counts, ColumnChanges.between(before, after), rows, statement)


def later_schema(metadata: TableMetadata, before: int, after: int) -> Mapping[str, Any]:
    """Return the later of two snapshots' schemas. Its types can represent the values of both."""
    return max(
        (metadata.schema_of(number) for number in (before, after)),
        key=lambda each: int(each["schema-id"]),
    )


def _check_keys(
    name: str, keys: Iterable[str], later: Sequence[Field], columns: Mapping[int, Sequence[Field]]
) -> None:
    ids = {each["name"]: each["id"] for each in later}
    for key in keys:
        if key not in ids:
            raise TableUnsuitableError(
                name, f"column {key}, which is part of the key, does not exist"
            )
        for number, fields in columns.items():
            if ids[key] not in {each["id"] for each in fields}:
                raise TableUnsuitableError(
                    name, f"snapshot {number} does not have column {key}, which is part of the key"
                )


def _redundant_columns(request: DiffRequest) -> tuple[str, ...]:
    """Return the result columns that are redundant, depending on whether rows have a key."""
    return ("times",) if request.keys else ("key", "changed")


def _first(changes: DataFrame, request: DiffRequest) -> list[dict[str, Any]]:
    first = changes.orderBy("change", "key").limit(request.limit).drop(*_redundant_columns(request))
    rows = first.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS json")
    return [json.loads(row["json"]) for row in rows.collect()]


def _statement(
    source: str, request: DiffRequest, sides: Sequence[Mapping[str, str]], later: Sequence[Field]
) -> str:
    """Return the SQL query that finds the differences. Users can run it unchanged.

    Args:
        source: The table's name in SQL.
        request: The snapshots and the key.
        sides: Expressions for the columns of both snapshots in the later schema.
        later: The fields of the later schema.
    """
    row = {each["name"]: each["type"] for each in later}
    states = [
        _state(
            f"{side} AS side, {_struct(request.keys or row, columns, row)} AS key, "
            f"{_struct(row, columns)} AS row",
            source,
            at,
        )
        for side, (columns, at) in enumerate(
            zip(sides, (request.before, request.after), strict=True)
        )
    ]
    grouped = (
        "SELECT key, count_if(side = 0) AS befores, count_if(side = 1) AS afters,\n"
        "    any_value(row) FILTER (WHERE side = 0) AS before, any_value(row) FILTER (WHERE side = "
        "1) AS after\n"
        f"  FROM (\n    {states[0]}\n    UNION ALL\n    {states[1]})\n  GROUP BY key"
    )
    if not request.keys:
        return (
            "SELECT IF(afters > befores, 'inserted', 'deleted') AS change, abs(afters - befores) "
            "AS times, key,\n"
            "  array() AS changed, before, after\n"
            f"FROM (\n  {grouped})\nWHERE befores <> afters"
        )
    values = [
        [comparable(f"{side}.{quoted(name)}", kind) for name, kind in row.items()]
        for side in ("before", "after")
    ]
    changed = ", ".join(
        f"IF({a} <=> {b}, NULL, {literal(name)})" for name, a, b in zip(row, *values, strict=True)
    )
    return (
        "SELECT CASE WHEN befores > 1 OR afters > 1 THEN 'several rows' WHEN befores = 0 THEN "
        "'inserted'\n"
        "    WHEN afters = 0 THEN 'deleted' ELSE 'updated' END AS change, 1L AS times, key,\n"
        "  IF(befores = 1 AND afters = 1, changed, array()) AS changed, before, after\n"
        f"FROM (SELECT *, array_compact(array({changed})) AS changed FROM (\n  {grouped}))\n"
        "WHERE befores <> 1 OR afters <> 1 OR size(changed) > 0"
    )


def _state(columns: str, source: str, snapshot: int) -> str:
    return f"SELECT {columns} FROM {source} VERSION AS OF {snapshot}"


def _struct(
    names: Iterable[str], columns: Mapping[str, str], kinds: Mapping[str, Any] | None = None
) -> str:
    """Return a SQL struct of columns. It is comparable if `kinds` contains their types."""
    members = (
        (name, columns[name] if kinds is None else comparable(columns[name], kinds[name]))
        for name in names
    )
    return f"named_struct({', '.join(f'{literal(name)}, {value}' for name, value in members)})"
