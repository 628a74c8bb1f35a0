"""What a user decides about unpublished commits, in the Spark driver: one compare-and-swap each
(rule 34).

- `PUBLISH`: the ref moves to the head of their branch, exactly as it stands.
- `REPLAY`: the branch goes. The ref's own ledger is an older one, and the connector reads again
  from there (rule 8).
- `DROP`, `DEAD_LETTER`: the same, and rows that come again and are not as expected are left out, or
  kept elsewhere.
- `SKIP`: the branch goes, and its positions stay with the ref (rule 33): none of its rows come
  again.

A crash before the swap leaves everything as it was, one after it the decision done.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

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
_OF_GROUPS: Final = (LEDGER_PREFIX, UNPUBLISHED)  # properties of a table


class Decision(Enum):
    """What becomes of unpublished commits."""

    PUBLISH = "publish"
    REPLAY = "replay"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class UnpublishedCommits:
    """Those of one connector, on one table."""

    group: str  # connect group
    ref: str
    branch: str
    head: int  # of the branch
    published: int | None  # head of the ref
    failed: tuple[UnpublishedCommit, ...]  # those that were not as expected, oldest first
    commits: int  # of the connector, with those that were as expected
    forward: bool  # whether the ref can move to the branch's head: nothing else was committed to it

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
    """A decision about what was looked at: it is refused if the table is not like that any more."""

    decision: Decision
    found: UnpublishedCommits


def groups_of(metadata: TableMetadata) -> list[str]:
    """The connectors that committed to a table."""
    names = (
        key.removeprefix(prefix)
        for key in metadata.properties
        for prefix in _OF_GROUPS
        if key.startswith(prefix)
    )
    return sorted(set(names))


def unpublished_commits(
    metadata: TableMetadata, groups: Mapping[str, str]
) -> list[UnpublishedCommits]:
    """Those of some connectors.

    Args: groups: connect group -> ref that it commits to, unless the table says which: a branch of
        an earlier release
            says nothing.
    """
    found = []
    for group, ref in sorted(groups.items()):
        branch = unpublished_branch(group)
        if branch in metadata.refs:
            state = Unpublished.of_text(
                metadata.properties.get(unpublished_key(ledger_key(group)), "")
            )
            followed = state.ref or ref
            if metadata.commit_ref(followed, branch) == branch:
                found.append(_unpublished(metadata, group, followed, state))
    return found


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
    """Why a decision cannot be carried out; empty: it can."""
    found = request.found
    if request.decision is Decision.PUBLISH:
        return (
            ""
            if found.forward
            else (
                f"{found.ref} has commits that branch {found.branch} does not have, so it cannot "
                f"move there: throw the "
                "unpublished commits away, and the connector makes them again behind those"
            )
        )
    if request.decision in (Decision.DROP, Decision.DEAD_LETTER):
        queries = sorted(
            {name for each in found.failed for name, rows in each.failed.items() if not rows}
        )
        if queries:
            return (
                f"{', '.join(queries)} names no rows that could be left out: replay, or skip "
                f"all rows"
            )
    return ""


def decide(session: LakeSession, name: str, request: DecisionRequest) -> None:
    """Carry a decision out.

    Raises: TableUnsuitableError: The table is not as it was looked at, or the decision is not
        possible: `why_not`.
    """
    found = request.found
    prepared = session.table(name).new_update()
    base = prepared.base()
    now = unpublished_commits(base, {found.group: found.ref})
    if now != [found]:
        raise TableUnsuitableError(name, "was committed to meanwhile: look again")
    if why := why_not(request):
        raise TableUnsuitableError(name, why)
    key = ledger_key(found.group)
    lookup = look_up(base.view(found.branch, key))
    state = Unpublished.of_text(base.properties.get(unpublished_key(key), ""))
    stays = state.again  # decided before, about rows that may still come again
    if (
        stays is not None
        and request.decision in (Decision.PUBLISH, Decision.SKIP)
        and lookup.ledger is not None
    ):
        stays = None if stays.is_over(lookup.ledger) else stays
    properties = {unpublished_key(key): Unpublished((), stays).to_text()}
    if request.decision is Decision.PUBLISH:
        prepared.publish(found.ref, found.head)
    elif request.decision is Decision.SKIP:
        ledger = skipping(_ledger(name, lookup))
        summary = skip_summary(base, found.ref, found.group, ledger)
        if found.published is None:
            prepared.add(TableChange(), found.ref, summary)
        else:
            prepared.stand_on(found.ref, found.published, summary)
        properties[key] = LedgerProperty(ledger, prepared.snapshot_id, lookup.opened).to_json()
        properties |= open_pairs_property(base, key, summary)
        prepared.remove_compared(found.branch)  # rows of a commit since would be nowhere
    else:
        prepared.change()
        if request.decision is not Decision.REPLAY:
            action = ExpectationAction(request.decision.value)
            order = _comes_again(action, _ledger(name, lookup), state)
            properties[unpublished_key(key)] = Unpublished((), order).to_text()
    if request.decision is not Decision.SKIP:
        prepared.remove_ref(found.branch)
    swap_once(prepared, name, found.ref, properties)
    log.info(
        "table %s: %d unpublished commits of %s: %s",
        name,
        found.commits,
        found.group,
        request.decision.value,
        extra={"action": "gate_decision", "table": name},
    )


def _ledger(name: str, lookup: Lookup) -> Ledger:
    if lookup.ledger is None:
        raise TableUnsuitableError(name, "the unpublished commits have no ledger left")
    return lookup.ledger


def _comes_again(action: ExpectationAction, ledger: Ledger, state: Unpublished) -> ComesAgain:
    """The order about these rows; what was decided before of some of them counts on.

    Rows of the earlier decision that lie behind these are held again: no user has seen those fail
    what failed now.
    """
    names = {name for each in state.commits for name in each.failed}
    if state.again is None:
        return ComesAgain(action, ledger.positions(), frozenset(names))
    before = state.again.names
    return ComesAgain(action, ledger.positions(), None if before is None else before | names)
