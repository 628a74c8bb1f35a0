"""Partitions, positions, epochs, and bounds: the basic values of the commit protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from connect_py.api.record import TopicPartition

__all__ = ["Bound", "Bounds", "Epoch", "Position", "TopicPartition", "nest", "unnest"]

T = TypeVar("T")


class Position(NamedTuple):
    """Next offset to read, within a generation.

    Positions are ordered by generation first, because an offset may decrease only after a
    deliberate rewind, which starts a new generation.
    """

    generation: int  # number of deliberate rewinds of the partition
    next: int


class Epoch(NamedTuple):
    """Epoch of one coordinator run. The nonce orders two epochs with the same number."""

    number: int
    nonce: str


class Bound(NamedTuple):
    """Offset at which a run stops reading one partition (rule 35 of the commit protocol).

    It is recorded in attachments and in offset metadata.
    """

    run: str  # see `Bounds`
    end: int  # no record at or above this offset is staged


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of all partitions, resolved once per run.

    A run is a start of the connector with one value of `iceberg.ext.stop-at`.
    """

    run: str
    ends: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> Bound:
        """Return the bound of a partition. A partition that was added later has bound 0."""
        return Bound(self.run, self.ends.get(partition, 0))


def nest(values: Mapping[TopicPartition, T], each: Callable[[T], Any]) -> dict[str, dict[str, Any]]:
    """Convert a map with partitions as keys to the JSON form `{"orders": {"0": each(value)}}`."""
    nested: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(values.items()):
        nested.setdefault(topic, {})[str(partition)] = each(value)
    return nested


def unnest(
    nested: Mapping[str, Mapping[str, Any]], each: Callable[[Any], T]
) -> dict[TopicPartition, T]:
    """Convert the result of `nest` back into a map with partitions as keys."""
    return {
        TopicPartition(topic, int(partition)): each(value)
        for topic, partitions in nested.items()
        for partition, value in partitions.items()
    }
