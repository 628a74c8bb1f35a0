"""Apply a user's decision about commits awaiting approval. Runs in the Spark driver.

Each decision is one compare-and-swap (rule 34 of the commit protocol):

- `PUBLISH`: the ref moves to the head of the branch.
- `REPLAY`: the branch is removed. The ref has an older ledger, and the connector reads again from
  the positions in that ledger (rule 8).
- `DROP`, `DEAD_LETTER`: like `REPLAY`, but rows that fail the checks again are dropped or stored as
  rejected rows.
- `SKIP`: the branch is removed and its positions are copied to the ref (rule 33), so its rows are
  not read again.

A crash before the swap leaves the table unchanged; a crash after it leaves the decision applied.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.table_update import TableChange
from connectors.iceberg.commit.partial_rows import open_pairs_property
from connectors.iceberg.config.expectations import ExpectationAction
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerProperty,
    Lookup,
    ledger_key,
    look_up,
)
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata
from connectors.iceberg.protocol.unpublished_commits import (
    UNPUBLISHED,
    ComesAgain,
    Unpublished,
    UnpublishedCommit,
    unpublished_key,
)
from connectors.iceberg.table.table_history import LEDGER_PREFIX
from connectors.iceberg_tools.refs.ref_changes import swap_once
from connectors.iceberg_tools.refs.table_rewind import skip_summary, skipping

if TYPE_CHECKING:
    from connectors.iceberg.driver.lake_session import LakeSession

log = logging.getLogger(__name__)
# prefixes of table properties whose names end with a connect group
_GROUP_PREFIXES: Final = (LEDGER_PREFIX, UNPUBLISHED)


class Decision(Enum):
    """Decision about unpublished commits."""

    PUBLISH = "publish"
    REPLAY = "replay"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class UnpublishedCommits:
    """One connector's unpublished commits to one table."""

    group: str  # connect group
    ref: str
    branch: str
    head: int  # head of the branch
    published: int | None  # head of the ref
    failed: tuple[UnpublishedCommit, ...]  # commits that failed a check, oldest first
    commits: int  # number of unpublished commits, including commits that passed all checks
    # whether the branch contains all commits on the ref, so the ref can move to the head
    forward: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "ref": self.ref,
            "published": self.published,
            "branch": self.branch,
            "head": self.head,
            "commits": self.commits,
            "can_publish": self.forward,
            "failed": [each.to_json() for each in self.failed],
        }


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """A decision about commits. It is refused if the commits have changed."""

    decision: Decision
    commits: UnpublishedCommits


def groups_of(metadata: TableMetadata) -> list[str]:
    """Return the connect groups that committed to a table."""
    names = (
        key.removeprefix(prefix)
        for key in metadata.properties
        for prefix in _GROUP_PREFIXES
        if key.startswith(prefix)
    )
    return sorted(set(names))


def unpublished_commits(
    metadata: TableMetadata, groups: Mapping[str, str]
) -> list[UnpublishedCommits]:
    """Return the unpublished commits of the connectors with these connect groups.

    Args:
        groups: Commit ref by connect group. A ref in the table's properties takes precedence, but
            earlier releases did not store one.
    """
    result = []
    for group, ref in sorted(groups.items()):
        branch = unpublished_branch(group)
        if branch in metadata.refs:
            state = Unpublished.of_text(
                metadata.properties.get(unpublished_key(ledger_key(group)), "")
            )
            commit_ref = state.ref or ref
            if metadata.commit_ref(commit_ref, branch) == branch:
                result.append(_unpublished(metadata, group, commit_ref, state))
    return result


def _unpublished(
    metadata: TableMetadata, group: str, ref: str, state: Unpublished
) -> UnpublishedCommits:
    key, branch = ledger_key(group), unpublished_branch(group)
    published = metadata.head(ref)
    head = None if published is None else int(published["snapshot-id"])

    def is_ahead(snapshot: Snapshot) -> bool:
        return bool(snapshot["snapshot-id"] != head)

    line = list(metadata.ancestors(metadata.snapshots[metadata.refs[branch]]))
    ahead = list(itertools.takewhile(is_ahead, line))
    complete = (
        len(ahead) < len(line) if head is not None else line[-1].get("parent-snapshot-id") is None
    )
    commits = sum(key in snapshot["summary"] for snapshot in ahead)
    return UnpublishedCommits(
        group, ref, branch, metadata.refs[branch], head, state.commits, commits, complete
    )


