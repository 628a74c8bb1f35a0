"""Where a commit goes that readers may not see, and what the same swap says about it: rule 34."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from connectors.iceberg.protocol.ledger import Ledger
from connectors.iceberg.protocol.unpublished_commits import Unpublished, UnpublishedCommit, unpublished_key

if TYPE_CHECKING:
    from connectors.iceberg.catalog.table_update import PreparedCommit
    from connectors.iceberg.commit.rules.expectations import ExpectationCheck
    from connectors.iceberg.protocol.commit_request import CommitRequest
    from connectors.iceberg.protocol.table_metadata import TableMetadata


def request_at(metadata: TableMetadata, request: CommitRequest) -> CommitRequest:
    """The request on this metadata: it follows unpublished commits, and what a user decided about rows counts."""
    ref = metadata.commit_ref(request.ref, request.unpublished_branch)
    again = _state(metadata, request).again
    expectations = request.expectations
    if again is not None and again.covers(_ledger(request)):
        expectations = tuple(
            dataclasses.replace(each, action=again.action) if again.applies_to(each) else each for each in expectations
        )
    return dataclasses.replace(request, ref=ref, expectations=expectations)


def target_ref(request: CommitRequest, check: ExpectationCheck) -> str:
    """The ref that the snapshot of a request of `request_at` goes to."""
    return request.unpublished_branch if check.holds and request.unpublished_branch is not None else request.ref


def begin_branch(prepared: PreparedCommit, base: TableMetadata, request: CommitRequest, target: str) -> None:
    """Have the branch of unpublished commits where it is needed, at the head of the ref; one of no use is removed."""
    if target != request.ref:
        head = base.head(request.ref)
        prepared.begin_branch(target, None if head is None else head["snapshot-id"])
    elif request.unpublished_branch in base.refs and target != request.unpublished_branch:
        prepared.end_branch(str(request.unpublished_branch))


def unpublished_property(
    prepared: PreparedCommit, base: TableMetadata, request: CommitRequest, check: ExpectationCheck
) -> dict[str, str]:
    """The property that says why commits are unpublished; empty: it stays as it is."""
    known, state = base.properties.get(unpublished_key(request.property_key), ""), _state(base, request)
    if request.ref != request.unpublished_branch:  # nothing was unpublished until now
        state = Unpublished((), state.again, request.ref if check.holds else "")
    shown = target_ref(request, check) != request.unpublished_branch  # else they may be thrown away once more
    if shown and state.again is not None and state.again.is_over(_ledger(request)):
        state = dataclasses.replace(state, again=None)
    if check.holds:
        made = UnpublishedCommit(prepared.snapshot_id, request.commit_id, int(time.time() * 1000), check.failed)
        state = state.with_commit(made)
    text = state.to_text()
    return {unpublished_key(request.property_key): text} if text != known else {}


def _state(metadata: TableMetadata, request: CommitRequest) -> Unpublished:
    return Unpublished.of_text(metadata.properties.get(unpublished_key(request.property_key), ""))


def _ledger(request: CommitRequest) -> Ledger:
    return Ledger.from_json(request.summary[request.property_key])
