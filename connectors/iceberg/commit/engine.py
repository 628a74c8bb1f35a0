"""`CommitEngine`: commits staged files as one snapshot.

A commit runs one Spark `MERGE INTO` if rows are replaced, and swaps the table metadata once. It
consists of steps 4 and 5 of the commit protocol (`docs/protocol.md`), which are divided into these
parts (4e is step 5). The list also names what a crash after each part leaves behind:

- 4a: Load the table, finish the work of earlier commits, and check the ledger. A crash leaves
  nothing behind.
- 4b: Complete the rows of a cycle that is not plain (`cycle_rows`). A crash leaves data files with
  the prefix of this epoch. The next epoch removes them (rule 18).
- 4c: Run one MERGE on a recorded table (`change_builder`). A crash leaves delete files with the
  same prefix.
- 4d: Build the new metadata (`TableUpdate.add`). A crash leaves manifests that no metadata
  references. Table maintenance removes them as orphan files.
- 4e: Swap the metadata. The outcome may be unknown, so 4a of the next attempt searches for the
  commit ID first (rule 17).
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.catalog.java_errors import MISSING_FILE, caused_by, translating
from connectors.iceberg.catalog.table_update import StaleAttemptError, TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.change_builder import build_change, choose_strategy
from connectors.iceberg.commit.cycle_rows import rows_of_cycle
from connectors.iceberg.commit.refused_refs import naming_ref_settings
from connectors.iceberg.commit.rules.rule import CommitRule
from connectors.iceberg.commit.rules.rule_set import RuleSet
from connectors.iceberg.commit.user_sql import SchemaEvolvedError
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    TableError,
    TableUnsuitableError,
)
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
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import LedgerFormatError, LedgerProperty, table_version
from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)

_BACKOFF_SECONDS: Final = (0.0, 0.1, 0.3, 1.0)

# Fault points
AFTER_ROWS: Final = "after_completed_rows"
AFTER_MERGE: Final = "after_merge"
# before the search for a commit whose swap was rejected or has an unknown outcome
LOOKING_AGAIN: Final = "catalog_findCommit"
BEFORE_SWAP: Final = "before_compare_and_swap"
AFTER_SWAP: Final = "after_swap"


class LedgerMovedError(Exception):
    """The table version is not the version that the coordinator expects.

    Another coordinator or a user changed the table.
    """


class CommitEngine:
    """Commits staged files to the tables in one catalog, one commit at a time."""

    def __init__(self, catalog: JavaCatalog, settings: EngineSettings) -> None:
        self._catalog = catalog
        self._settings = settings
        self.rules = RuleSet(catalog, self.commit)

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Create one snapshot. If none was created, the outcome contains the reason.

        The same request may be repeated after any outcome. A commit that landed is recognized by
        its ID.

        Raises:
            TableMissingError, TableForbiddenError, TableUnsuitableError: The table cannot accept
                this commit.
            DuplicateKeyError: Two staged rows have the same key, and nothing defines their order.
            CatalogUnavailableError: No commit is known to have landed, or the commit landed but
                its follow-up work failed. The caller must repeat the same request.
        """
        started = time.monotonic()
        run = CommitRun(request)
        with ExitStack() as stack:
            try:
                outcome = self._run(run, stack)
            except Exception as error:
                run.delete_files_of_failed_attempts()
                if isinstance(error, LedgerMovedError):
                    status = CommitStatus.CONFLICT
                elif run.is_outcome_unknown and isinstance(
                    error, CatalogUnavailableError | CommitStateUnknownError
                ):
                    log.warning(
                        "commit %s of table %s has an unknown outcome: %s",
                        request.commit_id,
                        request.table,
                        error,
                    )
                    status = CommitStatus.UNKNOWN
                else:
                    raise
                outcome = run.outcome(status, str(error))
            else:
                run.delete_files_of_failed_attempts()
        milliseconds = round(1000 * (time.monotonic() - started))
        return dataclasses.replace(
            outcome, counts=dataclasses.replace(outcome.counts, milliseconds=milliseconds)
        )

    def _run(self, run: CommitRun, stack: ExitStack) -> CommitOutcome:
        # Reused if another commit landed first and the attempt's change is valid for the new head.
        attempt: Attempt | None = None
        while True:
            if run.is_outcome_unknown:
                fault_point(LOOKING_AGAIN)
            with translating(run.request.table):  # step 4a, also after the last attempt (rule 17)
                table = run.table = self._catalog.load(run.request.table)
            run.is_outcome_unknown = False
            self.rules.settle(table, run.request.property_key, run.request)
            metadata = table.metadata()
            run.rules = run.rules or self.rules.of(run.request, metadata)
            request = run.resolve(metadata)
            if (snapshot_id := find_commit(metadata, request)) is not None:
                return run.committed(table, snapshot_id)
            if run.tries and not run.prepare_retry():
                return run.outcome(CommitStatus.FAILED_RETRY, str(run.failure or ""))
            run.tries += 1
            try:
                if attempt is None:
                    attempt = self._find_replaced_rows(run, table, request, stack)
                snapshot_id = self._swap(run, table, attempt)
            except SchemaEvolvedError:  # a rule added columns; counts as an attempt
                attempt = None
            except StaleAttemptError as error:  # another writer changed the table
                attempt, run.failure = None, error
            except ConnectError as error:
                # A rejected swap may have landed anyway, and a newer coordinator may have caused
                # any other error. Loading the table again resolves both cases.
                run.failure = error
                run.is_final = not run.is_outcome_unknown or isinstance(error, TableError)
            else:
                return run.committed(table, snapshot_id)

    def _find_replaced_rows(
        self, run: CommitRun, table: JavaTable, request: CommitRequest, stack: ExitStack
    ) -> Attempt:
        """Run steps 4b and 4c on the head of the loaded table.

        Raises:
            StaleAttemptError: A file disappeared while it was read, because another writer replaced
                and expired it.
        """
        strategy = choose_strategy(table, table.metadata(), request, self._settings)
        attempt = Attempt(self._catalog, table, request, strategy, stack)
        run.attempts.append(attempt)
        with translating(table.name):
            try:
                attempt.rows = rows_of_cycle(
                    attempt, are_final=not any(rule.changes_rows for rule in run.rules)
                )
                for rule in run.rules:
                    rule.change_rows(attempt)
                fault_point(AFTER_ROWS)
                attempt.change = build_change(attempt, self._settings)
                fault_point(AFTER_MERGE)
                for rule in run.rules:
                    rule.inspect(attempt)
            except Exception as error:
                if caused_by(error, *MISSING_FILE) and table.has_changed():
                    raise StaleAttemptError(
                        "another writer removed a file while it was read"
                    ) from error
                raise
        return attempt

    def _swap(self, run: CommitRun, table: JavaTable, attempt: Attempt) -> int:
        """Run steps 4d and 4e on the newest metadata. Return the ID of the snapshot that landed.

        Raises:
            StaleAttemptError: The attempt's change is not valid for this metadata.
            LedgerMovedError: Another coordinator has committed.
            ConnectError: The catalog rejected the swap, or its outcome is unknown.
        """
        with translating(table.name):
            update = table.new_update()
            base = update.base()
            request = run.resolve(base)
            if (snapshot_id := find_commit(base, request)) is not None:
                return snapshot_id  # an earlier swap with an unknown outcome has landed
            attempt.check_valid_for(base, request)
            for rule in run.rules:
                rule.prepare(attempt, update)
            summary = {**request.summary, **attempt.summary, COMMIT_ID_KEY: request.commit_id}
            update.add(attempt.change, attempt.target_ref, summary)
            for rule in run.rules:
                rule.amend(attempt, update)
            snapshot_id = update.snapshot_id
            ledger = request.property_template.replace(SNAPSHOT_ID, str(snapshot_id))
            update.set_properties({**request.properties, **attempt.properties})
            fault_point(BEFORE_SWAP)
            run.swaps[snapshot_id] = update, attempt
            run.is_outcome_unknown = True  # until the swap returns
            try:
                with translating(table.name):
                    update.swap({request.property_key: ledger})
            except TableUnsuitableError as error:
                raise naming_ref_settings(error, update, request) from error.__cause__
            fault_point(AFTER_SWAP)
            run.is_outcome_unknown = False
            return snapshot_id


