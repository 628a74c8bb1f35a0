"""`EvolutionPolicy`: what is done about each kind of change that records ask a table for. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from connectors.iceberg.schema_change import ChangeKind


class ChangeAction(Enum):
    """What is done about a change of a table's schema."""

    APPLY = "apply"  # the coordinator makes it
    IGNORE = "ignore"  # the table stays; fields without a column are dropped, values must fit their columns
    HOLD = "hold"  # partitions wait at the first such row until a user changes the table or the configuration
    DEAD_LETTER = "dead-letter"  # the rows are bad records


# What is done about changes of each kind. RENAME ignored: a renamed field is a new column. VERSION ignored: the
# conversion of each value decides.
EvolutionPolicy: TypeAlias = Mapping[ChangeKind, ChangeAction]
