"""The rows in which two snapshots of a table differ. `compare` runs in the Spark driver; Spark reads and compares.

Both states are read as SQL reads them, deletes applied, and grouped by their key. Without a key equal rows are counted
in both. Iceberg's own view of changes refuses tables with row-level deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.history.state_columns import ColumnChanges, Field, as_later, comparable
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.spark.sql_names import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connectors.iceberg.spark.lake_session import LakeSession


class RowChange(Enum):
    """What became of a key, or of a row where there is no key."""

    INSERTED = "inserted"
    UPDATED = "updated"
    DELETED = "deleted"
    SEVERAL_ROWS = "several rows"  # of one key in one state, so that no row of the other is its counterpart


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """What is compared, and what is wanted of it."""

    before: int  # snapshots
    after: int
    keys: tuple[str, ...] = ()  # columns of the second snapshot; empty: rows are compared whole, as often as they occur
    limit: int = 20  # rows that come back
    parquet: str | None = None  # folder that gets all of them
    table: str | None = None  # new table that gets all of them


@dataclass(frozen=True, slots=True)
class TableDiff:
    """How two snapshots differ."""

    request: DiffRequest
    counts: Mapping[RowChange, int]
    columns: ColumnChanges
    rows: Sequence[Mapping[str, Any]]  # the first ones, as JSON has them
    sql: str

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        request = self.request
        return {
            "before": request.before, "after": request.after, "keys": list(request.keys),
            "counts": {change.value.replace(" ", "_"): self.counts.get(change, 0) for change in RowChange},
            "columns": asdict(self.columns), "rows": list(self.rows), "parquet": request.parquet,
            "table": request.table, "sql": self.sql,
        }  # fmt: skip


def read_metadata(session: LakeSession, name: str) -> TableMetadata:
    """What the catalog says of a table now."""
    return session.table(name).metadata()


def compare(session: LakeSession, name: str, request: DiffRequest) -> TableDiff:
    """Compare two snapshots of a table.

    Raises:
        TableUnsuitableError: A key column is missing in one of them, or the output exists.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    metadata = read_metadata(session, name)
    before, after = (metadata.schema_of(number)["fields"] for number in (request.before, request.after))
    _check_keys(name, request.keys, before, after)
    relation = session.relation(name)
    types = {each.name: each.dataType for each in session.spark.sql(_state("*", relation, request.after)).schema}
    statement = _statement(relation, request, as_later(before, after, types), after)
    changes = session.spark.sql(statement).persist()
    try:
        counted = changes.groupBy("change").agg(F.sum("times").alias("times")).collect()
        if request.parquet is not None:
            changes.drop(*_unwanted(request)).write.parquet(request.parquet)
        if request.table is not None:
            changes.drop(*_unwanted(request)).writeTo(session.relation(request.table)).using("iceberg").create()
        rows = _first(changes, request)
    finally:
        changes.unpersist()
    counts = {RowChange(row["change"]): int(row["times"]) for row in counted}
    return TableDiff(request, counts, ColumnChanges.between(before, after), rows, statement)


def _check_keys(name: str, keys: Iterable[str], before: Sequence[Field], after: Sequence[Field]) -> None:
    new, old = {each["name"]: each["id"] for each in after}, {each["id"] for each in before}
    for key in keys:
        if key not in new:
            raise TableUnsuitableError(name, f"the second snapshot has no column {key}, which is part of the key")
        if new[key] not in old:
            raise TableUnsuitableError(name, f"the first snapshot has no column {key} yet, which is part of the key")


def _unwanted(request: DiffRequest) -> tuple[str, ...]:
    """Columns of the statement that say nothing: a key's change happens once, and a row is its own key."""
    return ("times",) if request.keys else ("key", "changed")


def _first(changes: DataFrame, request: DiffRequest) -> list[dict[str, Any]]:
    first = changes.orderBy("change", "key").limit(request.limit).drop(*_unwanted(request))
    text = first.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS text")
    return [json.loads(row["text"]) for row in text.collect()]


def _statement(relation: str, request: DiffRequest, expressions: Mapping[str, str], after: Sequence[Field]) -> str:
    """SQL that finds the changes; a user can run it as it is."""
    row = {each["name"]: each["type"] for each in after}
    names = request.keys or tuple(row)
    old = {name: expressions[name] for name in row}
    new = {name: quoted(name) for name in row}
    states = [
        _state(f"{side} AS side, {_struct(names, columns, row)} AS key, {_struct(row, columns)} AS row", relation, at)
        for side, columns, at in ((0, old, request.before), (1, new, request.after))
    ]
    grouped = (
        "SELECT key, count_if(side = 0) AS befores, count_if(side = 1) AS afters,\n"
        "    any_value(row) FILTER (WHERE side = 0) AS before, any_value(row) FILTER (WHERE side = 1) AS after\n"
        f"  FROM (\n    {states[0]}\n    UNION ALL\n    {states[1]})\n  GROUP BY key"
    )
    if not request.keys:
        return (
            "SELECT IF(afters > befores, 'inserted', 'deleted') AS change, abs(afters - befores) AS times, key,\n"
            "  array() AS changed, before, after\n"
            f"FROM (\n  {grouped})\nWHERE befores <> afters"
        )
    sides = [[comparable(f"{side}.{quoted(name)}", kind) for name, kind in row.items()] for side in ("before", "after")]
    changed = ", ".join(f"IF({a} <=> {b}, NULL, {literal(name)})" for name, a, b in zip(row, *sides, strict=True))
    return (
        "SELECT CASE WHEN befores > 1 OR afters > 1 THEN 'several rows' WHEN befores = 0 THEN 'inserted'\n"
        "    WHEN afters = 0 THEN 'deleted' ELSE 'updated' END AS change, 1L AS times, key,\n"
        "  IF(befores = 1 AND afters = 1, changed, array()) AS changed, before, after\n"
        f"FROM (SELECT *, array_compact(array({changed})) AS changed FROM (\n  {grouped}))\n"
        "WHERE befores <> 1 OR afters <> 1 OR size(changed) > 0"
    )


def _state(columns: str, relation: str, snapshot: int) -> str:
    return f"SELECT {columns} FROM {relation} VERSION AS OF {snapshot}"


def _struct(names: Iterable[str], columns: Mapping[str, str], kinds: Mapping[str, Any] | None = None) -> str:
    """A struct of columns; with their types in a form that can be compared."""
    made = ((name, columns[name] if kinds is None else comparable(columns[name], kinds[name])) for name in names)
    return f"named_struct({', '.join(f'{literal(name)}, {value}' for name, value in made)})"
