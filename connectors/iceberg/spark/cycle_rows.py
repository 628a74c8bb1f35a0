"""`CycleRows`: the staged files of one cycle as data files of the table, and as sources of its `MERGE`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from connectors.iceberg.spark.commit_request import CommitRequest
from connectors.iceberg.spark.completion import Completion
from connectors.iceberg.spark.errors import DuplicateKeyError, TableUnsuitableError
from connectors.iceberg.spark.iceberg_java import JavaTable
from connectors.iceberg.spark.merge_statement import Source
from connectors.iceberg.spark.sql_names import quoted
from connectors.iceberg.spark.staged_rows import CHANGES, content_file, data_file, staged_relation
from connectors.iceberg.spark.table_metadata import TableMetadata
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.table import StagedFile, StagedKind, WriteMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_FILE = "__connect_py_file"
_NAMED = 3  # keys that an error message shows


class CycleRows:
    """For one attempt: prepared once, on one head."""

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
        """Read nothing yet.

        Args:
            target: The scratch branch, from which unavailable values are taken; None: the table has no rows.
            stack: Owns the relations of staged files, for as long as the statements run.
        """
        self._spark = spark
        self._catalog = catalog
        self._table = table
        self._metadata = metadata
        self._request = request
        self._target = target
        self._stack = stack
        self.data_files: list[Any] = []  # Java's
        self.written: list[Any] = []  # those of `data_files` that were written here
        self.changes: list[Source] = []  # what the MERGE reads
        self.properties: dict[str, str] = {}  # of the table, to be set with the commit
        self.summary: dict[str, str] = {}  # of the snapshot
        self.added_rows = 0
        self.unmatched = 0  # completed rows of which some value was found nowhere
        self.older = 0  # changes that came too late by the order that the source tells

    @property
    def reads_table(self) -> bool:
        """Whether the rows depend on what the table had at the head that was read."""
        return bool(self.written)

    def prepare(self, *, whole: bool) -> None:
        """Check keys, complete rows, and fill the members above. `whole`: the MERGE is to insert the rows itself.

        Raises:
            DuplicateKeyError: A key is staged twice, and nothing says which change is newer.
            TableUnsuitableError: A key is null, or the table lacks a key column.
        """
        files = [file for file in self._request.files if file.path]
        if self._request.mode is WriteMode.MERGE and files:
            self._check_key_columns()
            files = self._reduced(files)
        rows = [file for file in files if file.kind is StagedKind.ROWS]
        self.added_rows = sum(file.rows for file in rows)
        if self._request.mode is WriteMode.MERGE:
            self._complete([file for file in files if file.kind in (StagedKind.PATCHES, StagedKind.LEFT)])
            if self._target is not None:
                self._name_sources(files, whole=whole)
        if not whole:
            self.data_files = [data_file(self._table, self._metadata, file) for file in rows] + self.written

    def _check_key_columns(self) -> None:
        names = self._metadata.column_names()
        for key in self._request.key_columns:
            if key not in names:
                raise TableUnsuitableError(
                    self._request.table, f"has no key column {key} (any more): rename it back, or set other id-columns"
                )

    def _name_sources(self, files: Sequence[StagedFile], *, whole: bool) -> None:
        upserts = [content_file(file) for file in files if file.kind is StagedKind.ROWS]
        patches = [content_file(file) for file in files if file.kind is StagedKind.PATCHES]
        deletes = [content_file(file) for file in files if file.kind is StagedKind.DELETES]
        if whole:
            upserts += [self._table.content_file(file) for file in self.written]
        elif patches:
            upserts += patches  # only keys are read
        for found, removes in ((upserts, False), (deletes, True)):
            if found:
                self.changes.append(Source(self._relation(found), removes))

    def _relation(self, files: Sequence[Mapping[str, Any]]) -> str:
        return self._stack.enter_context(staged_relation(self._table, files))

    def _complete(self, files: Sequence[StagedFile]) -> None:
        if not files:
            return
        completion = Completion(
            self._spark, self._catalog, self._table, self._metadata, self._request, self._target, self._stack
        )
        self.written, self.summary = completion.complete(files)
        self.unmatched = completion.unmatched
        self.added_rows += sum(int(file.recordCount()) for file in self.written)

    # --- keys of several Kafka partitions

    def _reduced(self, files: Sequence[StagedFile]) -> list[StagedFile]:
        """The files with one change per key."""
        changes = [file for file in files if file.kind in CHANGES]
        if len({_kafka_partition(file) for file in changes}) > 1:
            self._check_duplicates(changes)
        return list(files)

    def _check_duplicates(self, files: Sequence[StagedFile]) -> None:
        """One aggregation over the staged keys."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        keys = [F.col(quoted(key)) for key in self._request.key_columns]
        rows = self._spark.table(self._relation([content_file(file) for file in files]))
        rows = rows.select(*keys, F.input_file_name().alias(_FILE))
        counted = rows.groupBy(*keys).agg(F.count("*").alias("changes"), F.collect_set(_FILE).alias("files"))
        found = counted.where("changes > 1")
        if not found.isEmpty():
            raise _not_ordered(self._request, found.limit(_NAMED + 1).collect())


def _kafka_partition(file: StagedFile) -> object:
    """The Kafka partition that a file's name tells; the path where it tells none."""
    name = StagedFileName.decode(file.path.rpartition("/")[2])
    return file.path if name is None else name.partition


def _not_ordered(request: CommitRequest, found: Sequence[Any]) -> DuplicateKeyError:
    told = []
    for row in found[:_NAMED]:
        key = tuple(row[name] for name in request.key_columns)
        names = [StagedFileName.decode(path.rpartition("/")[2]) for path in row["files"]]
        where = sorted({"?" if name is None else str(name.partition) for name in names})
        told.append(f"{key} in partitions {' and '.join(where)}")
    count = f"more than {_NAMED}" if len(found) > _NAMED else str(len(found))
    return DuplicateKeyError(
        request.table,
        f"{count} keys are staged more than once in one cycle, the first are {', '.join(told)}: nothing says which "
        "change is newer (iceberg.ext.ordering-columns would)",
    )
