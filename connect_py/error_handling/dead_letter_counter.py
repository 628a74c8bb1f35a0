"""`DeadLetterCounter`: counts dead-letter records by topic and reason.

Each record is counted once per run of a task.
"""

from __future__ import annotations

from connect_py.api.metrics import PluginMetrics
from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.once import Once

NAME = "cdc_dlq_total"
DOC = "Dead-letter records by source topic and reason."


class DeadLetterCounter(ErrorReporter):
    """Counts records when they are reported, without waiting. Used on the task's thread."""

    def __init__(self, metrics: PluginMetrics) -> None:
        self._metrics = metrics
        self._counted = Once()

    def report(self, failed: FailedRecord) -> None:
        """Count one failure unless this task has already counted the same record."""
        origin, original = failed.origin, failed.original()
        if origin is None or original is None or not self._counted.first(origin):
            return
        labels = {"topic": original.topic, "reason": failed.reason.value}
        self._metrics.counter(NAME, DOC, labels).increment()
