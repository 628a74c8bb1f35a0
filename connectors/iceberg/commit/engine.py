"""The commit: one Spark `MERGE INTO` per table and cycle, one compare-and-swap of the table's metadata.

A cycle with upserts and deletes takes four steps. Between any two of them the process may die:

1. A scratch branch at the head of the commit ref. Rows with unavailable values are completed into files that no
   snapshot refers to. Left behind: a branch and orphan files; the next own commit on the table removes the branch
   (rule 26), the next epoch the files (rule 18).
2. `MERGE INTO` the scratch branch `USING` the staged keys `WHEN MATCHED THEN DELETE`: Spark finds the rows and writes
   deletion vectors (format 3) or position deletes (format 2). Left behind: also a snapshot; removed with its branch.
3. A transaction on the newest metadata: one `RowDelta` takes those delete files over and adds the staged files, with
   the ledger in summary and property. The scratch branches and their snapshots leave in the same change. Left behind:
   manifests that nothing refers to.
4. The table's version is checked on the metadata that the transaction began from, and `TableOperations.commit` swaps
   exactly that (rule 16). Left behind: a commit of unknown outcome; the next try looks for its id (rule 17).
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.catalog.java_errors import VALIDATION, caused_by, translating
from connectors.iceberg.catalog.sql_names import quoted, relation
from connectors.iceberg.catalog.table_update import SCRATCH_KEY, PreparedCommit, ValidationFailed
from connectors.iceberg.commit.attempt import (
    Attempts,
    Found,
    LedgerMovedError,
    count_in,
    named_commit,
    own_snapshots,
    summary_of,
)
from connectors.iceberg.commit.cycle_rows import CycleRows
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.engine_choice import choose_engine
from connectors.iceberg.commit.merge_statement import delete_matched, full_merge
from connectors.iceberg.commit.output_columns import SchemaEvolved
from connectors.iceberg.commit.partial_rows import open_pairs_property
from connectors.iceberg.commit.rules.aggregates import CycleAggregates, pending_property
from connectors.iceberg.commit.rules.approval_branch import begin_branch, request_at, target_ref, unpublished_property
from connectors.iceberg.commit.rules.rejected_rows import RejectedRows
from connectors.iceberg.commit.rules.scheduled_tags import update_tags
from connectors.iceberg.errors import CatalogUnavailableError, TableError, TableUnsuitableError
from connectors.iceberg.faults import fault_point
from connectors.iceberg.protocol.commit_request import (
    COMMIT_ID_KEY,
    SNAPSHOT_ID,
    CommitCounts,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
    EngineSettings,
)
from connectors.iceberg.protocol.ledger import table_version
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.schema.table import WriteMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.driver.connect_client import ConnectClient

log = logging.getLogger(__name__)

AFTER_BRANCH, AFTER_MERGE = "after_scratch_branch", "after_merge"  # fault points
LOOKING_AGAIN = "catalog_findCommit"  # after a swap that was refused, or of unknown outcome
BEFORE_SWAP, AFTER_SWAP = "before_compare_and_swap", "after_swap"
_SUMMARY = "spark.sql.iceberg.snapshot-property."  # holds for every commit of the session until unset
_BACKOFF_SECONDS = (0.0, 0.1, 0.3, 1.0)


class CommitEngine:
    """Commits to the tables of one catalog, in one Spark session; one commit at a time."""

    def __init__(self, spark: SparkSession, catalog: JavaCatalog, catalog_name: str, settings: EngineSettings) -> None:
        self._spark = spark
        self._catalog = catalog
        self._catalog_name = catalog_name
        self._settings = settings
        self._connect: ConnectClient | None = None
        self._rejected = RejectedRows(spark, catalog, self._follow)
        self._aggregates = CycleAggregates(spark, catalog, catalog_name, self._follow)
        self._sleep: Callable[[float], None] = time.sleep

    def commit(self, request: CommitRequest, connect: ConnectClient | None = None) -> CommitOutcome:
        """Make one snapshot, or say why not. The same request may be made again after every outcome.

        Args:
            request: What to commit.
            connect: Runs the `MERGE` on a Spark Connect server; None: this Spark runs it.

        Raises:
            TableMissingError, TableForbiddenError, TableUnsuitableError: It cannot be done.
            DuplicateKeyError: Two staged rows of one key.
            CatalogUnavailableError: Nothing was committed as far as we know; ask again.
        """
        started = time.monotonic()
        self._connect = connect
        attempts = Attempts()
        try:
            with ExitStack() as stack:
                outcome = self._commit(request, attempts, stack)
        except LedgerMovedError as moved:
            self._discard(request, attempts)
            outcome = CommitOutcome(CommitStatus.CONFLICT, EngineName.MERGE, None, str(moved))
        except TableError:
            self._discard(request, attempts)
            raise
        except (CatalogUnavailableError, CommitStateUnknownError) as error:
            if not attempts.open:
                raise
            log.warning("commit %s to %s has an unknown outcome: %s", request.commit_id, request.table, error)
            outcome = CommitOutcome(CommitStatus.UNKNOWN, EngineName.MERGE, None, str(error))
        milliseconds = round(1000 * (time.monotonic() - started))
        return dataclasses.replace(outcome, counts=dataclasses.replace(outcome.counts, milliseconds=milliseconds))

    def _follow(self, request: CommitRequest) -> CommitOutcome:
        """A commit to a table that follows the one of the commit under way."""
        return self.commit(request, self._connect)

    def settle(self, table: str, property_key: str, metadata: TableMetadata) -> None:
        """Finish what commits to this table left to do on tables that follow it.

        Raises:
            CatalogUnavailableError: It does not work now.
        """
        self._aggregates.settle(table, property_key, metadata.properties)

    def _commit(self, request: CommitRequest, attempts: Attempts, stack: ExitStack) -> CommitOutcome:
        found: Found | None = None
        reason = ""
        refusal: ConnectError | None = None
        for attempt in range(request.attempt_limit + 1):
            if attempts.open:
                fault_point(LOOKING_AGAIN)
            table, metadata = self._load(request)
            attempts.open = False
            self._rejected.settle(table, request, metadata.properties)
            self._aggregates.settle(request.table, request.property_key, metadata.properties)
            if (landed := self._landed(metadata, request)) is not None:
                return self._concluded(table, request, attempts, landed)
            if isinstance(refusal, TableError):
                raise refusal
            if attempt == request.attempt_limit:
                break
            if reason:
                attempts.foreign += 1
                log.warning(
                    "commit %s to %s is repeated (%d of %d): %s",
                    request.commit_id, request.table, attempt, request.attempt_limit, reason,
                    extra={"action": "commit_repeated", "table": request.table},
                )  # fmt: skip
                self._sleep(_BACKOFF_SECONDS[min(attempt - 1, len(_BACKOFF_SECONDS) - 1)])
            try:
                if found is None:
                    with translating(request.table):
                        found = self._find(table, metadata, request_at(metadata, request), attempts, stack)
                if (landed := self._swap(table, request, found, attempts)) is not None:
                    outcome = self._concluded(table, request, attempts, landed)
                    self._aggregates.settle_text(request.table, request.property_key, found.pending)
                    return outcome
            except SchemaEvolved as evolved:
                found, reason = None, ""
                log.info("commit %s to %s begins again: %s", request.commit_id, request.table, evolved)
            except ValidationFailed as failed:
                found, reason = None, str(failed)
            except ConnectError as refused:
                if found is None:  # a newer coordinator may have committed meanwhile, and swept our branch
                    self._landed(self._load(request)[1], request)
                if not attempts.open:
                    raise
                refusal, reason = refused, str(refused)  # of unknown outcome: the table is read before anything else
                log.info("commit %s to %s was refused: %s", request.commit_id, request.table, reason)
        self._discard(request, attempts)
        counts = CommitCounts(foreign_conflicts=attempts.foreign)
        return CommitOutcome(CommitStatus.FAILED_RETRY, EngineName.MERGE, None, reason, counts)

    # --- looking

    def _load(self, request: CommitRequest) -> tuple[JavaTable, TableMetadata]:
        with translating(request.table):
            table = self._catalog.load(request.table)
            return table, table.metadata()

    def _landed(self, metadata: TableMetadata, request: CommitRequest) -> int | None:
        """The snapshot of this very commit if it is there; None: the table is as expected.

        Raises:
            LedgerMovedError: It is another version.
        """
        request = request_at(metadata, request)
        if metadata.uuid == request.expected.uuid:
            snapshot = metadata.find_commit(request.ref, request.commit_id)
            if snapshot is None:  # it may have expired already
                snapshot = named_commit(metadata.properties.get(request.property_key), request.commit_id)
            if snapshot is not None:
                return snapshot
        now = table_version(metadata.view(request.ref, request.property_key))
        if now != request.expected:
            raise LedgerMovedError(f"expected {request.expected}, found {now}")
        return None

    # --- steps 1 and 2

    def _find(
        self, table: JavaTable, metadata: TableMetadata, request: CommitRequest, attempts: Attempts, stack: ExitStack
    ) -> Found:
        """Make the scratch branch, complete rows, and run the MERGE."""
        head = metadata.head(request.ref)
        engine, because = choose_engine(table, metadata, request, self._full_merge())
        branch = target = None
        if engine in (EngineName.MERGE, EngineName.FULL_MERGE):
            branch = f"{request.work_branch}{request.commit_id[:8]}-{len(attempts.found)}-{uuid.uuid4().hex[:8]}"
            target = relation(self._catalog_name, request.table, branch)
        cycle = CycleTable(self._spark, self._catalog_name, table, metadata, request, target, stack)
        rows = CycleRows(cycle, branch if self._connect is not None else None)
        found = Found(engine, because, request.ref, None if head is None else head["snapshot-id"], rows, branch)
        attempts.found.append(found)
        if branch is not None:
            self._spark.sql(
                f"ALTER TABLE {relation(self._catalog_name, request.table)} "
                f"CREATE BRANCH {quoted(branch)} AS OF VERSION {found.head}"
            )
            fault_point(AFTER_BRANCH)
        if engine is EngineName.OVERWRITE and head is not None:
            found.replaced_rows = count_in(head, "total-records") - count_in(head, "total-position-deletes")
        rows.prepare(whole=engine is EngineName.FULL_MERGE)
        if target is not None and rows.changes:
            if engine is EngineName.FULL_MERGE:
                statement = full_merge(target, metadata.column_names(), request.key_columns, rows.changes, rows.order)
                self._merge(request.table, statement, {**summary_of(request, rows), SCRATCH_KEY: str(branch)})
            else:
                statement = delete_matched(target, request.key_columns, rows.changes, rows.order)
                self._merge(request.table, statement, {SCRATCH_KEY: str(branch)})
            self._look_at_branch(table, found)
            fault_point(AFTER_MERGE)
        rows.ask(engine)
        if request.ref != request.unpublished_branch and not rows.check.holds:  # else their turn comes when it ends
            found.pending = self._aggregates.prepare(cycle, lambda: rows.views(engine))
        return found

    def _full_merge(self) -> str:
        """Why the MERGE is to insert rows itself; empty: it is not."""
        if self._settings.full_merge:
            return "the configuration says so"
        return "Spark is behind Spark Connect" if self._connect is not None else ""

    def _merge(self, table: str, statement: str, summary: Mapping[str, str]) -> None:
        settings = {_SUMMARY + key: value for key, value in summary.items()}
        if self._connect is not None:
            self._connect.run(table, statement, settings)
            return
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        try:
            self._spark.sql(statement)
        except Exception as error:
            # No other writer uses the branch: the catalog refused what it had made, and Spark met its own snapshot.
            if caused_by(error, VALIDATION):
                raise ValidationFailed("the MERGE met a snapshot of its own, which the catalog had refused") from error
            raise
        finally:
            for key in settings:
                self._spark.conf.unset(key)

    def _look_at_branch(self, table: JavaTable, found: Found) -> None:
        """Take over what the MERGE made."""
        assert found.branch is not None
        metadata = table.refresh()
        made = metadata.snapshots.get(metadata.refs.get(found.branch, -1))
        if made is None:
            raise CatalogUnavailableError(f"table {table.name}: branch {found.branch} is gone")
        if made["snapshot-id"] == found.head:
            return  # no staged key is in the table
        if made.get("parent-snapshot-id") != found.head or made["summary"].get(SCRATCH_KEY) != found.branch:
            raise CatalogUnavailableError(
                f"table {table.name}: the snapshot on branch {found.branch} is not the one that this MERGE made"
            )
        found.scratch = made["snapshot-id"]
        if found.engine is EngineName.FULL_MERGE:
            found.replaced_rows = count_in(made, "deleted-records") + count_in(made, "added-position-deletes")
            return
        changes = table.changes(table.snapshot(found.scratch))
        if list(changes.addedDataFiles()) or list(changes.removedDataFiles()):
            raise TableUnsuitableError(
                table.name, "the MERGE rewrote data files although the table says merge-on-read: nothing was committed"
            )
        found.deletes = list(changes.addedDeleteFiles())
        found.replaced_deletes = list(changes.removedDeleteFiles())
        named = [table.data_file_of(file) for file in found.deletes]
        found.data_files = [name for name in named if name is not None]
        found.names_all = None not in named
        found.replaced_rows = count_in(made, "added-position-deletes") - count_in(made, "removed-position-deletes")

    # --- steps 3 and 4

    def _swap(self, table: JavaTable, request: CommitRequest, found: Found, attempts: Attempts) -> int | None:
        """Prepare on the newest metadata, check it, and swap. Returns the snapshot that landed.

        Raises:
            ValidationFailed: A commit of others took what the MERGE found: find it again.
            LedgerMovedError: The table is another version.
            ConnectError: Refused, or no answer.
        """
        with translating(request.table):
            prepared = table.prepare()
            base = prepared.base()
            if (landed := self._landed(base, request)) is not None:
                return landed
            request = request_at(base, request)
            if request.ref != found.ref:
                raise ValidationFailed("unpublished commits were published or thrown away meanwhile")
            target = target_ref(request, found.rows.check)
            begin_branch(prepared, base, request, target)
            removed = self._prepare(prepared, base, request, found, target)
            update_tags(prepared, base, request, target)
            attempts.swaps.append((prepared, removed, found))
            text = request.property_template.replace(SNAPSHOT_ID, str(prepared.snapshot_id))
            properties = {
                **request.properties, **self._rejected.emptied(base, request.property_key), **found.rows.properties,
                **pending_property(base, request.property_key, found.pending),
                **open_pairs_property(base, request.property_key, found.rows.summary),
                **unpublished_property(prepared, base, request, found.rows.check), request.property_key: text,
            }  # fmt: skip
            fault_point(BEFORE_SWAP)
            attempts.open = True
            prepared.swap(properties)
            fault_point(AFTER_SWAP)
            attempts.open = False
        self._settle(table, request, found.rows.properties)
        return prepared.snapshot_id

    def _settle(self, table: JavaTable, request: CommitRequest, properties: Mapping[str, str]) -> None:
        """Rows that this commit rejected go to their table now, or else with the next commit."""
        try:
            self._rejected.settle(table, request, properties)
        except ConnectError as error:
            log.warning("table %s: rejected rows wait for the next commit: %s", request.table, error)

    def _prepare(
        self, prepared: PreparedCommit, base: TableMetadata, request: CommitRequest, found: Found, target: str
    ) -> list[Any]:
        """Build the change of the metadata; returns the scratch snapshots that leave with it."""
        head = base.head(request.ref)
        moved = (None if head is None else head["snapshot-id"]) != found.head
        if moved and found.head is not None and not any(s["snapshot-id"] == found.head for s in base.ancestors(head)):
            raise ValidationFailed(f"{request.ref} was rolled back while the MERGE ran")
        if found.scratch is not None and base.refs.get(str(found.branch)) != found.scratch:
            # An expiry may have dropped the branch by its age, and taken the delete files that we are about to add.
            raise ValidationFailed(f"scratch branch {found.branch} was dropped")
        if moved and found.pending:
            raise ValidationFailed(f"{request.ref} moved while tables that follow it were made")
        summary, files = summary_of(request, found.rows), found.rows.data_files
        if found.engine is EngineName.FULL_MERGE and found.scratch is not None:
            if moved:
                raise ValidationFailed(f"{request.ref} moved while the MERGE ran")
            made = base.snapshots.get(found.scratch)
            if made is None or made["summary"].get(COMMIT_ID_KEY) != request.commit_id:  # rule 27
                raise ValidationFailed("the snapshot of the MERGE is gone, or does not name this commit")
            prepared.publish(target, found.scratch)
        elif found.engine is EngineName.OVERWRITE:
            if moved and found.rows.reads_table:
                raise ValidationFailed(f"{request.ref} moved while rows were read")
            prepared.overwrite(target, summary, files)
        elif found.deletes or (self._settings.refuse_foreign_rows and request.mode is WriteMode.MERGE and files):
            if moved and not found.names_all:
                raise ValidationFailed("position deletes do not name the data files that must still be there")
            prepared.row_delta(
                target, summary, files, found.deletes, found.replaced_deletes, found.head, found.data_files,
                refuse_foreign_rows=self._settings.refuse_foreign_rows,
            )  # fmt: skip
        else:
            if moved and found.rows.reads_table:
                raise ValidationFailed(f"{request.ref} moved while rows were completed")
            prepared.append(target, summary, files)
        return self._remove_scratch(prepared, base, request)

    def _remove_scratch(self, prepared: PreparedCommit, base: TableMetadata, request: CommitRequest) -> list[Any]:
        """Rule 26: own branch and scratch snapshot, and those of dead attempts, leave in the same change."""
        branches = [name for name in base.refs if name.startswith(request.work_branch)]
        snapshots = [snapshot for snapshot in own_snapshots(base, branches) if snapshot != prepared.snapshot_id]
        return prepared.remove(branches, snapshots)

    # --- afterwards

    def _concluded(self, table: JavaTable, request: CommitRequest, attempts: Attempts, landed: int) -> CommitOutcome:
        """Say what landed; delete what only refused attempts and departed scratch snapshots refer to."""
        mine = next((swap for swap in attempts.swaps if swap[0].snapshot_id == landed), None)
        if mine is None:
            counts = CommitCounts(foreign_conflicts=attempts.foreign)
            return CommitOutcome(CommitStatus.COMMITTED, EngineName.MERGE, landed, "it had landed before", counts)
        _, removed, found = mine
        kept = {file.path for file in request.files}  # never a staged file
        kept.update(str(file.location()) for file in [*found.deletes, *found.rows.data_files])
        for other in attempts.found:
            if other is not mine[2] and other.pending:
                self._aggregates.discard(other.pending)
        losers = [prepared.snapshot for prepared, _, _ in attempts.swaps if prepared.snapshot_id != landed]
        self._delete(table, [*losers, *removed], removed, attempts, kept)
        counts = CommitCounts(
            added_files=len(found.rows.data_files),
            added_rows=found.rows.added_rows,
            replaced_rows=found.replaced_rows,
            unmatched_patches=found.rows.unmatched,
            older_changes=found.rows.older,
            foreign_conflicts=attempts.foreign,
        )
        check = found.rows.check
        unpublished = found.ref == request.unpublished_branch or check.holds
        return CommitOutcome(
            CommitStatus.COMMITTED,
            found.engine,
            landed,
            "",
            counts,
            found.because,
            check.failed,
            unpublished=unpublished,
        )

    def _discard(self, request: CommitRequest, attempts: Attempts) -> None:
        """Take back what a commit left that came to nothing: its scratch branches, their snapshots and files.

        Where that fails, the next own commit on the table removes the branches, and the next epoch the files. What a
        swap refers to stays: it is not known whether a refused one may still arrive.
        """
        branches = [found.branch for found in attempts.found if found.branch is not None]
        if attempts.swaps or not attempts.found:
            return
        for found in attempts.found:
            self._aggregates.discard(found.pending)
        try:
            with translating(request.table):
                table = self._catalog.load(request.table)
                prepared = table.prepare()
                base = prepared.base()
                there = [name for name in base.refs if name.startswith(tuple(branches))]  # with staged files' own
                if there:
                    prepared.change()
                    removed = prepared.remove(there, own_snapshots(base, there))
                    prepared.swap({})
                    self._delete(table, removed, removed, attempts, {file.path for file in request.files})
        except ConnectError as error:
            log.info("table %s: branches of a commit that came to nothing stay: %s", request.table, error)

    def _delete(
        self, table: JavaTable, metadata_of: Sequence[Any], files_of: Sequence[Any], attempts: Attempts, kept: set[str]
    ) -> None:
        """Delete metadata files of these snapshots, files that those added, and completed rows, but for those kept."""
        paths: set[str] = {
            str(f.location()) for other in attempts.found for f in (*other.rows.written, *other.rows.superseded)
        }
        try:
            with translating(table.name):
                for snapshot in metadata_of:
                    paths.update(table.own_metadata_files(snapshot))
                for snapshot in files_of:
                    paths.update(table.files_added_by(snapshot))
                for path in paths - kept:
                    table.delete_file(path)
        except ConnectError as error:  # orphans, which clean-up finds
            log.info("table %s: files of attempts that came to nothing stay: %s", table.name, error)
