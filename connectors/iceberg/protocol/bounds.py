"""Where a connector stops by itself: per partition, the offset from which on no row is staged (rule
35)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from connectors.iceberg.protocol.positions import TopicPartition


class Bound(NamedTuple):
    """Of one partition, as a task and the group's offset metadata have it."""

    run: str  # of `Bounds`
    end: int  # the next offset, once all that is wanted was read


@dataclass(frozen=True, slots=True)
class Bounds:
    """Resolved once for a run: a start of the connector with one value of the option."""

    run: str
    ends: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> Bound:
        """A partition that was added since has nothing that is wanted."""
        return Bound(self.run, self.ends.get(partition, 0))
