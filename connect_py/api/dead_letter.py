"""`DeadLetter`: a consumed record that failed, as a sink task is given it that keeps such records
itself."""

from __future__ import annotations

from dataclasses import dataclass

from connect_py.api.errors import FailureReason
from connect_py.api.record import RecordOrigin, TimestampType
from connect_py.api.replay import Replay


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that failed, with the bytes it was consumed with, and why it failed."""

    origin: RecordOrigin  # where it was read now: this decides what is committed
    timestamp: int | None  # of the record: ms since the epoch
    timestamp_type: TimestampType
    reason: FailureReason
    stage: str  # where it failed, in Connect's words: `VALUE_CONVERTER`, `TASK_PUT`, ...
    class_name: (
        str  # of the converter, transformation or task that failed, as the user configured it
    )
    error_class: str  # Java's name where one corresponds, else Python's
    error_message: str | None  # with those of its causes, a line each
    failed_at: int  # ms since the epoch
    replay: Replay | None = None  # it had failed before, and was tried again: its first place
    error_trace: str | None = None  # in Java's form, then Python's
