"""A table property repeats the file of open pairs (rule 31), for when other writers expire our
snapshots."""

from __future__ import annotations

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.partial_rows import open_pairs_property
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.protocol.commit_request import CommitRequest
from connectors.iceberg.table.table import WriteMode


class OpenPairs(CommitRule):
    """Keeps the property in step with the summary of the last commit."""

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks for commits that replace rows."""
        return _OpenPairsRun(request.property_key) if request.mode is WriteMode.MERGE else None


class _OpenPairsRun(RuleRun):
    def __init__(self, property_key: str) -> None:
        self._property_key = property_key

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Set the property to the file in the summary."""
        update.set_properties(
            open_pairs_property(update.base(), self._property_key, attempt.rows.summary)
        )
