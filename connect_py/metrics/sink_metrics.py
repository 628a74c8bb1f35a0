"""`SinkMetrics`: metrics of a sink task."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.metrics.sampled import SampledStat, Window
from connect_py.metrics.task_metrics import TaskMetrics


class SinkMetrics(TaskMetrics):
    """Metrics of a sink task, updated per batch by its thread. Reading is thread-safe."""

    def __init__(self, clock: Clock, window: Window) -> None:
        super().__init__(clock, window)
        self.read = 0  # number of consumed records
        self.sent = 0  # number of records passed to the task
        self.sequence = 0  # sequence number of the last commit
        # commits skipped because nothing had changed or because a newer commit was in progress
        self.skipped_commits = 0
        self.partitions = 0
        self._committed = 0  # number of consumed records that commits have covered
        self._read_rate = SampledStat(clock, window)
        self._send_rate = SampledStat(clock, window)
        self._completion_rate = SampledStat(clock, window)
        self._skip_rate = SampledStat(clock, window)
        self._put_seconds = SampledStat(clock, window)
        self._active = SampledStat(clock, window)

    def poll(self, records: int) -> None:
        """Record a poll that returned records."""
        self.read += records
        self.batch(records)
        self._read_rate.record(records)
        self._active.record(self.read - self._committed)

    def put(self, records: int, seconds: float) -> None:
        """Record a put and its duration in seconds."""
        self.sent += records
        self._send_rate.record(records)
        self._put_seconds.record(seconds)

    def completed(self, seconds: float, read_before: int) -> None:
        """Record a successful commit. `read_before` is the value of `read` when it started."""
        self.commits.succeeded(seconds)
        self._committed = max(self._committed, read_before)
        self._completion_rate.record(1)

    def skipped(self) -> None:
        """Record a commit that was not needed."""
        self.skipped_commits += 1
        self._skip_rate.record(1)

    def values(self) -> dict[str, float]:
        """Return values, keyed by Connect's metric names. Thread-safe."""
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
