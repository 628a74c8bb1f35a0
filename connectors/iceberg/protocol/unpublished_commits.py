"""Commits that readers do not see until a user decides: rule 34. Pure.

They stand on a branch of their own, which begins at the head of the commit ref. While the branch is
ahead of the ref, every commit of the connector goes there. A property of the table says which
expectations failed, and, once a user threw unpublished commits away, what becomes of their rows
when they come again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.protocol.ledger import Ledger, group_of
from connectors.iceberg.protocol.positions import Position, TopicPartition, nest, unnest

# and the connect group id: property of the table; empty: there is nothing to say
UNPUBLISHED: Final = "connect-py.unpublished."
_MOST: Final = 100  # commits that the property tells of


def unpublished_key(property_key: str) -> str:
    """The property of the connector whose ledger has this key."""
    return UNPUBLISHED + group_of(property_key)


@dataclass(frozen=True, slots=True)
class UnpublishedCommit:
    """A commit that was not as expected."""

    snapshot: int
    commit: str  # its id
    timestamp_ms: int
    failed: Mapping[str, int]  # rows by expectation; of a query 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ComesAgain:
    """What a user decided about rows that were thrown away, and that the connector reads again."""

    action: ExpectationAction  # in place of `hold`: drop or dead-letter
    through: Mapping[TopicPartition, Position]  # where they end
    # of the expectations that had failed; None: an earlier release wrote none
    names: frozenset[str] | None = None

    def applies_to(self, expectation: Expectation) -> bool:
        """Whether rows are left out, of a commit that this covers: an expectation that had not
        failed was not seen."""
        if expectation.action is not ExpectationAction.HOLD or expectation.is_query:
            return False
        return self.names is None or expectation.name in self.names

    def covers(self, ledger: Ledger) -> bool:
        """Whether a commit with this ledger may hold some of these rows."""
        entries = ((ledger.entry(partition), end) for partition, end in self.through.items())
        return any(
            entry is not None and Position(entry.generation, entry.base) < end
            for entry, end in entries
        )

    def is_over(self, ledger: Ledger) -> bool:
        """Whether no later commit holds any of them."""
        entries = ((ledger.entry(partition), end) for partition, end in self.through.items())
        return all(entry is None or entry.position >= end for entry, end in entries)


@dataclass(frozen=True, slots=True)
class Unpublished:
    """What the property says."""

    commits: tuple[UnpublishedCommit, ...] = ()  # those that failed, oldest first
    again: ComesAgain | None = None
    # that the branch is ahead of; empty: nothing is unpublished, or an earlier release wrote none
    ref: str = ""

    def with_commit(self, commit: UnpublishedCommit) -> Unpublished:
        """Beyond a hundred the newest is left out: the oldest say why readers wait."""
        return (
            self if len(self.commits) >= _MOST else replace(self, commits=(*self.commits, commit))
        )

    def to_text(self) -> str:
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
        """ValueError: it is not of this form."""
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
            raise ValueError(
                f"property {UNPUBLISHED}… is not of the sink's form: {error!r}"
            ) from error
