"""`EvolutionPolicy`: what is done about each kind of change that records ask a table for. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from connectors.iceberg.schema_change import ChangeKind


class ChangeAction(Enum):
    """What is done about a change of a table's schema."""

    APPLY = "apply"  # the coordinator makes it
    IGNORE = "ignore"  # the table stays; fields without a column are dropped, values must fit their columns
    HOLD = "hold"  # partitions wait at the first such row until a user changes the table or the configuration
    DEAD_LETTER = "dead-letter"  # the rows are bad records


@dataclass(frozen=True, slots=True)
class EvolutionPolicy:
    """An action per kind of change."""

    add: ChangeAction = ChangeAction.APPLY
    widen: ChangeAction = ChangeAction.APPLY
    optional: ChangeAction = ChangeAction.APPLY
    rename: ChangeAction = ChangeAction.IGNORE  # ignored: a renamed field is a new column
    incompatible: ChangeAction = ChangeAction.IGNORE  # ignored: the conversion of each value decides

    def action(self, kind: ChangeKind) -> ChangeAction:
        """What is done about changes of this kind."""
        return {
            ChangeKind.ADD: self.add, ChangeKind.WIDEN: self.widen, ChangeKind.OPTIONAL: self.optional,
            ChangeKind.RENAME: self.rename, ChangeKind.VERSION: self.incompatible,
        }[kind]  # fmt: skip
