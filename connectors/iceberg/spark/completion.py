"""Rows with unavailable values become whole rows: what the source did not send is joined from the table, in Spark."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.spark.commit_request import CommitRequest
from connectors.iceberg.spark.errors import TableUnsuitableError
from connectors.iceberg.spark.iceberg_java import JavaTable
from connectors.iceberg.spark.sql_names import quoted
from connectors.iceberg.spark.staged_rows import content_file, staged_relation
from connectors.iceberg.spark.table_metadata import TableMetadata
from connectors.iceberg.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_FOUND: Final = "__connect_py_found"


class Completion:
    """For one attempt at a commit."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        table: JavaTable,
        metadata: TableMetadata,
        request: CommitRequest,
        target: str | None,
        stack: ExitStack,
    ) -> None:
        """See `CycleRows`."""
        self._spark = spark
        self._catalog = catalog
        self._table = table
        self._metadata = metadata
        self._request = request
        self._target = target
        self._stack = stack
        self.unmatched = 0

    def complete(self, files: Sequence[StagedFile]) -> tuple[list[Any], dict[str, str]]:
        """Write whole rows for files of kind PATCHES; returns Java's data files and members of the summary.

        Raises:
            TableUnsuitableError: A required column would be null.
        """
        groups: dict[tuple[frozenset[str], bool], list[StagedFile]] = {}
        for file in files:
            if file.kind is StagedKind.PATCHES:
                groups.setdefault((self._lacking(file), file.optional), []).append(file)
        frames = [self._whole(group, lacking, optional) for (lacking, optional), group in groups.items()]
        if not frames:
            return [], {}
        return self._write(reduce(lambda one, other: one.unionByName(other), frames)), {}

    def _lacking(self, file: StagedFile) -> frozenset[str]:
        """Present names of the columns that a file lacks, without those that are gone."""
        ids = self._metadata.column_ids(file.schema_id)
        names = self._metadata.names_by_id()
        return frozenset(names[ids[name]] for name in file.unavailable if ids.get(name) in names)

    def _whole(self, files: Sequence[StagedFile], lacking: frozenset[str], optional: bool) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        relation = self._stack.enter_context(staged_relation(self._table, [content_file(file) for file in files]))
        rows = self._spark.table(relation).alias("s")
        names = self._metadata.column_names()
        if self._target is None:
            self._count_unmatched(sum(file.rows for file in files), lacking, optional)
            empty = [
                F.lit(None).cast(rows.schema[n].dataType).alias(n) if n in lacking else F.col(quoted(n)) for n in names
            ]
            return rows.select(*empty).where(F.lit(not optional))
        keys = self._request.key_columns
        read = [F.col(quoted(name)) for name in names if name in keys or name in lacking]
        target = self._spark.table(self._target).select(*read, F.lit(True).alias(_FOUND)).alias("t")
        condition = reduce(
            lambda one, other: one & other, [F.col(f"s.{quoted(key)}") == F.col(f"t.{quoted(key)}") for key in keys]
        )
        joined = rows.join(target, condition, "inner" if optional else "left")
        if lacking and not optional:
            missing = joined.where(F.col(f"t.{_FOUND}").isNull()).count()
            self._count_unmatched(missing, lacking, optional)
        taken = [F.col(f"{'t' if name in lacking else 's'}.{quoted(name)}") for name in names]
        return joined.select(*taken)

    def _count_unmatched(self, rows: int, lacking: frozenset[str], optional: bool) -> None:
        if optional or not rows or not lacking:
            return
        self.unmatched += rows
        required = {field["name"] for field in self._metadata.schema["fields"] if field["required"]} & lacking
        if required:
            raise TableUnsuitableError(
                self._request.table,
                f"{rows} rows lack a value that the source did not send, for the required column {min(required)}, and "
                "the table does not have these rows",
            )
        log.warning(
            "table %s: %d rows have values that the source did not send, and that the table does not have: they are "
            "null", self._request.table, rows, extra={"action": "values_unavailable", "table": self._request.table},
        )  # fmt: skip

    def _write(self, rows: DataFrame) -> list[Any]:
        folder = f"{self._request.file_prefix}{self._request.commit_id}-made"
        return self._table.write(rows, f"written_{uuid.uuid4().hex}", folder, {})
