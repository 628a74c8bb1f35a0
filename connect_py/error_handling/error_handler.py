"""`ErrorHandler`: retries operations, and reports or tolerates failed records."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from connect_py.api.errors import ConnectError, UnavailableError
from connect_py.clock import Clock
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.once import Once
from connect_py.error_handling.stage import Stage, is_retried, is_tolerable

FIRST_DELAY_MS: Final = 300
# maximum delay until the worker detects that a server is available again
LONGEST_UNAVAILABLE_MS: Final = 5_000

log = logging.getLogger(__name__)

T = TypeVar("T")


class ToleranceExceededError(ConnectError):
    """A record failed and failures are not tolerated. The message names the record."""

    def __init__(self, failed: FailedRecord) -> None:
        super().__init__(
            f"Tolerance exceeded in error handler: {failed.stage.value} failed for "
            f"{failed.location()}"
        )


class UnhandledError(ConnectError):
    """A record failed with an error that is never tolerated. The error is attached as the cause."""

    def __init__(self) -> None:
        super().__init__("Unhandled exception in error handler")


class Skipped:
    """Result of an operation whose record was reported and skipped."""


SKIPPED: Final = Skipped()


class ErrorReporter(ABC):
    """Receives record failures on the task's thread.

    The default implementation of `flush` returns immediately.
    """

    @abstractmethod
    def report(self, failed: FailedRecord) -> None:
        """Report one failure. The report may be stored asynchronously."""

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all reports are stored.

        Return True if they are stored. Raises ConnectError if a report has permanently failed.
        """
        return True

    def values(self) -> Mapping[str, float]:
        """Return totals, keyed by Connect's metric names. Thread-safe."""
        return {}

    def close(self) -> None:
        """Release all resources."""
        return


@dataclass(slots=True)
class ErrorCounters:
    """Totals since the task started, for `task-error-metrics`."""

    failures: int = 0  # failed attempts
    errors: int = 0  # permanently failed records
    skipped: int = 0
    retries: int = 0
    last_error_ms: int = 0


class ErrorHandler:
    """Handles the errors of one task on its thread."""

    def __init__(
        self,
        config: ErrorConfig,
        reporters: Sequence[ErrorReporter],
        clock: Clock,
        wait: Callable[[float], None],
        waits: Callable[[str, str | None], None] = lambda _subject, _reason: None,
    ) -> None:
        """Create the handler.

        Args:
            config: The connector's `errors.*` settings.
            reporters: Reporters that each receive every failure.
            clock: Source of time.
            wait: Waits the specified number of seconds between attempts without letting the task's
                session expire. Raises an error if the task must stop. The record is then counted
                neither as failed nor as processed.
            waits: Called with the subject and the reason when a wait starts, and with None as the
                reason when it ends.
        """
        self.config = config
        self.counters = ErrorCounters()
        self._reporters = tuple(reporters)
        self._clock = clock
        self._wait = wait
        self._waits = waits
        self._counted = Once()

    def recover(
        self,
        stage: Stage,
        class_name: str,
        error: Exception,
        failed: Callable[[Exception], FailedRecord],
        again: Callable[[], T] | None = None,
    ) -> T | Skipped:
        """Retry an operation on one record after its first error, or report the record.

        Returns:
            The result of a retry, or `SKIPPED` if the record was reported and is tolerated.

        Raises:
            ToleranceExceededError: The record was reported and is not tolerated.
            UnhandledError: Errors at this stage are never tolerated.
        """
        self.counters.failures += 1
        if again is not None and is_retried(stage, error):
            try:
                return self._retry(stage, error, again)
            except _ExhaustedError as exhausted:
                error = exhausted.last
        self.report(failed(error))
        return SKIPPED

    def _retry(self, stage: Stage, error: Exception, again: Callable[[], T]) -> T:
        config = self.config
        start = self._clock.monotonic()
        attempt = 1
        while True:
            delay_ms: float = FIRST_DELAY_MS << min(attempt - 1, 30)
            if delay_ms > config.retry_delay_max_ms:
                delay_ms = random.randrange(max(1, config.retry_delay_max_ms))
            if isinstance(error, UnavailableError):
                delay_ms = min(delay_ms, LONGEST_UNAVAILABLE_MS)
                if attempt == 1:
                    log.warning(
                        "%s is waiting: %s",
                        stage.value,
                        error,
                        extra={"action": "wait_unavailable"},
                    )
            elif config.retry_timeout_ms >= 0:
                left_ms = config.retry_timeout_ms - (self._clock.monotonic() - start) * 1000
                if left_ms <= 0:
                    self._waits(stage.value, None)
                    raise _ExhaustedError(error)
                delay_ms = min(delay_ms, left_ms)
            self.counters.retries += 1
            waited_for = error.server if isinstance(error, UnavailableError) else stage.value
            self._waits(waited_for, str(error))
            self._wait(delay_ms / 1000)
            try:
                result = again()
            except Exception as next_error:  # RULES determines whether a plugin's error is retried
                self.counters.failures += 1
                error = next_error
                if not is_retried(stage, next_error):
                    self._waits(waited_for, None)
                    raise _ExhaustedError(next_error) from next_error
            else:
                self._waits(waited_for, None)
                return result
            attempt += 1

    def report(self, failed: FailedRecord) -> None:
        """Report a permanently failed record.

        Return normally if the record may be skipped. Raises the same errors as `recover`.
        """
        failed = replace(failed, replay_topic=self.config.replay_topic)
        # the failure is not new if the task has rewound and read the record again
        new = failed.origin is None or self._counted.first(failed.origin)
        if new:
            self.counters.errors += 1
            self.counters.last_error_ms = self._clock.time_ms()
        for reporter in self._reporters:
            reporter.report(failed)
        if not is_tolerable(failed.stage, failed.error):
            raise UnhandledError from failed.error
        if not self.config.tolerate_all:
            raise ToleranceExceededError(failed) from failed.error
        self.counters.skipped += new

    def values(self) -> dict[str, float]:
        """Return metrics, keyed by Connect's metric names. Thread-safe."""
        counters = self.counters
        return {
            "total-record-failures": counters.failures,
            "total-record-errors": counters.errors,
            "total-records-skipped": counters.skipped,
            "total-retries": counters.retries,
            "total-errors-logged": 0,
            "deadletterqueue-produce-requests": 0,
            "deadletterqueue-produce-failures": 0,
            "last-error-timestamp": counters.last_error_ms,
            **{
                name: value
                for reporter in self._reporters
                for name, value in reporter.values().items()
            },
        }

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until every report is stored.

        Return True if all reports are stored. Raises ConnectError if a report has permanently
        failed.
        """
        deadline = self._clock.monotonic() + timeout
        # flush every reporter, even if one of them times out
        flushed = [r.flush(max(0.0, deadline - self._clock.monotonic())) for r in self._reporters]
        return all(flushed)

    def close(self) -> None:
        """Close the reporters."""
        for reporter in self._reporters:
            reporter.close()


class _ExhaustedError(Exception):
    def __init__(self, last: Exception) -> None:
        super().__init__()
        self.last = last
