"""`CommitRun`: the state of one call of `CommitEngine.commit`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from connect_py.api.errors import ConnectError
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt, LedgerMovedError
from connectors.iceberg.commit.cycle_table import CycleTable
from connectors.iceberg.commit.rules.rule import RuleRun
from connectors.iceberg.errors import TableError
from connectors.iceberg.protocol.commit_request import (
    CommitCounts,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)

_BACKOFF_SECONDS: Final = (0.0, 0.1, 0.3, 1.0)


class CommitRun:
    """One call of `CommitEngine.commit`: its attempts, the swaps that it sent, and what it has to
    clean up."""

    def __init__(self, request: CommitRequest, rules: Sequence[RuleRun]) -> None:
        self.request = request
        self.rules = rules
        self.is_outcome_unknown = False  # a swap was sent, and the table has not been read since
        self._cycles: list[CycleTable] = []
        self._swaps: list[tuple[TableUpdate, Attempt]] = []
        self._table: JavaTable | None = None
        self._landed: int | None = None
        self._refusal: ConnectError | None = None
        self._failures: list[str] = []  # why tries failed
        self._conflicts = 0
        self._tries = 0

    def loaded(self, table: JavaTable) -> JavaTable:
        """Note that the table was read, so that the outcome of every earlier swap shows."""
        self._table = table
        self.is_outcome_unknown = False
        return table

    def begin(self, cycle: CycleTable) -> CycleTable:
        """Remember the files that an attempt will write."""
        self._cycles.append(cycle)
        return cycle

    def resolve(self, metadata: TableMetadata) -> CommitRequest:
        """Return the request for this metadata."""
        request = self.request
        for rule in self.rules:
            request = rule.resolve(request, metadata)
        return request

    @contextmanager
    def sending_swap(self, update: TableUpdate, attempt: Attempt) -> Iterator[None]:
        """Mark the outcome as unknown unless the block ends without an error."""
        self._swaps.append((update, attempt))
        self.is_outcome_unknown = True
        yield
        self.is_outcome_unknown = False

    def retry(self, error: Exception) -> None:
        """Note the failure of a try."""
        self._refusal = error if isinstance(error, ConnectError) else None
        self._failures.append(str(error))
        self._tries += 1

    def restart(self) -> None:
        """Note that a try ended because a rule changed the table's schema."""
        self._refusal = None
        self._tries += 1

    def landed(self, snapshot_id: int) -> None:
        """Note the snapshot that landed."""
        self._landed = snapshot_id

    def raise_refusal(self) -> None:
        """Raise the error of a permanent refusal, such as a 403. Called after the table was
        read."""
        if isinstance(self._refusal, TableError):
            raise self._refusal

    @property
    def has_tries_left(self) -> bool:
        """Whether the commit may be tried again."""
        return self._tries < self.request.attempt_limit

    def backoff(self) -> float:
        """Return the seconds to wait before this try. The reason for a repeated try is logged."""
        if len(self._failures) <= self._conflicts:
            return 0.0
        self._conflicts = len(self._failures)
        seconds = _BACKOFF_SECONDS[min(self._tries - 1, len(_BACKOFF_SECONDS) - 1)]
        log.warning(
            "commit %s of table %s failed (attempt %d of %d), retrying in %.1f s: %s",
            self.request.commit_id,
            self.request.table,
            self._tries,
            self.request.attempt_limit,
            seconds,
            self._failures[-1],
            extra={"action": "commit_repeated", "table": self.request.table},
        )
        return seconds

    def attempt_of(self, snapshot_id: int) -> Attempt | None:
        """Return the attempt that created a snapshot, or None if an earlier call of `commit` sent
        that swap."""
        return next(
            (attempt for update, attempt in self._swaps if update.snapshot_id == snapshot_id), None
        )

    # --- outcomes

    def committed(self, snapshot_id: int) -> CommitOutcome:
        """Return the outcome of a commit that landed."""
        self._landed = snapshot_id
        attempt = self.attempt_of(snapshot_id)
        if attempt is None:
            counts = CommitCounts(foreign_conflicts=self._conflicts)
            return CommitOutcome(
                CommitStatus.COMMITTED,
                EngineName.MERGE,
                snapshot_id,
                "it had landed before",
                counts,
            )
        rows = attempt.rows
        counts = CommitCounts(
            added_files=len(attempt.change.files),
            added_rows=rows.count,
            replaced_rows=attempt.change.replaced_rows,
            unmatched_patches=rows.unmatched,
            older_changes=rows.older_changes,
            foreign_conflicts=self._conflicts,
        )
        strategy = attempt.cycle.strategy
        outcome = CommitOutcome(
            CommitStatus.COMMITTED, strategy, snapshot_id, "", counts, attempt.reason
        )
        for rule in self.rules:
            outcome = rule.outcome(attempt, outcome)
        return outcome

    def conflict(self, error: LedgerMovedError) -> CommitOutcome:
        """Return the outcome if another coordinator committed."""
        return CommitOutcome(CommitStatus.CONFLICT, EngineName.MERGE, None, str(error))

    def unknown(self, error: Exception) -> CommitOutcome:
        """Return the outcome if a swap was sent and the table cannot be read."""
        log.warning(
            "commit %s of table %s has an unknown outcome: %s",
            self.request.commit_id,
            self.request.table,
            error,
        )
        return CommitOutcome(CommitStatus.UNKNOWN, EngineName.MERGE, None, str(error))

    def exhausted(self) -> CommitOutcome:
        """Return the outcome after the last try."""
        counts = CommitCounts(foreign_conflicts=self._conflicts)
        reason = self._failures[-1] if self._failures else ""
        return CommitOutcome(CommitStatus.FAILED_RETRY, EngineName.MERGE, None, reason, counts)

    # --- cleanup

    def delete_files_of_failed_attempts(self) -> None:
        """Delete what attempts wrote that did not land.

        Rule 17: if a swap was sent, nothing is deleted unless a commit of this run has landed.
        Files that stay have the prefix of this epoch, and rule 18 removes them; manifests that stay
        are orphans for the table's maintenance.
        """
        landed = self.attempt_of(self._landed) if self._landed is not None else None
        table = self._table
        if table is None or (self._swaps and landed is None):
            return
        paths: set[str] = set()
        try:
            for cycle in self._cycles:
                if landed is not None and cycle is landed.cycle:
                    paths.update(cycle.superseded)
                    continue
                paths.update(cycle.written)
                for rule in self.rules:
                    rule.discard(cycle)
            with translating(table.name):
                for update, _ in self._swaps:
                    if update.snapshot_id != self._landed:
                        paths.update(table.own_metadata_files(update.snapshot))
                for path in paths:
                    table.delete_file(path)
        except ConnectError as error:
            log.info(
                "table %s: files of failed attempts remain until the next cleanup: %s",
                table.name,
                error,
            )
