"""`LaterReporter`: delays failure reports until their records can no longer be read again."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.record import TopicPartition
from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord


class LaterReporter(ErrorReporter):
    """Delays the reports of a task whose records may be read again by another task."""

    def __init__(self, reporter: ErrorReporter) -> None:
        self._reporter = reporter
        self._failed: list[FailedRecord] = []

    def report(self, failed: FailedRecord) -> None:
        self._failed.append(failed)

    def send(self, below: Mapping[TopicPartition, int]) -> None:
        """Report the failures of records below these offsets, and discard all other failures."""
        failed, self._failed = self._failed, []
        for each in failed:
            if each.origin is not None and each.origin.offset < below.get(
                each.origin.topic_partition, 0
            ):
                self._reporter.report(each)

    def flush(self, timeout: float) -> bool:
        return self._reporter.flush(timeout)

    def values(self) -> Mapping[str, float]:
        return self._reporter.values()

    def close(self) -> None:
        self._reporter.close()