def find_commit(metadata: TableMetadata, request: CommitRequest) -> int | None:
    """Return the snapshot ID of a commit if it has landed (rule 17), or None if it can land now.

    Raises:
        LedgerMovedError: The commit has not landed, and the table does not have the expected
            version (rule 16).
    """
    if metadata.uuid == request.expected.uuid:
        if (snapshot_id := metadata.find_commit(request.ref, request.commit_id)) is not None:
            return snapshot_id
        property_json = metadata.properties.get(request.property_key, "")
        if request.commit_id in property_json:  # the snapshot may have expired
            with suppress(LedgerFormatError):
                ledger_property = LedgerProperty.from_json(property_json)
                if ledger_property.ledger.commit == request.commit_id:
                    return ledger_property.snapshot
    version = table_version(metadata.view(request.ref, request.property_key))
    if version != request.expected:
        raise LedgerMovedError(f"expected {request.expected}, found {version}")
    return None


@dataclass(slots=True)
class CommitRun:
    """State of one call to `CommitEngine.commit`: attempts, swaps, and files to delete."""

    request: CommitRequest
    rules: Sequence[CommitRule] = ()
    table: JavaTable | None = None  # as of the last load
    # True if a swap was sent and the table has not been loaded since
    is_outcome_unknown: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    # updates whose swap was sent, with their attempts, keyed by snapshot ID
    swaps: dict[int, tuple[TableUpdate, Attempt]] = field(default_factory=dict)
    landed: int | None = None  # ID of the snapshot that landed
    tries: int = 0
    failure: Exception | None = None  # error from the last attempt; None after a schema change
    is_final: bool = False  # True if no further attempt can succeed
    conflicts: int = 0  # number of failed attempts that were retried

    def resolve(self, metadata: TableMetadata) -> CommitRequest:
        """Return the request as adjusted by all rules for this metadata."""
        request = self.request
        for rule in self.rules:
            request = rule.resolve(request, metadata)
        return request

    # --- retries

    def prepare_retry(self) -> bool:
        """Log the failure and wait before the next attempt. Return False after the last attempt.

        Raises:
            ConnectError: The last attempt failed before its swap, or the catalog rejected the swap
                permanently, for example with status 403.
        """
        if self.is_final and self.failure is not None:
            raise self.failure
        if self.tries >= self.request.attempt_limit:
            return False
        if self.failure is not None:
            seconds = _BACKOFF_SECONDS[min(self.tries - 1, len(_BACKOFF_SECONDS) - 1)]
            log.warning(
                "commit %s of table %s failed (attempt %d of %d), retrying in %.1f s: %s",
                self.request.commit_id,
                self.request.table,
                self.tries,
                self.request.attempt_limit,
                seconds,
                self.failure,
                extra={"action": "commit_repeated", "table": self.request.table},
            )
            self.conflicts += 1
            self.failure = None
            time.sleep(seconds)
        return True

    # --- outcomes

    def committed(self, table: JavaTable, snapshot_id: int) -> CommitOutcome:
        """Run the follow-up work of a commit that landed, and return its outcome.

        The commit may have landed with an earlier swap whose outcome was unknown.
        """
        self.landed = snapshot_id
        outcome = self.outcome(CommitStatus.COMMITTED, "it had already landed", snapshot_id)
        if snapshot_id not in self.swaps:  # an earlier call to `commit` sent the swap
            return outcome
        _, attempt = self.swaps[snapshot_id]
        for rule in self.rules:
            rule.committed(attempt, table)
        counts = dataclasses.replace(
            outcome.counts,
            added_files=len(attempt.change.files),
            added_rows=sum(file.rows for file in attempt.rows.staged)
            + sum(int(file.recordCount()) for file in attempt.rows.written),
            replaced_rows=attempt.change.replaced_rows,
            unmatched_patches=attempt.unmatched,
            older_changes=attempt.older_changes,
        )
        outcome = dataclasses.replace(
            outcome, engine=attempt.strategy, reason="", counts=counts, because=attempt.reason
        )
        for rule in self.rules:
            outcome = rule.outcome(attempt, outcome)
        return outcome

    def outcome(
        self, status: CommitStatus, reason: str, snapshot_id: int | None = None
    ) -> CommitOutcome:
        """Return an outcome without the row and file counts of an attempt."""
        counts = CommitCounts(foreign_conflicts=self.conflicts)
        return CommitOutcome(status, EngineName.MERGE, snapshot_id, reason, counts)

    # --- cleanup

    def delete_files_of_failed_attempts(self) -> None:
        """Delete the files of attempts that did not land.

        If a swap was sent, nothing is deleted unless one of this run's swaps has landed (rule 17).
        The remaining files have the prefix of this epoch, and the next epoch removes them (rule
        18). Table maintenance removes the remaining manifests as orphan files.
        """
        table, landed = self.table, self.swaps.get(self.landed or 0)
        if table is None or (self.swaps and landed is None):
            return
        paths: set[str] = set()
        try:
            for attempt in self.attempts:
                if landed is not None and attempt is landed[1]:
                    paths.update(attempt.superseded)
                    continue
                paths.update(attempt.written)
                for rule in self.rules:
                    rule.discard(attempt)
            with translating(table.name):
                for snapshot_id, (update, _) in self.swaps.items():
                    if snapshot_id != self.landed:
                        paths.update(table.own_metadata_files(update.snapshot))
                for path in paths:
                    table.delete_file(path)
        except ConnectError as error:
            log.info(
                "table %s: files of failed attempts remain until the next cleanup: %s",
                table.name,
                error,
            )
