"""The columns of what a user's step returns, fitted to a table's."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.commit.pending_schema_changes import SchemaChangesPendingError
from connectors.iceberg.conversion.output_columns import judge
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connectors.iceberg.catalog.java_classes import JavaClasses
    from connectors.iceberg.protocol.commit_request import CommitRequest
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)


class SchemaEvolvedError(StaleAttemptError):
    """A rule added columns to the table; the commit starts over with them."""


def last_named(rows: DataFrame) -> DataFrame:
    """Rows without columns whose name comes again, whatever its case.

    So `SELECT *, price * 2 AS doubled FROM staged` means the same before and after the table has
    that column.
    """
    last = {name.lower(): place for place, name in enumerate(rows.columns)}
    if len(last) == len(rows.columns):
        return rows
    names = [
        name if last[name.lower()] == place else f"__{place}"
        for place, name in enumerate(rows.columns)
    ]
    kept = [quoted(name) for place, name in enumerate(names) if place in last.values()]
    return rows.toDF(*names).select(*kept)


def iceberg_fields(java: JavaClasses, rows: DataFrame) -> list[dict[str, Any]]:
    """The columns of rows, as optional fields of Iceberg's schema JSON; a column without a type is
    a text."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    untyped = [each.name for each in rows.schema.fields if each.dataType.typeName() == "void"]
    typed = (
        rows.withColumns({name: F.col(quoted(name)).cast("string") for name in untyped})
        if untyped
        else rows
    )
    schema = java.iceberg("spark.SparkSchemaUtil").convert(typed._jdf.schema())
    document = json.loads(java.iceberg("SchemaParser").toJson(schema))
    return [{**each, "required": False} for each in document["fields"]]


def wanted_changes(
    request: CommitRequest,
    key: str,
    metadata: TableMetadata,
    fields: Sequence[Mapping[str, Any]],
    *,
    begins: bool,
    of: str,
) -> list[SchemaChange]:
    """The changes that a table is to get for these columns.

    Args:
        request: With the policy.
        key: The setting that made the columns, for messages.
        metadata: Of the table.
        fields: The columns.
        begins: See `judge`.
        of: The table's name.

    Raises:
        TableUnsuitableError: The policy, or Iceberg, refuses one of them.
        SchemaChangesPendingError: Only a person may make them.
    """
    found = judge(metadata.schema["fields"], fields, request.evolution, begins=begins)
    for change, why in found.refuse:
        column = change.path[0]
        if change.kind is ChangeKind.ADD and not why:
            why = (
                f"{key} returns column {column}, which the table does not have: add it to the "
                f"table first"
            )
        else:
            why = f"for {key} the table would have to {change}{why}"
        raise TableUnsuitableError(request.table, f"{why}, nothing is committed")
    if found.hold:
        raise SchemaChangesPendingError(of, found.hold)
    for change in found.ignore:
        if change.kind is ChangeKind.ADD:
            _warn_left_out(of, change.path[0], key)
    return found.apply


@lru_cache(500)
def _warn_left_out(table: str, column: str, key: str) -> None:
    """Once for each of them."""
    log.warning(
        "table %s: column %s of %s is left out, as iceberg.ext.evolution.add-column says",
        table,
        column,
        key,
        extra={"action": "column_left_out", "table": table},
    )


def in_columns_of(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows with these columns in this order: null where they lack one, others are left out."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    there = {name.lower(): name for name in rows.columns}
    found = [
        F.col(quoted(there[name.lower()])).alias(name)
        if name.lower() in there
        else F.lit(None).alias(name)
        for name in names
    ]
    return rows.select(found)
