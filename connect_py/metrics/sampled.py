"""Statistics over a sliding window, as in Kafka's metrics.

The default window covers one minute.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.clock import Clock


@dataclass(frozen=True, slots=True)
class Window:
    """Sliding window of `samples` slots, each of which covers `seconds`.

    Values are added to the newest slot. The oldest slots are dropped.
    """

    seconds: float = 30.0
    samples: int = 2

    @classmethod
    def of(cls, worker: Mapping[str, str]) -> Window:
        """Read the window from validated worker properties."""
        milliseconds = int(worker.get("metrics.sample.window.ms", 30_000))
        return cls(max(milliseconds, 1) / 1000, int(worker.get("metrics.num.samples", 2)))


@dataclass(slots=True)
class _Sample:
    start: float
    count: int = 0
    total: float = 0.0
    largest: float = float("-inf")
    smallest: float = float("inf")


class SampledStat:
    """Average, extremes, and rate of recorded values. Thread-safe.

    It is designed for one update per batch, not per record.
    """

    def __init__(self, clock: Clock, window: Window) -> None:
        self._clock = clock
        self._window = window
        self._lock = threading.Lock()
        self._samples = [_Sample(clock.monotonic())]

    def record(self, value: float) -> None:
        """Record a value."""
        with self._lock:
            sample = self._current()
            sample.count += 1
            sample.total += value
            sample.largest = max(sample.largest, value)
            sample.smallest = min(sample.smallest, value)

    def _current(self) -> _Sample:
        now = self._clock.monotonic()
        sample = self._samples[-1]
        if now - sample.start >= self._window.seconds:
            sample = _Sample(now)
            self._samples.append(sample)
        self._forget(now)
        return sample

    def _forget(self, now: float) -> None:
        oldest = now - self._window.seconds * self._window.samples
        while len(self._samples) > 1 and (
            len(self._samples) > self._window.samples or self._samples[0].start < oldest
        ):
            del self._samples[0]
        if self._samples[0].start < oldest:
            self._samples[0] = _Sample(now)

    def _filled_samples(self) -> list[_Sample]:
        with self._lock:
            self._forget(self._clock.monotonic())
            return [sample for sample in self._samples if sample.count]

    def avg(self) -> float:
        """Return the mean, or 0 if the window is empty."""
        samples = self._filled_samples()
        return sum(s.total for s in samples) / sum(s.count for s in samples) if samples else 0.0

    def max(self) -> float:
        """Return the maximum, or 0 if the window is empty."""
        return max((s.largest for s in self._filled_samples()), default=0.0)

    def min(self) -> float:
        """Return the minimum, or 0 if the window is empty."""
        return min((s.smallest for s in self._filled_samples()), default=0.0)

    def rate(self) -> float:
        """Return the sum of the values per second.

        As in Kafka, the elapsed time is at least the length of all slots except one.
        """
        with self._lock:
            now = self._clock.monotonic()
            self._forget(now)
            total = sum(s.total for s in self._samples)
            elapsed = max(
                now - self._samples[0].start,
                self._window.seconds * max(1, self._window.samples - 1),
            )
        return total / elapsed


class StateRatios:
    """Fraction of time that a task has spent in each state."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._state = "unassigned"
        self._spent: dict[str, float] = {}

    def change(self, state: str) -> None:
        """Set the current state. Called on the task's thread."""
        now = self._clock.monotonic()
        self._spent[self._state] = self._spent.get(self._state, 0.0) + now - self._since
        self._state, self._since = state, now

    def ratio(self, state: str) -> float:
        """Return the fraction of time in a state, from 0 to 1. Thread-safe."""
        running = self._clock.monotonic() - self._since
        spent = self._spent.copy()
        spent[self._state] = spent.get(self._state, 0.0) + running
        total = sum(spent.values())
        return spent.get(state, 0.0) / total if total > 0 else 0.0
