"""`TaskDeadLetters`: hands records that failed to a sink task that keeps them itself."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import ConfigError
from connect_py.api.task import SinkTask
from connect_py.clock import Clock
from connect_py.error_handling.error_config import DEAD_LETTER_TABLE
from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import (
    FailedRecord,
    error_class_name,
    message_with_causes,
    stack_trace,
)
from connect_py.error_handling.once import Once
from connect_py.secret_mask import masked


class TaskDeadLetters(ErrorReporter):
    """An `ErrorReporter` on the task thread. Letters are safe when the task commits the offsets of
    their records."""

    def __init__(self, task: SinkTask, clock: Clock) -> None:
        """ConfigError: This task keeps no dead letters."""
        if type(task).put_dead_letter is SinkTask.put_dead_letter:
            raise ConfigError(DEAD_LETTER_TABLE, f"{type(task).__name__} keeps no dead letters")
        self._task = task
        self._clock = clock
        self._counted = Once()
        self._kept = 0

    def report(self, failed: FailedRecord) -> None:
        """Hand over one record. What the task raises fails it."""
        if failed.origin is None:
            return
        self._task.put_dead_letter(
            DeadLetter(
                failed.origin,
                failed.timestamp,
                failed.timestamp_type,
                failed.reason,
                failed.stage.value,
                failed.class_name,
                error_class_name(failed.error),
                masked(message_with_causes(failed.error)) or None,
                self._clock.time_ms(),
                failed.replay,
                masked(stack_trace(failed.error)),
            )
        )
        self._kept += self._counted.first(failed.origin)

    def values(self) -> Mapping[str, float]:
        """A letter counts once, wherever it is kept and however often its record is read again."""
        return {"deadletterqueue-produce-requests": self._kept}
