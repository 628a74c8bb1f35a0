"""`SinkMetrics`: what a sink task measures."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.metrics.sampled import SampledStat, Window
from connect_py.metrics.task_metrics import TaskMetrics


class SinkMetrics(TaskMetrics):
    """Updated by the task thread, batch by batch; read on any."""

    def __init__(self, clock: Clock, window: Window) -> None:
        super().__init__(clock, window)
        self.read = 0  # records that were consumed
        self.sent = 0  # records that were put
        self.sequence = 0  # number of the last commit
        self.skipped_commits = 0  # there was nothing new, or a newer commit was on its way
        self.partitions = 0
        self._committed = 0  # how much of `read` the last commit covered
        self._read_rate = SampledStat(clock, window)
        self._send_rate = SampledStat(clock, window)
        self._completion_rate = SampledStat(clock, window)
        self._skip_rate = SampledStat(clock, window)
        self._put_seconds = SampledStat(clock, window)
        self._active = SampledStat(clock, window)

    def poll(self, records: int) -> None:
        """A poll brought records."""
        self.read += records
        self.batch(records)
        self._read_rate.record(records)
        self._active.record(self.read - self._committed)

    def put(self, records: int, seconds: float) -> None:
        """The task took records; it took that long."""
        self.sent += records
        self._send_rate.record(records)
        self._put_seconds.record(seconds)

    def completed(self, seconds: float, read_before: int) -> None:
        """A commit ended well; `read` was that when it began."""
        self.commits.succeeded(seconds)
        self._committed = max(self._committed, read_before)
        self._completion_rate.record(1)

    def skipped(self) -> None:
        """A commit was not needed."""
        self.skipped_commits += 1
        self._skip_rate.record(1)

    def values(self) -> dict[str, float]:
        """By Connect's names. Any thread."""
        return {
            **super().values(),
            "sink-record-read-rate": self._read_rate.rate(),
            "sink-record-read-total": self.read,
            "sink-record-send-rate": self._send_rate.rate(),
            "sink-record-send-total": self.sent,
            "sink-record-active-count": self.read - self._committed,
            "sink-record-active-count-max": self._active.max(),
            "sink-record-active-count-avg": self._active.avg(),
            "partition-count": self.partitions,
            "put-batch-avg-time-ms": 1000 * self._put_seconds.avg(),
            "put-batch-max-time-ms": 1000 * self._put_seconds.max(),
            "offset-commit-seq-no": self.sequence,
            "offset-commit-completion-rate": self._completion_rate.rate(),
            "offset-commit-completion-total": self.commits.completed,
            "offset-commit-skip-rate": self._skip_rate.rate(),
            "offset-commit-skip-total": self.skipped_commits,
        }
