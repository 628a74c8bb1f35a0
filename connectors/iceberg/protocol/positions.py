"""Small values that every part of the protocol speaks about: partitions, positions, epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from connect_py.api.record import TopicPartition

__all__ = ["Epoch", "Position", "TopicPartition", "nest", "unnest"]

T = TypeVar("T")


class Position(NamedTuple):
    """The next offset to read, within a generation.

    Positions compare generation first: only a deliberate rewind (a higher generation) may take an
    offset back.
    """

    generation: int  # counts deliberate rewinds of this partition
    next: int


class Epoch(NamedTuple):
    """One life of a coordinator. The nonce orders two lives that chose the same number."""

    number: int
    nonce: str


def nest(values: Mapping[TopicPartition, T], each: Callable[[T], Any]) -> dict[str, dict[str, Any]]:
    """The JSON form of a map by partition: `{"orders": {"0": each(value)}}`."""
    nested: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(values.items()):
        nested.setdefault(topic, {})[str(partition)] = each(value)
    return nested


def unnest(
    nested: Mapping[str, Mapping[str, Any]], each: Callable[[Any], T]
) -> dict[TopicPartition, T]:
    """The way back from `nest`."""
    return {
        TopicPartition(topic, int(partition)): each(value)
        for topic, partitions in nested.items()
        for partition, value in partitions.items()
    }
