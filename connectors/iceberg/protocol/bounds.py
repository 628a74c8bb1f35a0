"""Bounds of a connector that stops automatically (rule 35)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from connectors.iceberg.protocol.positions import TopicPartition


class Bound(NamedTuple):
    """Bound of one partition, as recorded in attachments and in offset metadata."""

    run: str  # see `Bounds`
    end: int  # no record at or above this offset is staged


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of all partitions, resolved once per run.

    A run is a start of the connector with one value of the option.
    """

    run: str
    ends: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> Bound:
        """Return the bound of a partition. A partition that was added since then has bound 0."""
        return Bound(self.run, self.ends.get(partition, 0))
