"""`FailedRecord`: a consumed or produced record that failed, and why; what reporters are told."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from connect_py.api.errors import ConnectError, DataError, FailureReason
from connect_py.api.record import RecordOrigin, TimestampType
from connect_py.error_handling.stage import Stage

_REASONS = {
    Stage.KEY_CONVERTER: FailureReason.KEY_CONVERTER,
    Stage.VALUE_CONVERTER: FailureReason.VALUE_CONVERTER,
    Stage.HEADER_CONVERTER: FailureReason.HEADER_CONVERTER,
    Stage.TRANSFORMATION: FailureReason.TRANSFORMATION,
}


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """One failure. `origin` is None for a source's record, then `source_record` names it."""

    stage: Stage
    class_name: str  # as the user configured it
    error: Exception
    origin: RecordOrigin | None = None
    timestamp: int | None = None  # ms since the epoch
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    source_record: str | None = None  # topic and source partition; never key or value

    @property
    def reason(self) -> FailureReason:
        """Why, in one of few words: the stage, or what the sink task says of its own errors."""
        if self.stage is Stage.TASK_PUT:
            said = self.error.reason if isinstance(self.error, DataError) else None
            return said or FailureReason.SINK
        return _REASONS.get(self.stage, FailureReason.SINK)

    def place(self) -> str:
        """Which record it is, in words."""
        if self.origin is None:
            return self.source_record or "a record without a place"
        return f"topic '{self.origin.topic}' partition {self.origin.partition} at offset {self.origin.offset}"


def error_class_name(error: BaseException) -> str:
    """The Java name where one corresponds, else the Python one."""
    if isinstance(error, ConnectError):
        return error.java_name
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def stack_trace(error: BaseException) -> str:
    """The error's full text, causes included."""
    return "".join(traceback.format_exception(error))
