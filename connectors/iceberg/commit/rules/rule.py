"""`CommitRule`: an optional feature of commits.

The engine calls the hooks of the rules that a commit uses. It calls them on the driver thread that
runs the commit, in the order in which `CommitRule` defines the hooks. For each hook, it calls the
rules in the order that `RuleSet.of` returns.
"""

from __future__ import annotations

from collections.abc import Callable

from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata

Commit = Callable[[CommitRequest], CommitOutcome]  # `CommitEngine.commit`


class CommitRule:
    """Hooks for one optional feature.

    By default, a hook does nothing. A hook may be called several times for one commit. Rules store
    their state for a commit in `Attempt.findings`.
    """

    changes_rows: bool = False  # True if `change_rows` may replace the rows

    def resolve(self, request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
        """Return the request for this metadata, for example with the approval branch as its ref.

        Called first for the loaded metadata, and later for the metadata that the swap replaces.
        """
        return request

    def change_rows(self, attempt: Attempt) -> None:
        """Transform or filter the rows of the attempt.

        Raises:
            SchemaEvolvedError: The rule added columns to the table. The attempt starts over.
        """

    def inspect(self, attempt: Attempt) -> None:
        """Check the rows before and after the change, and redirect `target_ref` if necessary.

        Raises:
            ExpectationFailedError: An expectation prevents the commit.
        """

    def prepare(self, attempt: Attempt, update: TableUpdate) -> None:
        """Change refs before the snapshot of the attempt is added to `target_ref`."""

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Add refs and properties to the update after its snapshot has been added."""

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Run follow-up work for a commit that landed, such as commits to other tables.

        Raises:
            CatalogUnavailableError: The work failed. `RuleSet.settle` repeats it with the next
                commit.
        """

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Return the outcome, extended with this rule's results."""
        return outcome

    def discard(self, attempt: Attempt) -> None:
        """Delete the files that the rule wrote to other tables.

        Called for attempts that can no longer land.
        """
