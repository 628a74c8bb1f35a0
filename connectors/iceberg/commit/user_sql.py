"""Support for user SQL and user functions in commits: input views, output checks, and errors."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JNetworkError

from connect_py.api.errors import ConnectError
from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.catalog.java_errors import is_statement_error, java_exception_of
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.change_builder import merge_sources, replaced_rows
from connectors.iceberg.config.maintenance_policy import CREATED_PROPERTIES
from connectors.iceberg.conversion.output_columns import judge
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    SchemaChangesPendingError,
    TableUnsuitableError,
)
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_BY_PATH: Final = "spark.sql.runSQLOnFiles"
_SHOWN: Final = 3  # maximum number of keys in an error message


class SchemaEvolvedError(StaleAttemptError):
    """A rule added columns to the table. The commit starts over."""


# --- views


def rows_changed(attempt: Attempt) -> DataFrame:
    """Return the rows that the commit inserts or updates."""
    return attempt.added_rows() if attempt.rows.added else attempt.head_rows().limit(0)


def keys_deleted(attempt: Attempt) -> DataFrame:
    """Return the keys that the commit removes."""
    files = [f for f in attempt.request.files if f.path and f.kind is StagedKind.DELETES]
    rows = attempt.staged(files) if files else attempt.head_rows().limit(0)
    return rows.select(*map(quoted, attempt.keys or attempt.metadata.column_names()))


def rows_removed(attempt: Attempt) -> DataFrame:
    """Return the rows that the commit removes or replaces."""
    if attempt.strategy is EngineName.OVERWRITE:
        return attempt.head_rows()
    sources = merge_sources(attempt) if attempt.target is not None else []
    if not sources:
        return attempt.head_rows().limit(0)
    columns, relation = attempt.metadata.column_names(), attempt.recorded.relation
    return attempt.spark.sql(
        replaced_rows(relation, columns, attempt.keys, sources, attempt.rows.order)
    )


def rows_after(attempt: Attempt) -> DataFrame:
    """Return the rows of the table after the commit.

    Recorded files are read through metadata that exists only in this JVM.
    """
    changed = rows_changed(attempt)
    if attempt.strategy is EngineName.OVERWRITE:
        return changed
    is_recorded = attempt.change.recorded is not None
    rows = attempt.rows_after_change() if is_recorded else attempt.head_rows()
    return rows if attempt.strategy is EngineName.FULL_MERGE else rows.unionByName(changed)


@contextmanager
def without_paths(spark: SparkSession) -> Iterator[None]:
    """Prevent SQL in the `with` block from reading files by path."""
    by_path = spark.conf.get(_BY_PATH, "true")
    spark.conf.set(_BY_PATH, "false")
    try:
        yield
    finally:
        spark.conf.set(_BY_PATH, str(by_path))


@contextmanager
def as_views(spark: SparkSession, views: Mapping[str, DataFrame]) -> Iterator[None]:
    """Register rows as temporary views within the `with` block."""
    try:
        for name, rows in views.items():
            rows.createOrReplaceTempView(name)
        yield
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


# --- columns and keys of the output


def last_named(rows: DataFrame) -> DataFrame:
    """If columns have the same name, ignoring case, drop all but the last of them.

    As a result, `SELECT *, price * 2 AS doubled FROM staged` returns the same columns before and
    after `doubled` is added to the table.
    """
    indexes = {name.lower(): index for index, name in enumerate(rows.columns)}
    if len(indexes) == len(rows.columns):
        return rows
    names = [
        name if indexes[name.lower()] == index else f"__{index}"
        for index, name in enumerate(rows.columns)
    ]
    return rows.toDF(*names).select(*(quoted(names[index]) for index in indexes.values()))


def iceberg_fields(catalog: JavaCatalog, rows: DataFrame) -> list[dict[str, Any]]:
    """Return the columns of a DataFrame as optional fields in Iceberg's schema JSON.

    A column without a type becomes a string.
    """
    from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

    untyped = [each.name for each in rows.schema.fields if each.dataType.typeName() == "void"]
    if untyped:
        rows = rows.withColumns({name: F.col(quoted(name)).cast("string") for name in untyped})
    schema = catalog.java.iceberg("spark.SparkSchemaUtil").convert(rows._jdf.schema())
    document = json.loads(catalog.java.iceberg("SchemaParser").toJson(schema))
    return [{**each, "required": False} for each in document["fields"]]


def create_for(
    catalog: JavaCatalog,
    name: str,
    fields: Sequence[Mapping[str, Any]],
    properties: Mapping[str, str],
) -> JavaTable:
    """Load a table. If it does not exist, create it with these columns first."""
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
    if catalog.create(name, schema, None, {**CREATED_PROPERTIES, **properties}):
        log.info("created table %s", name, extra={"action": "table_created", "table": name})
    return catalog.load(name)


def required_changes(
    request: CommitRequest,
    setting: str,
    table: JavaTable,
    fields: Sequence[Mapping[str, Any]],
    *,
    begins: bool,
) -> list[SchemaChange]:
    """Return the schema changes that a table requires for these columns.

    Args:
        request: The commit request, with the evolution policy.
        setting: The setting whose SQL or function returned the columns, for messages.
        table: The table.
        fields: The columns that the SQL or function returned.
        begins: True if the sink creates the table, which then gets all columns (see `judge`).

    Raises:
        TableUnsuitableError: The evolution policy or Iceberg does not allow a change.
        SchemaChangesPendingError: A change requires approval.
    """
    columns = judge(table.metadata().schema["fields"], fields, request.evolution, begins=begins)
    for change, reason in columns.refuse:
        if change.kind is ChangeKind.ADD and not reason:
            reason = (
                f"{setting} returns column {change.path[0]}, which the table does not have: add it "
                f"to the table first"
            )
        else:
            reason = f"the result of {setting} does not fit the table: cannot {change}{reason}"
        raise TableUnsuitableError(request.table, f"{reason}; nothing is committed")
    if columns.hold:
        raise SchemaChangesPendingError(table.name, columns.hold)
    for change in columns.ignore:
        if change.kind is ChangeKind.ADD:
            _warn_once(table.name, change.path[0], setting)
    return columns.apply


@lru_cache(500)
def _warn_once(table: str, column: str, setting: str) -> None:
    """Log once that a column is dropped."""
    log.warning(
        "table %s: column %s from %s is dropped because of iceberg.ext.evolution.add-column",
        table,
        column,
        setting,
        extra={"action": "column_left_out", "table": table},
    )


def in_columns_of(rows: DataFrame, table: JavaTable) -> DataFrame:
    """Return rows with exactly the columns of a table, in its order.

    Columns that are missing from the rows are null.
    """
    from pyspark.sql import functions as F  # noqa: N812 - local: the coordinator has no Spark

    columns = {name.lower(): F.col(quoted(name)) for name in rows.columns}
    names = table.metadata().column_names()
    return rows.select([columns.get(name.lower(), F.lit(None)).alias(name) for name in names])


@contextmanager
def checked(table: str, setting: str, keys: Sequence[str], rows: DataFrame) -> Iterator[None]:
    """Check the keys of the rows that a query or function returned.

    The rows are cached within the `with` block.

    Raises:
        TableUnsuitableError: A key is null or duplicate.
    """
    if not keys:
        yield
        return
    columns = [quoted(key) for key in keys]
    has_null = " OR ".join(f"{column} IS NULL" for column in columns)
    rows.persist()
    try:
        counts = rows.groupBy(*columns).count()
        invalid = counts.where(f"count > 1 OR {has_null}").limit(_SHOWN).collect()
        if invalid:
            examples = ", ".join(str(tuple(row[key] for key in keys)) for row in invalid)
            raise TableUnsuitableError(
                table,
                f"{setting} returns null keys or several rows with the same key ({examples}); "
                f"nothing is committed",
            )
        yield
    finally:
        rows.unpersist()


# --- errors


@contextmanager
def naming(table: str, setting: str) -> Iterator[None]:
    """Add the name of a setting to errors from its user code in the `with` block.

    This includes errors from lazy execution. Storage errors are not changed.
    """
    try:
        yield
    except (ConnectError, StaleAttemptError, Py4JNetworkError, ConnectionError):
        raise
    except Exception as error:
        error.add_note(f"while {setting} ran")  # shown if a deadline interrupts the code
        from pyspark.errors import PySparkException  # local: the coordinator has no Spark

        if isinstance(error, PySparkException) and error.getCondition() == "CANNOT_OPEN_SOCKET":
            raise CatalogUnavailableError(
                f"{table}: {setting}: Spark did not respond: {_reason(error)}"
            ) from error
        if java_exception_of(error) is not None and not is_statement_error(error):
            raise
        raise TableUnsuitableError(
            table, f"{setting} failed, so nothing is committed: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Return the first line of Spark's message, or the error with its line in the user code."""
    if (exception := java_exception_of(error)) is not None:
        return str(exception.getMessage() or "").split("\n", 1)[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    file_name = last.filename.rpartition("/")[2]
    return f"{type(error).__name__}: {error} ({last.name}, line {last.lineno} of {file_name})"
