"""Metrics that sink and source tasks have in common: state, batch sizes, and offset commits."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.metrics.sampled import SampledStat, StateRatios, Window


class CommitMetrics:
    """Durations and outcomes of offset commits."""

    def __init__(self, clock: Clock, window: Window) -> None:
        self._seconds = SampledStat(clock, window)
        self._good = SampledStat(clock, window)  # 1 for each success, 0 for each failure
        self.completed = 0
        self.failures = 0

    def succeeded(self, seconds: float) -> None:
        """Record a successful commit and its duration in seconds."""
        self.completed += 1
        self._seconds.record(seconds)
        self._good.record(1.0)

    def failed(self, seconds: float) -> None:
        """Record a failed or abandoned commit and its duration in seconds."""
        self.failures += 1
        self._seconds.record(seconds)
        self._good.record(0.0)

    def values(self) -> dict[str, float]:
        """Return values, keyed by Connect's metric names."""
        good = self._good.avg()
        return {
            "offset-commit-avg-time-ms": 1000 * self._seconds.avg(),
            "offset-commit-max-time-ms": 1000 * self._seconds.max(),
            "offset-commit-success-percentage": good,
            "offset-commit-failure-percentage": 1.0 - good
            if self.completed + self.failures
            else 0.0,
        }


class TaskMetrics:
    """Metrics that all tasks have in common."""

    def __init__(self, clock: Clock, window: Window) -> None:
        self.state = StateRatios(clock)
        self.commits = CommitMetrics(clock, window)
        self._batches = SampledStat(clock, window)

    def batch(self, records: int) -> None:
        """Record the number of records that a poll returned."""
        self._batches.record(records)

    def values(self) -> dict[str, float]:
        """Return values, keyed by Connect's metric names. Thread-safe."""
        return {
            "running-ratio": self.state.ratio("running"),
            "pause-ratio": self.state.ratio("paused"),
            "batch-size-avg": self._batches.avg(),
            "batch-size-max": self._batches.max(),
            **self.commits.values(),
        }
