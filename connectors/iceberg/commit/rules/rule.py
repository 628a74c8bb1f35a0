"""`CommitRule`: an optional feature of commits.

The engine calls the hooks of the features that a commit uses on the commit thread of the driver, in
the order of this class and, within a hook, in the order of `RuleSet.of`.
"""

from __future__ import annotations

from collections.abc import Callable

from connectors.iceberg.catalog.java_catalog import JavaTable
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata

Commit = Callable[[CommitRequest], CommitOutcome]  # of the engine, for commits to other tables


class CommitRule:
    """The hooks of one feature. Every hook does nothing by default, and may be called several
    times for one commit. State of a commit belongs in `Attempt.findings`."""

    changes_rows: bool = False  # `change_rows` may replace the rows

    def resolve(self, request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
        """Return the request for this metadata, for example with the approval branch as its ref.

        Called for the loaded metadata, and again for the metadata that the swap replaces.
        """
        return request

    def change_rows(self, attempt: Attempt) -> None:
        """Transform or filter the rows of the attempt.

        Raises:
            SchemaEvolvedError: The rule added columns to the table; the attempt starts over.
        """

    def inspect(self, attempt: Attempt) -> None:
        """Check the rows before and after the change, and redirect `target_ref` if necessary.

        Raises:
            ExpectationFailedError: The commit must not happen.
        """

    def prepare(self, attempt: Attempt, update: TableUpdate) -> None:
        """Change refs before the snapshot of the attempt is added to `target_ref`."""

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Add refs, tags, and properties to the update, whose snapshot exists."""

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Run follow-up work, such as commits to other tables. The commit of the attempt landed.

        Raises:
            CatalogUnavailableError: `RuleSet.settle` of the next commit repeats the work.
        """

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Return the outcome with the results of this rule."""
        return outcome

    def discard(self, attempt: Attempt) -> None:
        """Delete the files that the rule wrote to other tables for an attempt that can no longer
        land."""
