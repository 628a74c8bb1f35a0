"""`LogReporter`: logs Connect's message for each failed record, without the record's contents."""

from __future__ import annotations

import logging

from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.once import Once
from connect_py.model import ConnectorTaskId

log = logging.getLogger(__name__)


class LogReporter(ErrorReporter):
    """Logs failures. `include_messages` adds the record's coordinates to the log line."""

    def __init__(self, id: ConnectorTaskId, *, include_messages: bool) -> None:  # noqa: A002 - Connect's term
        self._id = id
        self._include_messages = include_messages
        self._reported = Once()
        self.logged = 0

    def report(self, failed: FailedRecord) -> None:
        """Log a failure with its stack trace unless this task has already logged the record."""
        if failed.origin is not None and not self._reported.first(failed.origin):
            return
        self.logged += 1
        log.error("%s", self.message(failed), exc_info=failed.error)

    def message(self, failed: FailedRecord) -> str:
        """Return the log message for a failure."""
        prefix = (
            f"Error encountered in task {self._id}. Executing stage '{failed.stage.value}' "
            f"with class '{failed.class_name}'"
        )
        if not self._include_messages:
            return f"{prefix}."
        origin = failed.original()
        if origin is None:
            return f"{prefix}, where source record is = {failed.source_record}."
        coordinates = (
            f"topic='{origin.topic}', partition={origin.partition}, offset={origin.offset}"
        )
        if failed.timestamp is not None:
            coordinates += (
                f", timestamp={failed.timestamp}, timestampType={failed.timestamp_type.value}"
            )
        return f"{prefix}, where consumed record is {{{coordinates}}}."

    def values(self) -> dict[str, float]:
        """Return totals, keyed by Connect's metric names."""
        return {"total-errors-logged": self.logged}
