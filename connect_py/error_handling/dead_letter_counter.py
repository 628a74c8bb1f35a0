"""`DeadLetterCounter`: counts dead letters by topic and reason, each record once in a task's
life."""

from __future__ import annotations

from connect_py.api.metrics import PluginMetrics
from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.once import Once

NAME = "cdc_dlq_total"
DOC = "Dead letters by the topic they were read from and by reason."


class DeadLetterCounter(ErrorReporter):
    """An `ErrorReporter` on the task thread. It waits for nothing: letters are counted when they
    are handed over."""

    def __init__(self, metrics: PluginMetrics) -> None:
        self._metrics = metrics
        self._counted = Once()

    def report(self, failed: FailedRecord) -> None:
        """Count one failure, unless this task counted the same record before."""
        origin, shown = failed.origin, failed.shown()
        if origin is None or shown is None or not self._counted.first(origin):
            return
        labels = {"topic": shown.topic, "reason": failed.reason.value}
        self._metrics.counter(NAME, DOC, labels).increment()
