"""`SourceMetrics`: metrics of a source task."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.metrics.sampled import SampledStat, Window
from connect_py.metrics.task_metrics import TaskMetrics


class SourceMetrics(TaskMetrics):
    """Metrics of a source task, updated per batch by its thread. Reading is thread-safe."""

    def __init__(self, clock: Clock, window: Window) -> None:
        super().__init__(clock, window)
        self.polled = 0  # number of records that polls returned
        self.written = 0  # number of acknowledged records
        self._written_before = 0
        self._poll_rate = SampledStat(clock, window)
        self._write_rate = SampledStat(clock, window)
        self._poll_seconds = SampledStat(clock, window)
        self._active = SampledStat(clock, window)
        self._active_now = 0
        self._transactions = SampledStat(clock, window)

    def poll(self, records: int, seconds: float) -> None:
        """Record a poll that returned records, and its duration in seconds."""
        self.polled += records
        self.batch(records)
        self._poll_rate.record(records)
        self._poll_seconds.record(seconds)

    def sent(self, active: int) -> None:
        """Record a dispatched batch. `active` is the number of unacknowledged records."""
        self._active_now = active
        self._active.record(active)
        self._write_rate.record(self.written - self._written_before)
        self._written_before = self.written

    def transaction(self, records: int) -> None:
        """Record a committed transaction and its number of records."""
        self._transactions.record(records)

    def values(self) -> dict[str, float]:
        """Return values, keyed by Connect's metric names. Thread-safe."""
        return {
            **super().values(),
            "source-record-poll-rate": self._poll_rate.rate(),
            "source-record-poll-total": self.polled,
            "source-record-write-rate": self._write_rate.rate(),
            "source-record-write-total": self.written,
            "source-record-active-count": self._active_now,
            "source-record-active-count-max": self._active.max(),
            "source-record-active-count-avg": self._active.avg(),
            "poll-batch-avg-time-ms": 1000 * self._poll_seconds.avg(),
            "poll-batch-max-time-ms": 1000 * self._poll_seconds.max(),
            "transaction-size-min": self._transactions.min(),
            "transaction-size-avg": self._transactions.avg(),
            "transaction-size-max": self._transactions.max(),
        }
