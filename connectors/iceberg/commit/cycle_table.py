"""`CycleTable`: the table of one attempt at a commit, and how the modules of its cycle read and
write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.catalog.recorded_table import RecordedTable
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.staged_rows import content_file, extra_columns
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MERGES = (EngineName.MERGE, EngineName.FULL_MERGE)


class CycleTable:
    """The table at one head, its staged files, and the files that the attempt writes.

    Reads go through relations that the stack owns.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        table: JavaTable,
        request: CommitRequest,
        strategy: EngineName,
        stack: ExitStack,
    ) -> None:
        """Read nothing yet.

        Args:
            spark: The session of the commit.
            catalog: Name of the catalog in the session.
            table: The loaded table.
            request: The request, resolved for the loaded metadata.
            strategy: How the commit changes the table.
            stack: Closes the relations.
        """
        self.spark = spark
        self.catalog = catalog
        self.table = table
        self.metadata: TableMetadata = table.metadata()
        self.request = request
        self.strategy = strategy
        self.stack = stack
        self.head: Snapshot | None = self.metadata.head(request.ref)
        self.written: list[str] = []  # locations of the files that this attempt wrote
        self.findings: dict[type, Any] = {}  # what rules noted, by class
        self.superseded: list[str] = []  # those whose rows were written again to other files

    @property
    def java(self) -> JavaClasses:
        """The Java classes of the session."""
        return self.table.java

    @cached_property
    def recorded(self) -> RecordedTable:
        """The table pinned at the head. A MERGE into it is recorded instead of committed."""
        return self.stack.enter_context(self.table.record(self.request.ref, self.folder))

    @property
    def target(self) -> str | None:
        """The relation of the rows at the head, or None if there are none or the commit replaces
        all of them."""
        return self.recorded.relation if self.strategy in _MERGES else None

    def head_rows(self) -> DataFrame:
        """Return the rows at the head, with the current columns."""
        return self.own_columns(self.spark.table(self.recorded.relation))

    @property
    def keys(self) -> Sequence[str]:
        """The key columns."""
        return self.request.key_columns

    @property
    def truncated(self) -> bool:
        """Whether the commit replaces all earlier rows."""
        return any(file.kind is StagedKind.TRUNCATES for file in self.request.files)

    @property
    def ordered(self) -> bool:
        """Whether a column of the table holds the order of the changes in the source."""
        return self.request.ordered and ORDER in self.metadata.column_names()

    def staged(self, files: Sequence[StagedFile]) -> DataFrame:
        """Return the rows of staged files, including the columns that the table does not have."""
        relation = self.table.staged([content_file(file) for file in files], extra_columns())
        return self.spark.table(self.stack.enter_context(relation))

    def relation_of(self, staged: Sequence[StagedFile], written: Sequence[Any]) -> str:
        """Return a relation of staged files and of Java data files that the attempt wrote."""
        files = [*map(content_file, staged), *map(self.table.content_file, written)]
        return self.stack.enter_context(self.table.staged(files))

    def own_columns(self, rows: DataFrame) -> DataFrame:
        """Return rows with the table's columns only: in format 3, relations also show columns of
        row lineage."""
        return rows.select(*map(quoted, self.metadata.column_names()))

    def write(self, rows: DataFrame) -> list[Any]:
        """Write rows and return their Java data files, which no snapshot references."""
        return self._remember(self.table.write(self.own_columns(rows), self.folder))

    def write_open_pairs(self, rows: DataFrame) -> Any:
        """Write a file of rows with the columns of staged files; every column may be null."""
        extra = extra_columns()
        lacking = [field for field in extra if field["name"] not in rows.columns]
        missing = [f"cast(NULL AS {field['type']}) AS {field['name']}" for field in lacking]
        return self.write_unbound(rows.selectExpr("*", *missing), extra)

    def write_unbound(self, rows: DataFrame, extra: Sequence[Mapping[str, Any]]) -> Any:
        """Write one file of rows with columns that the table does not have; every column may be
        null.

        Args:
            rows: The rows.
            extra: The additional columns, as fields of Iceberg's schema JSON.
        """
        names = [*self.metadata.column_names(), *(field["name"] for field in extra)]
        files = self.table.write_unbound(
            rows.select(*map(quoted, names)).coalesce(1), self.folder, extra
        )
        (file,) = self._remember(files)
        return file

    def supersede(self, files: Sequence[Any]) -> None:
        """Note that the rows of files that this attempt wrote join the table in other files."""
        self.superseded += [str(file.location()) for file in files]

    def _remember(self, files: list[Any]) -> list[Any]:
        self.written += [str(file.location()) for file in files]
        return files

    @property
    def folder(self) -> str:
        """The folder of the files that this commit writes. Rule 18 finds it by its prefix."""
        return f"{self.request.file_prefix}{self.request.commit_id}-made"
