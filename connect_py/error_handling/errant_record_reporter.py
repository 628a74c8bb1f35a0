"""`TaskErrantRecordReporter`: receives the records that a sink task could not write."""

from __future__ import annotations

from connect_py.api.batch import Batch
from connect_py.api.record import SinkRecord
from connect_py.error_handling.error_handler import ErrorHandler, ToleranceExceededError
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage


class TaskErrantRecordReporter:
    """Reports records with the stage TASK_PUT.

    It stores a ToleranceExceededError so that `check` can raise it even if the task suppresses it.
    """

    def __init__(self, handler: ErrorHandler, task_class: str) -> None:
        self._handler = handler
        self._task_class = task_class
        self._exceeded: ToleranceExceededError | None = None

    def report(self, record: SinkRecord, error: Exception) -> None:
        """Report one record."""
        self._report(
            FailedRecord(
                Stage.TASK_PUT,
                self._task_class,
                error,
                record.origin,
                record.timestamp,
                record.timestamp_type,
            )
        )

    def report_row(self, batch: Batch, row: int, error: Exception) -> None:
        """Report one row of a batch."""
        if not 0 <= row < len(batch):
            raise IndexError(f"row {row} of a batch of {len(batch)}")
        origin = batch.origin.slice(row, row + 1)
        self._report(
            FailedRecord(
                Stage.TASK_PUT,
                self._task_class,
                error,
                origin.records()[0],
                batch.timestamp[row].as_py(),
                batch.origin.timestamp_type,
            )
        )

    def _report(self, failed: FailedRecord) -> None:
        try:
            self._handler.report(failed)
        except ToleranceExceededError as exceeded:
            self._exceeded = exceeded
            raise

    def check(self) -> None:
        """Raise the stored error, which the task may have suppressed.

        The worker calls this method after each put.
        """
        if self._exceeded is not None:
            raise self._exceeded
