"""`RuleSet`: the optional commit features in one session."""

from __future__ import annotations

from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.commit.rules.aggregates import PENDING, Aggregates
from connectors.iceberg.commit.rules.approval_branch import ApprovalBranch
from connectors.iceberg.commit.rules.cycle_step import UserStep
from connectors.iceberg.commit.rules.expectations import Expectations
from connectors.iceberg.commit.rules.rejected_rows import REJECTED, RejectedRows
from connectors.iceberg.commit.rules.rule import Commit, CommitRule
from connectors.iceberg.commit.rules.scheduled_tags import ScheduledTags
from connectors.iceberg.commit.rules.scratch_branches import ScratchBranches
from connectors.iceberg.protocol.commit_request import CommitRequest
from connectors.iceberg.protocol.ledger import group_of
from connectors.iceberg.protocol.table_metadata import TableMetadata


class RuleSet:
    """Selects the rules that a commit uses."""

    def __init__(self, catalog: JavaCatalog, commit: Commit) -> None:
        """Create the rules. `commit` is `CommitEngine.commit`, for commits to other tables."""
        self._rejected_rows = RejectedRows(catalog, commit)
        self._aggregates = Aggregates(catalog, commit)

    def of(self, request: CommitRequest, metadata: TableMetadata) -> list[CommitRule]:
        """Return the rules that a commit uses, in the order in which they are called.

        They include rules that have finished earlier work, because each of them must clear the
        property that announced the work.
        """
        has_scratch = any(name.startswith(request.work_branch) for name in metadata.refs)
        uses: list[tuple[CommitRule, bool]] = [
            (UserStep(), request.step is not None),
            (Expectations(), bool(request.expectations)),
            (self._rejected_rows, bool(request.expectations or self._rejected_rows.settled)),
            (ApprovalBranch(), request.unpublished_branch is not None),
            (self._aggregates, bool(request.aggregates or self._aggregates.settled)),
            (ScheduledTags(), bool(request.tags) or request.ledger_tag is not None),
            (ScratchBranches(), has_scratch),
        ]
        return [rule for rule, is_used in uses if is_used]

    def settle(self, table: JavaTable, property_key: str, request: CommitRequest | None) -> None:
        """Finish the work that an earlier commit announced in the table's properties.

        Args:
            table: The table, which was just loaded.
            property_key: The table property that contains the connector's ledger.
            request: The commit that is about to begin, or None if the table is being opened.

        Raises:
            CatalogUnavailableError: The commit must wait, or the table cannot be opened yet.
        """
        properties, group = table.metadata().properties, group_of(property_key)
        if request is not None and (announced := properties.get(REJECTED + group)):
            self._rejected_rows.append_announced(table, request, announced)
        if announced := properties.get(PENDING + group):
            self._aggregates.settle(table.name, group, announced)
