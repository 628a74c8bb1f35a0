"""From staged files to one snapshot, whatever stands in the way.

A commit is a compare-and-swap. The version that the caller read (table uuid, ledger snapshot, snapshot named by the
property) must still hold in the very transaction that lands; it is checked again in every retry.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.faults import fault_point
from connectors.iceberg.protocol.ledger import TableVersion, table_version
from connectors.iceberg.spark.append import AppendEngine
from connectors.iceberg.spark.catalog import TableCatalog, add_order, keeps_order
from connectors.iceberg.spark.commit_request import (
    MAIN,
    SNAPSHOT_ID,
    CommitCounts,
    CommitEngine,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineChoice,
    EngineName,
    TableState,
    as_it_went,
    choose_engine,
    holds_deletes,
    says_copy_on_write,
)
from connectors.iceberg.spark.delta import DeltaEngine
from connectors.iceberg.spark.errors import CatalogUnavailableError, TableError, TableUnsuitableError
from connectors.iceberg.spark.key_join import NotJoinable
from connectors.iceberg.spark.key_reduction import KeyReduction
from connectors.iceberg.spark.lake_session import LoadedTable
from connectors.iceberg.spark.merge import MergeEngine
from connectors.iceberg.spark.patch_completion import PatchCompletion, left_key
from connectors.iceberg.spark.row_writer import RowWriter
from connectors.iceberg.spark.staged_columns import with_order_under
from connectors.iceberg.spark.staged_keys import StagedKeys
from connectors.iceberg.spark.table_files import TableFiles
from connectors.iceberg.spark.table_reader import TableReader
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.staging.types import FIELD_ID
from connectors.iceberg.table import StagedFile, StagedKind, WriteMode

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver

__all__ = [
    "MAIN",
    "SNAPSHOT_ID",
    "CommitCounts",
    "CommitEngine",
    "CommitOutcome",
    "CommitRequest",
    "CommitStatus",
    "EngineName",
    "TableCommitter",
    "choose_engine",
]

log = logging.getLogger(__name__)

AFTER_SWAP = "after_swap"  # fault point: visible, and we have not heard of it yet


class TableCommitter:
    """Commits to tables, one after the other, on the coordinator's thread."""

    def __init__(
        self,
        driver: SparkDriver,
        catalog: TableCatalog,
        engine: EngineName = EngineName.AUTO,
        refuse_foreign_rows: bool = False,
        deadline_seconds: float = 600.0,
        write_props: Mapping[str, str] | None = None,
    ) -> None:
        """Take the driver and the catalog on it.

        Args:
            driver: Started by its owner, and restarted by it after a `SparkDiedError`.
            catalog: On the same driver.
            engine: `iceberg.ext.commit-engine`.
            refuse_foreign_rows: `iceberg.ext.foreign-writers=refuse`: rows that another writer added since the scan
                make the commit start over, so that none with one of our keys stays beside ours.
            deadline_seconds: For one attempt; see `SparkDriver.deadline`.
            write_props: `iceberg.tables.write-props.*`, for files that are written here.
        """
        self._driver = driver
        self._catalog = catalog
        self._wanted = engine
        self._refuse_foreign_rows = refuse_foreign_rows
        self._deadline_seconds = deadline_seconds
        self._write_props = dict(write_props or {})
        self._told: dict[str, EngineChoice] = {}  # by table
        self._engines: dict[EngineName, CommitEngine] = {
            EngineName.APPEND: AppendEngine(driver),
            EngineName.DELTA: DeltaEngine(driver, refuse_foreign_rows),
            EngineName.MERGE: MergeEngine(driver),
        }

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Make one snapshot, or say why not. The same request may be made again after every outcome.

        Raises:
            TableMissingError, TableForbiddenError, TableUnsuitableError: It cannot be done.
            DuplicateKeyError: Two staged rows of one key.
            CatalogUnavailableError: Nothing was committed as far as we know; ask again.
        """
        started = time.monotonic()
        conflicts = 0
        while True:
            outcome = self._attempt(request)
            if outcome.status is not CommitStatus.FAILED_RETRY:
                break
            conflicts += 1
            log.warning(
                "commit %s to %s met a foreign commit (%d of %d): %s",
                request.commit_id, request.table, conflicts, request.attempt_limit, outcome.reason,
                extra={"action": "commit_repeated", "table": request.table},
            )  # fmt: skip
            if conflicts >= request.attempt_limit:
                break
        milliseconds = round(1000 * (time.monotonic() - started))
        counts = dataclasses.replace(outcome.counts, foreign_conflicts=conflicts, milliseconds=milliseconds)
        return dataclasses.replace(outcome, counts=counts)

    def _attempt(self, request: CommitRequest) -> CommitOutcome:
        loaded = self._catalog.load(request.table, request.property_key, request.ref)
        found = table_version(loaded.view)
        engine = self._choose(request, loaded).engine
        if found != request.expected:
            return self._conflict(request, engine, loaded, found)
        if engine is EngineName.MERGE and request.ordered and not keeps_order(loaded.description):
            add_order(self._catalog, request.table)
            loaded = self._catalog.load(request.table, request.property_key, request.ref)
        work = _Work(self._driver, request, loaded, self._write_props)
        with self._driver.deadline(self._deadline_seconds):
            whole, staged = self._whole(work, engine)
        choice = self._choose(whole, loaded)
        engine = choice.engine
        self._tell(request.table, choice)
        try:
            with self._driver.deadline(self._deadline_seconds):
                outcome = self._engines[engine].commit(whole, staged)
            fault_point(AFTER_SWAP)
        except CommitStateUnknownError as error:
            return self._resolve(request, engine, error)
        except CatalogUnavailableError:
            work.concluded(CommitStatus.CONFLICT)  # it ended before anything could land
            raise
        except TableError as error:
            return self._refused(work, engine, error)
        if outcome.status is CommitStatus.CONFLICT:
            outcome = self._conflict(request, engine, loaded, found)  # first: it may be our own commit that was met
            work.concluded(outcome.status)
            return outcome
        work.concluded(outcome.status)
        counts = outcome.counts
        unmatched = counts.unmatched_patches + work.unmatched
        counts = dataclasses.replace(counts, unmatched_patches=unmatched, older_changes=work.older)
        went = as_it_went(choice, self._wanted, whole.files, counts.replaced_rows)
        return dataclasses.replace(outcome, engine=went.engine, counts=counts, because=went.reason)

    def _tell(self, table: str, choice: EngineChoice) -> None:
        """Say it when a table's commits go on with another engine, or for another reason."""
        if self._told.get(table) == choice:
            return
        self._told[table] = choice
        log.info(
            "table %s: commits by engine %s from now on: %s", table, choice.engine.value, choice.reason,
            extra={"action": "engine_chosen", "table": table, "engine": choice.engine.value},
        )  # fmt: skip

    def _choose(self, request: CommitRequest, loaded: LoadedTable) -> EngineChoice:
        table = loaded.description
        hidden = request.ordered and not keeps_order(table)
        refused, deletes = self._refuse_foreign_rows, holds_deletes(table)
        state = TableState(loaded.empty, says_copy_on_write(table), hidden, refused, deletes)
        remote = bool(self._driver.config.remote)
        try:
            return choose_engine(self._wanted, request.mode, request.files, state, remote)
        except ValueError as error:
            raise TableUnsuitableError(request.table, str(error)) from error

    def _whole(self, work: _Work, engine: EngineName) -> tuple[CommitRequest, StagedKeys]:
        """The request as an engine takes it: one change per key, and whole rows where no engine completes them."""
        request = work.request
        if request.mode is not WriteMode.MERGE or not request.files:
            return request, work.keys(request)
        try:
            request = work.named()
            staged = work.keys(request)
            if request.ordered:
                request = work.reduced()
                staged = work.keys(request)
            staged.check()
            whole = work.completed(request, self._patches(request, engine))
            whole = work.with_visible_order(whole)
        except OSError as error:
            work.concluded(CommitStatus.CONFLICT)
            raise CatalogUnavailableError(
                f"table {request.table}: a file cannot be read or written: {error}"
            ) from error
        except ConnectError:
            work.concluded(CommitStatus.CONFLICT)
            raise
        return whole, staged if whole is request else work.keys(whole)

    def _patches(self, request: CommitRequest, engine: EngineName) -> list[StagedFile]:
        """The patches to complete here: those that the engine cannot complete, or only by a Spark session.

        A MERGE leaves columns alone by itself; rows whose key was changed are beyond it, and beyond a cluster's Spark.
        """
        patches = [file for file in request.files if file.kind is StagedKind.PATCHES]
        by_engine = engine is EngineName.MERGE or not self._driver.config.local
        return [file for file in patches if file.moved] if by_engine else patches

    def _conflict(
        self, request: CommitRequest, engine: EngineName, loaded: LoadedTable, found: TableVersion
    ) -> CommitOutcome:
        """Our ledger moved: perhaps by this very commit, asked again."""
        if loaded.view.uuid == request.expected.uuid:
            snapshot = self._catalog.find_commit(request.table, request.ref, request.commit_id)
            if snapshot is not None:
                return CommitOutcome(CommitStatus.COMMITTED, engine, snapshot, "it had landed before")
        return CommitOutcome(CommitStatus.CONFLICT, engine, None, f"expected {request.expected}, found {found}")

    def _refused(self, work: _Work, engine: EngineName, error: TableError) -> CommitOutcome:
        """After an error that is no answer of the swap: it may have come before it, or after it."""
        landed = self._landed(work.request, engine, error)
        if landed is not None:
            return landed
        work.concluded(CommitStatus.CONFLICT)
        raise error

    def _resolve(self, request: CommitRequest, engine: EngineName, error: Exception) -> CommitOutcome:
        """After an exception nobody knows what happened but the table."""
        try:
            landed = self._landed(request, engine, error)
        except CatalogUnavailableError:
            log.warning("commit %s to %s has an unknown outcome: %s", request.commit_id, request.table, error)
            landed = None
        return landed or CommitOutcome(CommitStatus.UNKNOWN, engine, None, str(error))

    def _landed(self, request: CommitRequest, engine: EngineName, error: Exception) -> CommitOutcome | None:
        """Look whether the table has the commit that ended with an error."""
        snapshot = self._catalog.find_commit(request.table, request.ref, request.commit_id)
        if snapshot is None:
            return None
        return CommitOutcome(CommitStatus.COMMITTED, engine, snapshot, f"it landed in spite of: {error}")


