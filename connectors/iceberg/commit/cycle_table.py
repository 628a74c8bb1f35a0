"""`CycleTable`: the table of one attempt at a commit, and how the modules of its cycle read and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.staged_rows import content_file, extra_columns
from connectors.iceberg.protocol.commit_request import MAIN, CommitRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.schema.table import StagedFile, StagedKind
from connectors.iceberg.staging.types import ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class CycleTable:
    """Reads through relations that the stack owns."""

    spark: SparkSession
    catalog: str  # its name
    table: JavaTable
    metadata: TableMetadata
    request: CommitRequest
    target: str | None  # the scratch branch, with the rows of the head; None: the table has none, or none that count
    stack: ExitStack

    @property
    def java(self) -> JavaClasses:
        return self.table.java

    @property
    def branches(self) -> frozenset[str]:
        """Of the table, without main."""
        return frozenset(self.metadata.refs.keys() - self.metadata.tags - {MAIN})

    @property
    def keys(self) -> Sequence[str]:
        return self.request.key_columns

    @property
    def truncated(self) -> bool:
        """Whether the rows of before this cycle do not count."""
        return any(file.kind is StagedKind.TRUNCATES for file in self.request.files)

    @property
    def ordered(self) -> bool:
        """Whether rows tell their order in a column of the table."""
        return self.request.ordered and ORDER in self.metadata.column_names()

    def staged(self, files: Sequence[StagedFile]) -> DataFrame:
        """The rows of staged files, with the columns that the table does not have."""
        relation = self.table.staged([content_file(file) for file in files], extra_columns())
        return self.spark.table(self.stack.enter_context(relation))

    def own_columns(self, rows: DataFrame) -> DataFrame:
        """The table's own columns: relations of staged files in format 3 show those of row lineage as well."""
        return rows.select(*map(quoted, self.metadata.column_names()))

    def write(self, rows: DataFrame) -> list[Any]:
        """Java's data files with these rows, to which no snapshot refers."""
        return self.table.write(self.own_columns(rows), self._folder)

    def write_open_pairs(self, rows: DataFrame) -> Any:
        """A file of rows with the columns of staged files; every column may be null."""
        extra = extra_columns()
        lacking = [field for field in extra if field["name"] not in rows.columns]
        missing = [f"cast(NULL AS {field['type']}) AS {field['name']}" for field in lacking]
        return self.write_unbound(rows.selectExpr("*", *missing), extra)

    def write_unbound(self, rows: DataFrame, extra: Sequence[Mapping[str, Any]]) -> Any:
        """A file of rows with columns that the table does not have; every column may be null."""
        names = [*self.metadata.column_names(), *(field["name"] for field in extra)]
        (file,) = self.table.write_unbound(rows.select(*map(quoted, names)).coalesce(1), self._folder, extra)
        return file

    @property
    def _folder(self) -> str:
        return f"{self.request.file_prefix}{self.request.commit_id}-made"
