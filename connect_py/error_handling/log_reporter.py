"""`LogReporter`: one log line per record that failed, in Connect's words, never with its
contents."""

from __future__ import annotations

import logging

from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.once import Once
from connect_py.model import ConnectorTaskId

log = logging.getLogger(__name__)


class LogReporter(ErrorReporter):
    """Logs failures; with `include_messages` also where the record is."""

    def __init__(self, id: ConnectorTaskId, *, include_messages: bool) -> None:  # noqa: A002 - Connect's word
        self._id = id
        self._include_messages = include_messages
        self._reported = Once()
        self.logged = 0

    def report(self, failed: FailedRecord) -> None:
        """Log one failure with its trace, unless this task logged the same record before."""
        if failed.origin is not None and not self._reported.first(failed.origin):
            return
        self.logged += 1
        log.error("%s", self.message(failed), exc_info=failed.error)

    def message(self, failed: FailedRecord) -> str:
        """The line."""
        text = (
            f"Error encountered in task {self._id}. Executing stage '{failed.stage.value}' "
            f"with class '{failed.class_name}'"
        )
        if not self._include_messages:
            return f"{text}."
        origin = failed.shown()
        if origin is None:
            return f"{text}, where source record is = {failed.source_record}."
        where = f"topic='{origin.topic}', partition={origin.partition}, offset={origin.offset}"
        if failed.timestamp is not None:
            where += f", timestamp={failed.timestamp}, timestampType={failed.timestamp_type.value}"
        return f"{text}, where consumed record is {{{where}}}."

    def values(self) -> dict[str, float]:
        """Totals by Connect's names."""
        return {"total-errors-logged": self.logged}
