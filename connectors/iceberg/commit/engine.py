"""The commit: staged files become one snapshot, with one Spark `MERGE INTO` and one swap of the
table's metadata.

The parts of protocol steps 4 and 5 (4e is step 5), and the state that a crash after each of them
leaves behind:

4a. Load the table, settle earlier commits, check the ledger. Leaves nothing of this commit. 4b.
Complete the rows (`cycle_rows`). Leaves data files with the prefix of this epoch; rule 18 removes
them. 4c. Run one MERGE on a recorded table (`change_builder`). Leaves delete files with the same
prefix. 4d. Build the new metadata (`table_change`). Leaves manifests that no metadata references;
the table's maintenance
    removes them as orphan files.
4e. Swap the metadata. The outcome may be unknown; 4a of the next attempt looks for the commit ID
    before anything else (rule 17).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.catalog.java_catalog import JavaCatalog
from connectors.iceberg.catalog.java_errors import MISSING_FILE, caused_by, translating
from connectors.iceberg.catalog.table_update import StaleAttemptError
from connectors.iceberg.commit.attempt import (
    Attempt,
    LedgerMovedError,
    check_ledger,
    find_commit,
    snapshot_summary,
)
from connectors.iceberg.commit.change_builder import ChangeBuilder, choose_strategy
from connectors.iceberg.commit.commit_run import CommitRun
from connectors.iceberg.commit.cycle_rows import complete_rows
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.output_columns import SchemaEvolvedError
from connectors.iceberg.commit.refused_refs import naming_ref_settings
from connectors.iceberg.commit.rules.all_rules import all_rules
from connectors.iceberg.errors import CatalogUnavailableError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import (
    SNAPSHOT_ID,
    CommitOutcome,
    CommitRequest,
    EngineSettings,
)
from connectors.iceberg.protocol.faults import fault_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_table import JavaTable

# Fault points
AFTER_ROWS: Final = "after_completed_rows"
AFTER_MERGE: Final = "after_merge"
# after a swap that was refused, or whose outcome is unknown
LOOKING_AGAIN: Final = "catalog_findCommit"
BEFORE_SWAP: Final = "before_compare_and_swap"
AFTER_SWAP: Final = "after_swap"


class CommitEngine:
    """Commits staged files to the tables of one catalog, in one Spark session, one commit at a
    time."""

    def __init__(
        self, spark: SparkSession, catalog: JavaCatalog, catalog_name: str, settings: EngineSettings
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._catalog_name = catalog_name
        self._settings = settings
        self._change_builder = ChangeBuilder(settings)
        self._rules = all_rules(spark, catalog, catalog_name, self.commit)
        self._sleep: Callable[[float], None] = time.sleep

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Create one snapshot, or return the reason why there is none.

        The same request may be repeated after every outcome; a commit that has landed is found by
        its ID.

        Raises: TableMissingError, TableForbiddenError, TableUnsuitableError: The table cannot take
            this commit. DuplicateKeyError: Two staged rows have the same key, and nothing defines
            their order. CatalogUnavailableError: As far as is known, nothing landed, or the commit
            landed and its follow-up work
                failed. The caller repeats the same request.
        """
        started = time.monotonic()
        runs = (rule.begin(request) for rule in self._rules)
        run = CommitRun(request, [rule_run for rule_run in runs if rule_run is not None])
        with ExitStack() as stack:
            try:
                outcome = self._run(run, stack)
            except LedgerMovedError as error:
                outcome = run.conflict(error)
            except (CatalogUnavailableError, CommitStateUnknownError) as error:
                if not run.is_outcome_unknown:
                    run.delete_files_of_failed_attempts()
                    raise
                outcome = run.unknown(error)
            except Exception:
                run.delete_files_of_failed_attempts()
                raise
        run.delete_files_of_failed_attempts()
        milliseconds = round(1000 * (time.monotonic() - started))
        return dataclasses.replace(
            outcome, counts=dataclasses.replace(outcome.counts, milliseconds=milliseconds)
        )

    def settle(self, table: JavaTable, property_key: str) -> None:
        """Finish what earlier commits announced. Called when a table is opened, before any commit.

        Raises:
            CatalogUnavailableError: The table cannot be opened yet.
        """
        for rule in self._rules:
            rule.settle(table, property_key, None)

    def _run(self, run: CommitRun, stack: ExitStack) -> CommitOutcome:
        # Survives a lost race as long as its change is valid for the new head.
        attempt: Attempt | None = None
        while True:
            if run.is_outcome_unknown:
                fault_point(LOOKING_AGAIN)
            # 4a, also after the last try (rule 17)
            table = run.loaded(self._load(run.request.table))
            for rule in self._rules:
                rule.settle(table, run.request.property_key, run.request)
            metadata = table.metadata()
            request = run.resolve(metadata)
            if (snapshot_id := find_commit(metadata, request)) is not None:
                return run.committed(snapshot_id)
            check_ledger(metadata, request)
            run.raise_refusal()
            if not run.has_tries_left:
                return run.exhausted()
            self._sleep(run.backoff())
            try:
                if attempt is None:
                    attempt = self._find_replaced_rows(run, table, request, stack)
                snapshot_id = self._swap(run, table, attempt)
            except SchemaEvolvedError:
                attempt = None
                run.restart()
            except (
                StaleAttemptError
            ) as error:  # another writer changed what the attempt is based on
                attempt = None
                run.retry(error)
            except (
                ConnectError
            ) as error:  # even a refused swap may have landed: the next load shows it
                if not run.is_outcome_unknown:
                    self._raise_if_ledger_moved(run)
                    raise
                run.retry(error)
            else:
                # None if an earlier call of commit() sent the swap that landed.
                if (landed := run.attempt_of(snapshot_id)) is not None:
                    run.landed(snapshot_id)
                    for rule_run in run.rules:
                        rule_run.committed(landed, table)
                return run.committed(snapshot_id)

    def _load(self, name: str) -> JavaTable:
        with translating(name):
            return self._catalog.load(name)

    def _raise_if_ledger_moved(self, run: CommitRun) -> None:
        """Raise LedgerMovedError if a newer coordinator has committed: its cleanup may have caused
        an error."""
        metadata = self._load(run.request.table).metadata()
        request = run.resolve(metadata)
        if find_commit(metadata, request) is None:
            check_ledger(metadata, request)

    def _find_replaced_rows(
        self, run: CommitRun, table: JavaTable, request: CommitRequest, stack: ExitStack
    ) -> Attempt:
        """Run 4b and 4c on the head of the loaded table.

        Raises: StaleAttemptError: A file disappeared while it was read, because another writer
            replaced and expired it.
        """
        strategy, reason = choose_strategy(table, table.metadata(), request, self._settings)
        cycle = run.begin(
            CycleTable(self._spark, self._catalog_name, table, request, strategy, stack)
        )
        with translating(table.name):
            try:
                rows = complete_rows(
                    cycle, rows_are_final=not any(rule.changes_rows for rule in run.rules)
                )
                for rule in run.rules:
                    rows = rule.rows(cycle, rows)
                fault_point(AFTER_ROWS)
                attempt = Attempt(
                    cycle, reason, request.ref, rows, self._change_builder.build(cycle, rows)
                )
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
        """Run 4d and 4e on the newest metadata. Return the ID of the snapshot that landed.

        Raises:
            StaleAttemptError: The change of the attempt is not valid for this metadata.
            LedgerMovedError: Another coordinator has committed.
            ConnectError: The catalog refused the swap, or its outcome is unknown.
        """
        with translating(table.name):
            update = table.new_update()
            base = update.base()
            request = run.resolve(base)
            if (snapshot_id := find_commit(base, request)) is not None:
                return snapshot_id  # an earlier swap with an unknown outcome has landed
            check_ledger(base, request)
            attempt.check_valid_for(base, request)
            update.start_branch(attempt.target_ref, request.ref)
            attempt.change.add_to(
                update, attempt.target_ref, snapshot_summary(request, attempt.rows)
            )
            for rule in run.rules:
                rule.amend(attempt, update)
            ledger_property = request.property_template.replace(
                SNAPSHOT_ID, str(update.snapshot_id)
            )
            update.set_properties({**request.properties, **attempt.rows.properties})
            fault_point(BEFORE_SWAP)
            with run.sending_swap(update, attempt):
                try:
                    with translating(table.name):
                        update.swap({request.property_key: ledger_property})
                except TableUnsuitableError as error:
                    raise naming_ref_settings(error, update, request) from error.__cause__
                fault_point(AFTER_SWAP)
            return update.snapshot_id
