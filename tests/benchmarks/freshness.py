"""How fresh a table was: from when records were produced and when commits were seen to plain numbers."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from catalog_watch import Commit


@dataclass(frozen=True, slots=True)
class Produced:
    """When every record of a topic was produced."""

    times: Mapping[int, Sequence[int]]  # by partition, by offset: ms since the epoch of Unix, rising

    def behind(self, at_ms: float, commit: Commit | None) -> int:
        """Records that were produced by then and are not below the commit's ends."""
        return sum(
            max(0, bisect_right(times, at_ms) - _next(commit, partition)) for partition, times in self.times.items()
        )

    def lag_seconds(self, at_ms: float, commit: Commit | None) -> float:
        """Age of the oldest record that nobody sees yet; 0 when there is none."""
        waiting = [
            times[first] for partition, times in self.times.items() if (first := _next(commit, partition)) < len(times)
        ]
        return max(0.0, at_ms - min(waiting)) / 1000 if waiting else 0.0

    def ages_at_sight(self, commits: Sequence[Commit]) -> pa.Array:
        """Seconds from being produced to being seen, of every record of all commits but the first."""
        ages = [
            pc.divide(
                pc.subtract(commit.seen_ms, pa.array(times[_next(before, partition) : _next(commit, partition)])), 1000
            )
            for before, commit in pairwise(commits)
            for partition, times in self.times.items()
        ]
        return pa.concat_arrays(ages)


def visible_at(commits: Sequence[Commit], at_ms: float) -> Commit | None:
    """The newest commit that was seen by then."""
    number = bisect_right(commits, at_ms, key=lambda commit: commit.seen_ms)
    return commits[number - 1] if number else None


def commit_seconds(commits: Sequence[Commit], starts: Mapping[tuple[int, int], int]) -> list[float]:
    """Of each commit but the first, seconds from the start of its cycle. `starts`: by epoch and cycle, in ms."""
    return [
        (commit.seen_ms - starts[commit.epoch, commit.cycle]) / 1000
        for commit in commits[1:]
        if (commit.epoch, commit.cycle) in starts
    ]


def percentile(ordered: Sequence[float], part: float) -> float:
    """Of sorted values; 0 of none."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through samples: what they start with by it, and what they gain until the last."""

    start: float
    gain: float

    @classmethod
    def of(cls, times: Sequence[float], values: Sequence[float]) -> Trend:
        """Least squares; at least two different times."""
        slope, at_zero = statistics.linear_regression(times, values)
        return cls(at_zero + slope * times[0], slope * (times[-1] - times[0]))

    def is_flat(self, tolerance: float, least: float) -> bool:
        """Whether it gains at most this part of its start, or `least`, in the samples' unit."""
        return self.gain <= max(tolerance * self.start, least)


def _next(commit: Commit | None, partition: int) -> int:
    return commit.next.get(partition, 0) if commit else 0
