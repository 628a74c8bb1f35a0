"""`CommitRule` and `RuleRun`: how an optional feature takes part in commits.

A rule is one object per Spark session. For each commit that uses the feature, it provides a run, whose hooks the engine
calls on the commit thread of the driver, in the order of this class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.catalog.table_update import TableUpdate
    from connectors.iceberg.commit.attempt import Attempt
    from connectors.iceberg.commit.cycle_rows import CycleRows
    from connectors.iceberg.commit.cycle_table import CycleTable
    from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest
    from connectors.iceberg.protocol.table_metadata import TableMetadata

    Commit = Callable[[CommitRequest], CommitOutcome]  # of the engine, for commits to other tables


class CommitRule(ABC):
    """An optional feature of commits, with its state across commits."""

    @abstractmethod
    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks for one commit, or None if the request does not use this feature."""

    def settle(self, table: JavaTable, property_key: str, request: CommitRequest | None) -> None:
        """Finish what an earlier commit announced in the table's properties, such as rejected rows.

        Args:
            table: The table, just loaded.
            property_key: The ledger property of the connector.
            request: The commit that is about to begin; None: the table is being opened.

        Raises:
            CatalogUnavailableError: The commit has to wait.
        """


class RuleRun:
    """The hooks of one rule for one commit. Every hook does nothing by default, and may be called several times."""

    changes_rows: bool = False  # whether `rows` may return other rows

    def resolve(self, request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
        """Return the request for this metadata, for example with the approval branch as its ref.

        Called for the loaded metadata, and again for the metadata that the swap replaces.
        """
        return request

    def rows(self, cycle: CycleTable, rows: CycleRows) -> CycleRows:
        """Return the rows to commit: transformed, filtered, or unchanged.

        Raises:
            SchemaEvolvedError: The rule added columns to the table; the attempt starts over.
        """
        return rows

    def inspect(self, attempt: Attempt) -> None:
        """Check the rows before and after the change, and redirect `target_ref` if necessary.

        Raises:
            ExpectationFailedError: The commit must not happen.
        """

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Add refs, tags, and properties to the update, whose snapshot exists."""

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Run follow-up work, such as commits to other tables.

        Raises:
            CatalogUnavailableError: `settle` of the next commit repeats the work.
        """

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Return the outcome with the results of this rule."""
        return outcome

    def discard(self, attempt: Attempt) -> None:
        """Delete what the rule wrote to other tables for an attempt that can no longer land."""


class RuleRuns:
    """The runs of one commit, called one after the other."""

    def __init__(self, runs: Sequence[RuleRun]) -> None:
        self._runs = runs
        self.change_rows = any(run.changes_rows for run in runs)

    def resolve(self, request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
        """See `RuleRun.resolve`."""
        for run in self._runs:
            request = run.resolve(request, metadata)
        return request

    def rows(self, cycle: CycleTable, rows: CycleRows) -> CycleRows:
        """See `RuleRun.rows`."""
        for run in self._runs:
            rows = run.rows(cycle, rows)
        return rows

    def inspect(self, attempt: Attempt) -> None:
        """See `RuleRun.inspect`."""
        for run in self._runs:
            run.inspect(attempt)

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """See `RuleRun.amend`."""
        for run in self._runs:
            run.amend(attempt, update)

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """See `RuleRun.committed`."""
        for run in self._runs:
            run.committed(attempt, table)

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """See `RuleRun.outcome`."""
        for run in self._runs:
            outcome = run.outcome(attempt, outcome)
        return outcome

    def discard(self, attempt: Attempt) -> None:
        """See `RuleRun.discard`."""
        for run in self._runs:
            run.discard(attempt)


class Rules:
    """The rules of one session, in the order in which their hooks are called."""

    def __init__(self, rules: Sequence[CommitRule]) -> None:
        self._rules = rules

    def begin(self, request: CommitRequest) -> RuleRuns:
        """Return the hooks for one commit."""
        runs = (rule.begin(request) for rule in self._rules)
        return RuleRuns([run for run in runs if run is not None])

    def settle(self, table: JavaTable, property_key: str, request: CommitRequest | None) -> None:
        """See `CommitRule.settle`."""
        for rule in self._rules:
            rule.settle(table, property_key, request)
