"""`SourceMetrics`: what a source task measures."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.metrics.sampled import SampledStat, Window
from connect_py.metrics.task_metrics import TaskMetrics


class SourceMetrics(TaskMetrics):
    """Updated by the task thread, batch by batch; read on any."""

    def __init__(self, clock: Clock, window: Window) -> None:
        super().__init__(clock, window)
        self.polled = 0  # records that polls returned
        self.written = 0  # records that the broker has
        self._written_before = 0
        self._poll_rate = SampledStat(clock, window)
        self._write_rate = SampledStat(clock, window)
        self._poll_seconds = SampledStat(clock, window)
        self._active = SampledStat(clock, window)
        self._active_now = 0
        self._transactions = SampledStat(clock, window)

    def poll(self, records: int, seconds: float) -> None:
        """A poll brought records after that long."""
        self.polled += records
        self.batch(records)
        self._poll_rate.record(records)
        self._poll_seconds.record(seconds)

    def sent(self, active: int) -> None:
        """A batch went on its way; so many records are with the client and not acknowledged."""
        self._active_now = active
        self._active.record(active)
        self._write_rate.record(self.written - self._written_before)
        self._written_before = self.written

    def transaction(self, records: int) -> None:
        """A transaction with so many records was committed."""
        self._transactions.record(records)

    def values(self) -> dict[str, float]:
        """By Connect's names. Any thread."""
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
