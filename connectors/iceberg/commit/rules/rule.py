"""`CommitRule` and `RuleRun`: how an optional feature takes part in commits.

A rule is one object per Spark session. For each commit that uses the feature, it provides a run.
The engine calls the hooks on the commit thread of the driver, in the order of `RuleRun` and, within
a hook, in the order of `all_rules`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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
    """The hooks of one rule for one commit. Every hook does nothing by default, and may be called
    several times."""

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

    def discard(self, cycle: CycleTable) -> None:
        """Delete what the rule wrote to other tables for an attempt that can no longer land."""