def why_not(request: DecisionRequest) -> str:
    """Return the reason why a decision cannot be applied, or an empty string if it can."""
    commits = request.commits
    if request.decision is Decision.PUBLISH:
        return (
            ""
            if commits.forward
            else (
                f"{commits.ref} has commits that are not in branch {commits.branch}, so it cannot "
                "move to the head of the branch. Reject the unpublished commits; the connector "
                "then repeats them"
            )
        )
    if request.decision in (Decision.DROP, Decision.DEAD_LETTER):
        queries = sorted(
            {name for each in commits.failed for name, rows in each.failed.items() if not rows}
        )
        if queries:
            return (
                f"{', '.join(queries)} does not identify the rows to reject; replay or skip all "
                "rows instead"
            )
    return ""


def decide(session: LakeSession, name: str, request: DecisionRequest) -> None:
    """Apply a decision.

    Raises:
        TableUnsuitableError: The commits have changed since the user inspected them, or `why_not`
            returns a reason.
    """
    commits = request.commits
    prepared = session.table(name).new_update()
    base = prepared.base()
    now = unpublished_commits(base, {commits.group: commits.ref})
    if now != [commits]:
        raise TableUnsuitableError(name, "has changed; check the unpublished commits again")
    if reason := why_not(request):
        raise TableUnsuitableError(name, reason)
    key = ledger_key(commits.group)
    lookup = look_up(base.view(commits.branch, key))
    state = Unpublished.of_text(base.properties.get(unpublished_key(key), ""))
    order = state.again  # an earlier decision about rows that are read again
    if (
        order is not None
        and request.decision in (Decision.PUBLISH, Decision.SKIP)
        and lookup.ledger is not None
    ):
        order = None if order.is_over(lookup.ledger) else order
    properties = {unpublished_key(key): Unpublished((), order).to_text()}
    if request.decision is Decision.PUBLISH:
        prepared.publish(commits.ref, commits.head)
    elif request.decision is Decision.SKIP:
        ledger = skipping(_ledger(name, lookup))
        summary = skip_summary(base, commits.ref, commits.group, ledger)
        if commits.published is None:
            prepared.add(TableChange(), commits.ref, summary)
        else:
            prepared.stand_on(commits.ref, commits.published, summary)
        properties[key] = LedgerProperty(ledger, prepared.snapshot_id, lookup.opened).to_json()
        properties |= open_pairs_property(base, key, summary)
        # The swap also fails if the branch has a new commit, whose rows would otherwise be lost.
        prepared.remove_compared(commits.branch)
    else:
        prepared.change()
        if request.decision is not Decision.REPLAY:
            action = ExpectationAction(request.decision.value)
            order = _rejection_order(action, _ledger(name, lookup), state)
            properties[unpublished_key(key)] = Unpublished((), order).to_text()
    if request.decision is not Decision.SKIP:
        prepared.remove_ref(commits.branch)
    swap_once(prepared, name, commits.ref, properties)
    log.info(
        "table %s: %s of %s: %s",
        name,
        pluralize(commits.commits, "unpublished commit"),
        commits.group,
        request.decision.value,
        extra={"action": "gate_decision", "table": name},
    )


def _ledger(name: str, lookup: Lookup) -> Ledger:
    if lookup.ledger is None:
        raise TableUnsuitableError(name, "the ledger of the unpublished commits is missing")
    return lookup.ledger


def _rejection_order(action: ExpectationAction, ledger: Ledger, state: Unpublished) -> ComesAgain:
    """Return the decision about rows that fail again when these offsets are read again.

    An earlier decision about some of the offsets is merged into it. If rows after these offsets
    were part of the earlier decision, they are held again, because no user has seen why they
    failed.
    """
    names = {name for each in state.commits for name in each.failed}
    if state.again is None:
        return ComesAgain(action, ledger.positions(), frozenset(names))
    before = state.again.names
    return ComesAgain(action, ledger.positions(), None if before is None else before | names)
