"""Commits awaiting approval (rule 34 of the commit protocol). No I/O.

These commits are on a separate branch that starts at the head of the commit ref. While the branch
is ahead of the ref, the connector commits only to the branch. A table property lists the violated
expectations. After a user has discarded such commits, the property also specifies how their rows
are handled when they are read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.protocol.ledger import Ledger, group_of
from connectors.iceberg.protocol.positions import Position, TopicPartition, nest, unnest

UNPUBLISHED: Final = "connect-py.unpublished."  # property name without the group ID
_MAX_COMMITS: Final = 100  # maximum number of commits in the property


def unpublished_key(property_key: str) -> str:
    """Return the property name for the connector whose ledger has this key."""
    return UNPUBLISHED + group_of(property_key)


@dataclass(frozen=True, slots=True)
class UnpublishedCommit:
    """Commit that violated expectations."""

    snapshot: int
    commit: str  # commit ID
    timestamp_ms: int
    failed: Mapping[str, int]  # number of violating rows by violated expectation; 0 for a query

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that represents the commit in the property."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ComesAgain:
    """Action that a user chose for discarded rows that the connector reads again."""

    action: ExpectationAction  # `DROP` or `DEAD_LETTER`; applies instead of `HOLD`
    through: Mapping[TopicPartition, Position]  # positions after the discarded rows
    # violated expectations, or None if written by an earlier release, which did not record them
    names: frozenset[str] | None = None

    def applies_to(self, expectation: Expectation) -> bool:
        """Return True if the action applies to the rows that violate an expectation.

        It does not apply to expectations that were not violated when the user chose the action.
        """
        if expectation.action is not ExpectationAction.HOLD or expectation.is_query:
            return False
        return self.names is None or expectation.name in self.names

    def covers(self, ledger: Ledger) -> bool:
        """Return True if a commit with this ledger may contain some of these rows."""
        entries = ((ledger.entry(partition), end) for partition, end in self.through.items())
        return any(
            entry is not None and Position(entry.generation, entry.base) < end
            for entry, end in entries
        )

    def is_over(self, ledger: Ledger) -> bool:
        """Return True if no commit after this ledger can contain any of these rows."""
        entries = ((ledger.entry(partition), end) for partition, end in self.through.items())
        return all(entry is None or entry.position >= end for entry, end in entries)


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Value of the table property."""

    commits: tuple[UnpublishedCommit, ...] = ()  # commits that violated expectations, oldest first
    again: ComesAgain | None = None
    # commit ref, or empty if no commit awaits approval or an earlier release wrote the property
    ref: str = ""

    def with_commit(self, commit: UnpublishedCommit) -> Unpublished:
        """Return a copy with another commit, unless there are already 100 commits.

        The oldest commits are retained, because they show why the later ones are not published.
        """
        if len(self.commits) >= _MAX_COMMITS:
            return self
        return replace(self, commits=(*self.commits, commit))

    def to_text(self) -> str:
        """Encode the property. The result is empty if there is nothing to record."""
        document: dict[str, Any] = {}
        if self.commits:
            document["commits"] = [each.to_json() for each in self.commits]
        if self.ref:
            document["ref"] = self.ref
        if self.again is not None:
            again = {"action": self.again.action.value, "through": nest(self.again.through, list)}
            names = {} if self.again.names is None else {"expectations": sorted(self.again.names)}
            document["again"] = {**again, **names}
        return json.dumps(document, separators=(",", ":")) if document else ""

    @staticmethod
    def of_text(text: str) -> Unpublished:
        """Decode the property.

        Raises:
            ValueError: The value was not written by the sink.
        """
        if not text:
            return Unpublished()
        try:
            document = json.loads(text)
            commits = tuple(UnpublishedCommit(**each) for each in document.get("commits", ()))
            ref, order = document.get("ref", ""), document.get("again")
            if order is None:
                return Unpublished(commits, ref=ref)
            through = unnest(order["through"], lambda row: Position(*row))
            names = frozenset(order["expectations"]) if "expectations" in order else None
            return Unpublished(
                commits, ComesAgain(ExpectationAction(order["action"]), through, names), ref
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"invalid property {UNPUBLISHED}…: {error!r}") from error
