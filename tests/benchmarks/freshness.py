"""Freshness of a table, computed from produce times and commit times."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from catalog_watch import Commit

# maximum gain of a flat line: this fraction of its start, or this absolute value
LAG_TOLERANCE, LAG_LEAST_SECONDS = (0.2, 0.5)
MEMORY_TOLERANCE, MEMORY_LEAST_MB = 0.1, 20.0


@dataclass(frozen=True, slots=True)
class Produced:
    """Produce times of the records of a topic."""

    # by partition, by offset: ms since the epoch of Unix, rising
    times: Mapping[int, Sequence[int]]

    def behind(self, at_ms: float, commit: Commit | None) -> int:
        """Records that were produced by then and are not below the commit's ends."""
        return sum(
            max(0, bisect_right(times, at_ms) - _next(commit, partition))
            for partition, times in self.times.items()
        )

    def lag_seconds(self, at_ms: float, commit: Commit | None) -> float:
        """Age of the oldest record that nobody sees yet; 0 when there is none."""
        waiting = [
            times[first]
            for partition, times in self.times.items()
            if (first := _next(commit, partition)) < len(times)
        ]
        return max(0.0, at_ms - min(waiting)) / 1000 if waiting else 0.0

    def ages_at_sight(self, commits: Sequence[Commit]) -> pa.Array:
        """Seconds from being produced to being seen, of every record of all commits but the
        first."""
        ages = [
            pc.divide(pc.subtract(commit.seen_ms, pa.array(new, pa.float64())), 1000.0)
            for before, commit in pairwise(commits)
            for partition, times in self.times.items()
            if (new := times[_next(before, partition) : _next(commit, partition)])
        ]
        return pa.concat_arrays(ages)


def visible_at(commits: Sequence[Commit], at_ms: float) -> Commit | None:
    """The newest commit that was seen by then."""
    number = bisect_right(commits, at_ms, key=lambda commit: commit.seen_ms)
    return commits[number - 1] if number else None


def commit_seconds(commits: Sequence[Commit], starts: Mapping[tuple[int, int], int]) -> list[float]:
    """Return seconds from the start of each cycle but the first to its commit. `starts`: by epoch
    and cycle, in ms.
    """
    return [
        (commit.seen_ms - starts[commit.epoch, commit.cycle]) / 1000
        for commit in commits[1:]
        if (commit.epoch, commit.cycle) in starts
    ]


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile of sorted values; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through samples: its start, its gain up to the last sample, and the allowed gain."""

    name: str
    start: float
    gain: float
    most: float

    @classmethod
    def of(
        cls, name: str, times: Sequence[float], values: Sequence[float], part: float, least: float
    ) -> Trend:
        """Least squares, at least two different times; flat is a gain of `part` of the start, or of
        `least`."""
        slope, at_zero = statistics.linear_regression(times, values)
        start = at_zero + slope * times[0]
        return cls(name, start, slope * (times[-1] - times[0]), max(part * start, least))

    @property
    def flat(self) -> bool:
        return self.gain <= self.most


def trends(found: Mapping[str, Any]) -> list[Trend]:
    """Return the trends of a run's lag and memory after the first sixth."""
    first = next(n for n, at in enumerate(found["sampled"]) if at >= found["sampled"][-1] / 6)
    at = found["sampled"][first:]
    memory = [sum(kinds.values()) for kinds in found["memory"][first:]]
    return [
        Trend.of("lag, s", at, found["lag"][first:], LAG_TOLERANCE, LAG_LEAST_SECONDS),
        Trend.of("memory, MB", at, memory, MEMORY_TOLERANCE, MEMORY_LEAST_MB),
    ]


def _next(commit: Commit | None, partition: int) -> int:
    return commit.next.get(partition, 0) if commit else 0