class _Work:
    """What one attempt at a commit reads and writes besides what its engine does."""

    def __init__(
        self, driver: SparkDriver, request: CommitRequest, loaded: LoadedTable, write_props: Mapping[str, str]
    ) -> None:
        self.request = request
        self.files = TableFiles(loaded.description.io_properties)
        self.unmatched = 0  # rows of which some value was found nowhere
        self.older = 0  # changes that came too late
        self._driver = driver
        self._description = loaded.description
        self._write_props = write_props

    @cached_property
    def _reader(self) -> TableReader:
        return TableReader(self._driver, self._description, self.request.ref, self.request.key_columns, self.files)

    @cached_property
    def _writer(self) -> RowWriter:
        return RowWriter(self._description, self.request, self._reader.schema, self._write_props)

    def keys(self, request: CommitRequest) -> StagedKeys:
        """Those of this form of the request."""
        return StagedKeys(request, self._reader.schema, self.files)

    def concluded(self, status: CommitStatus) -> None:
        """Take back what was written when the commit surely did not land."""
        if "_writer" in self.__dict__ and status not in (CommitStatus.COMMITTED, CommitStatus.UNKNOWN):
            self._writer.discard()

    def named(self) -> CommitRequest:
        """The request with present names of the columns that its files lack, without those that are gone."""
        now = self._description.schema_id
        old = {file.path for file in self.request.files if file.unavailable and file.schema_id != now}
        if old:
            files = [self._named(file) if file.path in old else file for file in self.request.files]
            self.request = dataclasses.replace(self.request, files=files)
        return self.request

    def _named(self, file: StagedFile) -> StagedFile:
        with self.files.open(file.path) as opened:
            staged = pq.read_schema(opened)
        names = {field.metadata[FIELD_ID]: field.name for field in self._reader.schema}
        lacking = [names.get(staged.field(name).metadata[FIELD_ID]) for name in file.unavailable]
        return dataclasses.replace(file, unavailable=tuple(name for name in lacking if name is not None))

    def reduced(self) -> CommitRequest:
        """The request with one change per key, by the order that the source tells."""
        properties = self._description.properties
        reduction = KeyReduction(self.request, properties, self._reader, self._writer, self.files)
        request = reduction.reduce()
        self.older = reduction.older
        return request

    def with_visible_order(self, request: CommitRequest) -> CommitRequest:
        """The request with the order of rows under the id of the table's column, if it has one: SQL goes by that."""
        if not request.ordered or not keeps_order(self._description):
            return request
        now = self._description.schema_id
        kinds = (StagedKind.ROWS, StagedKind.PATCHES)
        files = [self._ordered(f) if f.kind in kinds and f.schema_id != now else f for f in request.files]
        same = all(made is file for made, file in zip(files, request.files, strict=True))
        return request if same else dataclasses.replace(request, files=files)

    def _ordered(self, file: StagedFile) -> StagedFile:
        with self.files.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
            at = parquet.schema_arrow.get_field_index(ORDER)
            if at < 0 or parquet.schema_arrow.field(at).metadata == self._reader.order_field.metadata:
                return file
            rows = with_order_under(parquet.read(use_threads=False), self._reader.order_field)
        uri, size = self._writer.again(rows)
        return dataclasses.replace(file, path=uri, size=size)

    def completed(self, request: CommitRequest, patches: Sequence[StagedFile]) -> CommitRequest:
        """The request with whole rows in place of these patches, except for those that Spark has to complete."""
        left = [file for file in request.files if file.kind is StagedKind.LEFT]
        if not patches and not left:
            return request
        completion = PatchCompletion(request, self._reader, self._writer, self.files)
        try:
            path = completion.left(left)
            if path is not None:
                request = dataclasses.replace(request, summary={**request.summary, left_key(request): path})
            try:
                files = completion.complete(patches)
            except NotJoinable as why:
                log.info("table %s: Spark completes rows: %s", request.table, why, extra={"table": request.table})
                patches = [file for file in patches if file.moved]  # Spark knows nothing of former keys
                files = completion.complete(patches)
        except NotJoinable as why:
            raise TableUnsuitableError(
                request.table, f"values that the source did not send are under keys that were changed, and: {why}"
            ) from why
        self.unmatched = completion.unmatched
        replaced = {file.path for file in [*left, *patches]}
        return dataclasses.replace(request, files=[*(f for f in request.files if f.path not in replaced), *files])
