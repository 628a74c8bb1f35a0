"""Views of a commit for SQL of users: the table before and after it, and the rows that it
changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.commit.cycle_rows import merge_sources
from connectors.iceberg.commit.merge_statement import replaced_rows
from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.table.table import StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connectors.iceberg.commit.attempt import Attempt

_BY_PATH: Final = "spark.sql.runSQLOnFiles"


def rows_before(attempt: Attempt) -> DataFrame:
    """Return the rows at the head, with the current columns."""
    return attempt.cycle.head_rows()


def rows_changed(attempt: Attempt) -> DataFrame:
    """Return the rows that the commit adds, or replaces others with."""
    cycle, rows = attempt.cycle, attempt.rows
    if rows.is_empty:
        return cycle.head_rows().limit(0)
    return cycle.own_columns(cycle.spark.table(cycle.relation_of(rows.staged, rows.written)))


def keys_deleted(attempt: Attempt) -> DataFrame:
    """Return the keys that the commit removes."""
    cycle = attempt.cycle
    deletes = [
        file for file in cycle.request.files if file.path and file.kind is StagedKind.DELETES
    ]
    rows = cycle.staged(deletes) if deletes else cycle.head_rows().limit(0)
    return rows.select(*map(quoted, cycle.keys or cycle.metadata.column_names()))


def rows_removed(attempt: Attempt) -> DataFrame:
    """Return the rows that the commit removes or replaces."""
    cycle, before = attempt.cycle, rows_before(attempt)
    if cycle.strategy is EngineName.OVERWRITE:
        return before
    sources = merge_sources(cycle, attempt.rows) if cycle.target is not None else []
    if not sources:
        return before.limit(0)
    columns = cycle.metadata.column_names()
    statement = replaced_rows(
        cycle.recorded.relation, columns, cycle.keys, sources, attempt.rows.order
    )
    return cycle.spark.sql(statement)


def rows_after(attempt: Attempt) -> DataFrame:
    """Return the rows as the commit leaves them.

    What a MERGE recorded is shown through metadata that only this JVM knows.
    """
    cycle, changed = attempt.cycle, rows_changed(attempt)
    if cycle.strategy is EngineName.OVERWRITE:
        return changed
    merged = rows_before(attempt)
    if cycle.target is not None and not cycle.recorded.recording().is_empty:
        relation = cycle.stack.enter_context(cycle.table.show(cycle.recorded, cycle.request.ref))
        merged = cycle.own_columns(cycle.spark.table(relation))
    return merged if cycle.strategy is EngineName.FULL_MERGE else merged.unionByName(changed)


@contextmanager
def without_paths(spark: SparkSession) -> Iterator[None]:
    """A session that reads no file by its path."""
    by_path = spark.conf.get(_BY_PATH, "true")
    spark.conf.set(_BY_PATH, "false")
    try:
        yield
    finally:
        spark.conf.set(_BY_PATH, str(by_path))


@contextmanager
def as_views(spark: SparkSession, views: Mapping[str, DataFrame]) -> Iterator[None]:
    """Rows under names."""
    try:
        for name, rows in views.items():
            rows.createOrReplaceTempView(name)
        yield
    finally:
        for name in views:
            spark.catalog.dropTempView(name)
