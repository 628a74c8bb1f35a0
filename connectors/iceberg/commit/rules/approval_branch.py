"""Commits that await approval go to a branch that readers do not see (rule 34)."""

from __future__ import annotations

import dataclasses
import time

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.expectations import ExpectationCheck
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
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

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks if the request names an approval branch."""
        branch = request.unpublished_branch
        return None if branch is None else _ApprovalBranchRun(request, branch)


class _ApprovalBranchRun(RuleRun):
    def __init__(self, request: CommitRequest, branch: str) -> None:
        self._request = request
        self._branch = branch
        self._key = unpublished_key(request.property_key)
        self._ledger = Ledger.from_json(request.summary[request.property_key])

    def resolve(self, request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
        """Let the request follow held commits, and apply what a user decided about its rows."""
        ref = metadata.commit_ref(request.ref, self._branch)
        again = self._state(metadata).again
        expectations = request.expectations
        if again is not None and again.covers(self._ledger):
            expectations = tuple(
                dataclasses.replace(each, action=again.action) if again.applies_to(each) else each
                for each in expectations
            )
        if ref == request.ref and expectations is request.expectations:
            return request
        return dataclasses.replace(request, ref=ref, expectations=expectations)

    def inspect(self, attempt: Attempt) -> None:
        """Redirect a commit that is held."""
        if _failures_to_hold(attempt) is not None:
            attempt.target_ref = self._branch

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Record why commits are held, and remove the branch if it is not ahead of the ref any
        more."""
        base, ref = update.base(), attempt.cycle.request.ref
        if self._branch in base.refs and attempt.target_ref != self._branch:
            update.remove_ref(self._branch)
        failed_check = _failures_to_hold(attempt)
        state = self._state(base)
        if ref != self._branch:  # no commit was held until now
            state = Unpublished((), state.again, ref if failed_check is not None else "")
        is_visible = attempt.target_ref != self._branch  # a held commit may be discarded again
        if is_visible and state.again is not None and state.again.is_over(self._ledger):
            state = dataclasses.replace(state, again=None)
        if failed_check is not None:
            now_ms = int(time.time() * 1000)
            commit = UnpublishedCommit(
                update.snapshot_id, self._request.commit_id, now_ms, failed_check.failed
            )
            state = state.with_commit(commit)
        text = state.to_text()
        if text != base.properties.get(self._key, ""):
            update.set_properties({self._key: text})

    def outcome(self, attempt: Attempt, outcome: CommitOutcome) -> CommitOutcome:
        """Report whether the commit is held."""
        return dataclasses.replace(outcome, unpublished=attempt.target_ref == self._branch)

    def _state(self, metadata: TableMetadata) -> Unpublished:
        return Unpublished.of_text(metadata.properties.get(self._key, ""))


def _failures_to_hold(attempt: Attempt) -> ExpectationCheck | None:
    """Return the expectations that hold this commit, or None if it is not held."""
    check = attempt.cycle.findings.get(ExpectationCheck)
    return check if check is not None and check.holds else None
