"""`Attempt`: one attempt to commit a cycle on top of one head of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.java_catalog import CHANGE_COLUMNS, JavaCatalog, JavaTable
from connectors.iceberg.catalog.sql_names import quoted
from connectors.iceberg.catalog.table_update import RecordedTable, StaleAttemptError, TableChange
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGES = (EngineName.MERGE, EngineName.FULL_MERGE)


@dataclass(frozen=True, slots=True)
class CycleRows:
    """The rows that an attempt adds, and the keys of the rows that it removes."""

    staged: Sequence[StagedFile] = ()  # files with complete rows, which are added unchanged
    deletes: Sequence[StagedFile] = ()  # files with the keys of the removed rows
    written: Sequence[Any] = ()  # Java data files that the attempt wrote
    order: str | None = None  # column with the source order of the changes
    has_unchecked_keys: bool = False  # True if the MERGE must check that no key is staged twice

    @property
    def added(self) -> Sequence[StagedFile | Any]:
        """Files whose rows are added."""
        return [*self.staged, *self.written]


class Attempt:
    """One attempt to commit a cycle on top of one head of the table.

    The commit steps and the commit rules (`CommitRule`) set the attributes. The exit stack closes
    every relation that the attempt reads.
    """

    def __init__(
        self,
        catalog: JavaCatalog,
        table: JavaTable,
        request: CommitRequest,
        strategy: tuple[EngineName, str],
        stack: ExitStack,
    ) -> None:
        """Create an attempt that has not read any rows.

        Args:
            catalog: The catalog of the table, with the Spark session.
            table: The loaded table.
            request: The commit request, as adjusted by the rules for the loaded metadata.
            strategy: The strategy for the commit, and the reason for this choice.
            stack: The exit stack that closes the relations that the attempt opens.
        """
        self.catalog = catalog
        self.spark = catalog.spark
        self.table = table
        self.metadata: TableMetadata = table.metadata()
        self.request = request
        self.strategy, self.reason = strategy
        self.head = self.metadata.head(request.ref)
        self.head_id: int | None = None if self.head is None else self.head["snapshot-id"]
        self.keys = list(request.key_columns)
        # True if the commit replaces all earlier rows.
        self.is_truncate = any(file.kind is StagedKind.TRUNCATES for file in request.files)
        # True if the changes have a source order and the table has a column for it.
        self.is_ordered = request.ordered and ORDER in self.metadata.column_names()
        # Folder for the files that this commit writes. A later epoch recognizes orphan files by the
        # folder's prefix (rule 18 of the commit protocol).
        self.folder = f"{request.file_prefix}{request.commit_id}-made"
        self._stack = stack
        self.rows = CycleRows()
        self.change = TableChange()
        self.target_ref = request.ref  # ref of the new snapshot; a rule may redirect it
        self.reads_table = False  # True if the rows or rule results depend on the rows at the head
        self.summary: dict[str, str] = {}  # summary entries of the new snapshot
        self.properties: dict[str, str] = {}  # table properties to set with the commit
        self.unmatched = 0  # number of completed rows that still lack a value
        # number of changes that were skipped because a truncate or the row in the table is newer
        self.older_changes = 0
        self.findings: dict[type, Any] = {}  # rule results, keyed by class
        self.written: list[str] = []  # locations of the files that this attempt wrote
        self.superseded: list[str] = []  # written files whose rows were written again

    # --- reading

    @cached_property
    def recorded(self) -> RecordedTable:
        """The table, pinned to its head. A MERGE into it is recorded instead of committed."""
        return self._stack.enter_context(self.table.record(self.request.ref, self.folder))

    @property
    def target(self) -> str | None:
        """The relation with the rows at the head, or None if the commit does not run a MERGE."""
        return self.recorded.relation if self.strategy in MERGES else None

    def head_rows(self) -> DataFrame:
        """Return the rows at the head, with the table's current columns."""
        return self.own_columns(self.spark.table(self.recorded.relation))

    def rows_after_change(self) -> DataFrame:
        """Return the table's rows with the recorded change applied."""
        relation = self._stack.enter_context(self.table.show(self.change, self.request.ref))
        return self.own_columns(self.spark.table(relation))

    def staged(self, files: Sequence[StagedFile]) -> DataFrame:
        """Return the rows of staged files, including columns that the table does not have."""
        return self.spark.table(self._stack.enter_context(self.table.staged(files, CHANGE_COLUMNS)))

    def relation_of(self, files: Sequence[StagedFile | Any]) -> str:
        """Return a relation with the rows of staged files and Java data files."""
        return self._stack.enter_context(self.table.staged(files))

    def added_rows(self) -> DataFrame:
        """Return the rows that the commit adds."""
        return self.own_columns(self.spark.table(self.relation_of(self.rows.added)))

    def own_columns(self, rows: DataFrame) -> DataFrame:
        """Return rows with only the table's columns.

        In format 3, relations also contain the row lineage columns.
        """
        return rows.select(*map(quoted, self.metadata.column_names()))

    # --- writing

    def write(self, rows: DataFrame) -> list[Any]:
        """Write rows and return the Java data files, which no snapshot references yet."""
        return self._remember(self.table.write(self.own_columns(rows), self.folder))

    def write_unbound(self, rows: DataFrame, extra: Sequence[Mapping[str, Any]]) -> Any:
        """Write one file with columns that the table does not have. Every column is optional.

        Args:
            rows: The rows.
            extra: The additional columns, as fields in Iceberg's schema JSON.
        """
        names = [*self.metadata.column_names(), *(field["name"] for field in extra)]
        rows = rows.select(*map(quoted, names)).coalesce(1)
        (file,) = self._remember(self.table.write_unbound(rows, self.folder, extra))
        return file

    def replace_rows(self, rows: DataFrame) -> None:
        """Write rows that replace the current rows of the attempt."""
        written = self.write(rows)
        self.superseded += [str(file.location()) for file in self.rows.written]
        self.rows = replace(self.rows, staged=[], written=written)

    def _remember(self, files: list[Any]) -> list[Any]:
        self.written += [str(file.location()) for file in files]
        return files

    # --- validity

    def check_valid_for(self, base: TableMetadata, request: CommitRequest) -> None:
        """Check that this attempt's change can be applied to newer metadata (rule 16).

        Raises:
            StaleAttemptError: The commit ref was redirected or rolled back, or it moved although
                the rows or the change depend on the head.
        """
        ref = self.request.ref
        if request.ref != ref:
            raise StaleAttemptError("commits that await approval were published or discarded")
        current = base.head(ref)
        if (None if current is None else current["snapshot-id"]) == self.head_id:
            return
        if self.head_id is not None and all(
            each["snapshot-id"] != self.head_id for each in base.ancestors(current)
        ):
            raise StaleAttemptError(f"{ref} was rolled back concurrently")
        if self.reads_table:
            raise StaleAttemptError(f"{ref} moved after its rows were read")
        if self.change.is_bound_to_head:
            raise StaleAttemptError(
                f"{ref} moved, and the MERGE is valid only for the head that it read"
            )
