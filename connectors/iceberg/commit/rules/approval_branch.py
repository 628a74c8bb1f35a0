"""`ApprovalBranch`: writes commits that await approval to a separate branch.

A commit is held if it violates an expectation with the action `hold`. The approval branch contains
held commits until a user publishes or discards them. See rule 34 of the commit protocol.
"""

from __future__ import annotations

import dataclasses
import time

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.expectations import ExpectationCheck
from connectors.iceberg.commit.rules.rule import CommitRule
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest
from connectors.iceberg.protocol.ledger import Ledger
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.protocol.unpublished_commits import (
    Unpublished,
    UnpublishedCommit,
    unpublished_key,
)


class ApprovalBranch(CommitRule):
    """Redirects held commits, and the commits that follow them, to the approval branch."""

    def resolve(self, request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
        """Use the approval branch if commits are held.

        If the commit may contain rows from discarded commits, the action that the user chose for
        these rows replaces `hold`.
        """
        ref = metadata.commit_ref(request.ref, request.unpublished_branch)
        again = _state(request, metadata).again
        expectations = request.expectations
        if again is not None and again.covers(_ledger(request)):
            expectations = tuple(
                dataclasses.replace(each, action=again.action) if again.applies_to(each) else each
                for each in expectations
            )
        if ref == request.ref and expectations is request.expectations:
            return request
        return dataclasses.replace(request, ref=ref, expectations=expectations)

    def inspect(self, attempt: Attempt) -> None:
        """Redirect the commit to the approval branch if it is held."""
        if _failures_to_hold(attempt) is not None:
            attempt.target_ref = str(attempt.request.unpublished_branch)

    def prepare(self, attempt: Attempt, update: TableUpdate) -> None:
        """Create the approval branch at the head of the commit ref for the first held commit."""
        if attempt.target_ref != attempt.request.ref:
            head = update.base().head(attempt.request.ref)
            update.begin_branch(attempt.target_ref, None if head is None else head["snapshot-id"])

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Record why commits are held. Remove the approval branch if this commit is visible."""
        request, base = attempt.request, update.base()
        branch, is_visible = request.unpublished_branch, _is_visible(attempt)
        if branch in base.refs and is_visible:
            update.remove_ref(str(branch))
        failures = _failures_to_hold(attempt)
        state = _state(request, base)
        if request.ref != branch:  # no commits were held before
            state = Unpublished((), state.again, request.ref if failures is not None else "")
        # the user's decision remains while a commit is held, because that commit may also be
        # discarded
        if is_visible and state.again is not None and state.again.is_over(_ledger(request)):
            state = dataclasses.replace(state, again=None)
        if failures is not None:
            now_ms = int(time.time() * 1000)
            state = state.with_commit(
                UnpublishedCommit(update.snapshot_id, request.commit_id, now_ms, failures.failed)
            )
        key, value = unpublished_key(request.property_key), state.to_text()
        if value != base.properties.get(key, ""):
            update.set_properties({key: value})

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Report whether the commit is held."""
        return dataclasses.replace(outcome, unpublished=not _is_visible(attempt))


def _state(request: CommitRequest, metadata: TableMetadata) -> Unpublished:
    return Unpublished.of_text(metadata.properties.get(unpublished_key(request.property_key), ""))


def _ledger(request: CommitRequest) -> Ledger:
    return Ledger.from_json(request.summary[request.property_key])


def _is_visible(attempt: Attempt) -> bool:
    return attempt.target_ref != attempt.request.unpublished_branch


def _failures_to_hold(attempt: Attempt) -> ExpectationCheck | None:
    """Return the check whose expectations hold this commit, or None if it is not held."""
    check = attempt.findings.get(ExpectationCheck)
    return check if check is not None and check.holds else None
