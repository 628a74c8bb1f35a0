"""`TaskDeadLetters`: passes failed records to a sink task that stores them itself."""

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
    """Passes failed records to the sink task. Used on the task's thread.

    The task stores the records when it commits their offsets.
    """

    def __init__(self, task: SinkTask, clock: Clock) -> None:
        """Create the reporter. Raises ConfigError if the task cannot store dead-letter records."""
        if type(task).put_dead_letter is SinkTask.put_dead_letter:
            raise ConfigError(
                DEAD_LETTER_TABLE, f"{type(task).__name__} does not support a dead letter table"
            )
        self._task = task
        self._clock = clock
        self._counted = Once()
        self._stored = 0

    def report(self, failed: FailedRecord) -> None:
        """Pass one record to the task. An error from `put_dead_letter` fails the task."""
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
        self._stored += self._counted.first(failed.origin)

    def values(self) -> Mapping[str, float]:
        """Return totals, keyed by Connect's metric names.

        A record is counted once, even if it is read again.
        """
        return {"deadletterqueue-produce-requests": self._stored}
