"""`RetryTracker`: logs and counts failures that make rows wait, and enforces the retry limit."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from connect_py.api.errors import ConnectError
from connect_py.api.waiting import WaitReporter
from connect_py.plurals import pluralize
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0  # interval between log lines about the same failure
# time without an attempt after which a failure is counted from zero; longer than the deadline of a
# call plus the longest backoff
QUIET_SECONDS = 180.0
# time without a request after which no task is assumed to wait for a table; waiting tasks repeat
# their requests much earlier
FORGET_SECONDS = 600.0
_NUMBERS = re.compile(r"\d+")  # IDs, ports, and times differ between repetitions of a failure

COORDINATOR = "coordinator"  # value of `for` in the task status


def table_to_open(table: str) -> str:
    """Return the value of `for` in the task status while a table is loaded, created, or evolved."""
    return f"table {table}"


class Waiting(Enum):
    """Step that is blocked. The value is used as the metric label `reason`."""

    BEGIN = "begin"  # start of the coordinator, for all tables
    OPEN = "open"  # loading, creating, or evolving a table
    COMMIT = "commit"  # commits to a table


@dataclass(slots=True)
class _Failure:
    """Consecutive failures of one step. Times are from the tracker's clock."""

    logged_at: float
    counted_at: float
    attempted_at: float
    intervals: int = 0  # number of commit intervals since the first attempt
    kind: str | None = None  # last logged reason, without its numbers
    suppressed: int = 0  # number of repetitions since the last log line


class RetryTracker:
    """Tracks failures across all runs of a coordinator. Used on the coordinator's thread."""

    def __init__(
        self,
        metrics: IcebergMetrics,
        context: WaitReporter,
        limit: int | None,
        interval_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a tracker.

        Args:
            metrics: The sink's metrics.
            context: Receives the reasons for waiting.
            limit: Number of consecutive commit intervals with a failure after which the task
                fails, or None to wait indefinitely.
            interval_ms: The commit interval.
            clock: Returns a monotonic time in seconds.
        """
        self._context = context
        # table that waits for a user -> time of the last request
        self._awaiting_approval: dict[str, float] = {}
        self._metrics = metrics
        self._limit = limit
        self._interval_seconds = interval_ms / 1000
        self._clock = clock
        self._failures: dict[tuple[Waiting, str], _Failure] = {}
        self._not_committed: set[str] = set()

    def cannot_begin(self, why: str) -> None:
        """Record that a run could not start. Another run will try again.

        Raises:
            ConnectError: The limit is reached.
        """
        intervals = self._count(Waiting.BEGIN, "", why, f"coordinator restarts: {why}")
        if self._is_too_long(intervals):
            raise ConnectError(
                "the coordinator did not start in "
                f"{pluralize(intervals, 'consecutive commit interval')}: {why}"
            )

    def cannot_open(self, table: str, why: str) -> None:
        """Record that a table is unavailable. Tasks that wait for it repeat their requests.

        Raises:
            ConnectError: The limit is reached.
        """
        line = f"table {table} is unavailable, its partitions wait: {why}"
        intervals = self._count(Waiting.OPEN, table, why, line)
        if self._is_too_long(intervals):
            raise ConnectError(
                f"table {table} was unavailable in "
                f"{pluralize(intervals, 'consecutive commit interval')}: {why}"
            )

    def not_committed(self, table: str, cycles: int, why: str) -> None:
        """Record the number of consecutive cycles in which commits to a table failed.

        Raises:
            ConnectError: The limit is reached.
        """
        log.error(
            "table %s: commit failed, its partitions wait (consecutive failed cycles: %d): %s",
            table,
            cycles,
            why,
            extra={"action": "table_held", "table": table},
        )
        self._not_committed.add(table)
        self._show(Waiting.COMMIT, table, why)
        if self._is_too_long(cycles):
            failed = pluralize(cycles, "consecutive cycle")
            raise ConnectError(f"table {table}: commits failed in {failed}: {why}")

    def begins(self) -> None:
        """Record the start of a run. All tables wait until the run has read them."""
        if (Waiting.BEGIN, "") not in self._failures:
            self._context.waits(COORDINATOR, "starting: it has not read all of its tables yet")

    def begun(self) -> None:
        """Record that a run has started."""
        self._over(Waiting.BEGIN, "")
        self._context.waits(COORDINATOR, None)

    def opened(self, table: str) -> None:
        """Record that no task waits for a table, because it was opened or permanently rejected."""
        self._over(Waiting.OPEN, table)
        if self._awaiting_approval.pop(table, None) is not None:
            self._context.waits(table_to_open(table), None)

    def awaits_approval(self, table: str, why: str) -> None:
        """Record that a table waits indefinitely for a user. The caller has logged this."""
        self._over(Waiting.OPEN, table)
        self._awaiting_approval[table] = self._clock()
        self._context.waits(table_to_open(table), why)

    def cycle_ended(self, failing: Collection[str]) -> None:
        """Record the end of a cycle, and discard tables that no task requests anymore.

        `failing` contains the tables whose commits still fail.
        """
        expiry = self._clock() - FORGET_SECONDS
        for waiting, table in [
            key for key, failure in self._failures.items() if failure.attempted_at <= expiry
        ]:
            self._over(waiting, table)
        for table in [t for t, at in self._awaiting_approval.items() if at <= expiry]:
            self.opened(table)
        for table in self._not_committed - set(failing):
            self._show(Waiting.COMMIT, table, None)
        self._not_committed &= set(failing)

    def _count(self, waiting: Waiting, table: str, why: str, line: str) -> int:
        """Count and log a failure, and return the number of commit intervals that it has lasted.

        A failure that ends within an interval does not count, regardless of the number of attempts.
        After a long time without an attempt, it is unknown whether the failure lasted, so it is
        counted from zero. Repetitions are not logged for some time.
        """
        now, kind = self._clock(), _NUMBERS.sub("", why)
        failure = self._failures.get((waiting, table))
        if failure is None:
            failure = self._failures[waiting, table] = _Failure(now, now, now)
        elif now - failure.attempted_at > max(2 * self._interval_seconds, QUIET_SECONDS):
            failure.intervals, failure.counted_at = 0, now
        elif now - failure.counted_at >= self._interval_seconds:
            failure.intervals, failure.counted_at = failure.intervals + 1, now
        failure.attempted_at = now
        self._show(waiting, table, why)
        if failure.kind != kind or now - failure.logged_at >= LOG_SECONDS:
            more = (
                f" ({pluralize(failure.suppressed, 'more time')} since the last log line)"
                if failure.suppressed
                else ""
            )
            log.warning(
                "%s%s",
                line,
                more,
                extra={"action": "table_held", "table": table} if table else None,
            )
            failure.logged_at, failure.kind, failure.suppressed = now, kind, 0
        else:
            failure.suppressed += 1
        return failure.intervals

    def _over(self, waiting: Waiting, table: str) -> None:
        if self._failures.pop((waiting, table), None) is not None:
            self._show(waiting, table, None)

    def _show(self, waiting: Waiting, table: str, why: str | None) -> None:
        """Report in the task status and metrics why rows wait. `why` is None if none wait."""
        subjects = {Waiting.BEGIN: COORDINATOR, Waiting.OPEN: table_to_open(table)}
        self._context.waits(subjects.get(waiting, f"commit to table {table}"), why)
        self._metrics.waiting(waiting.value, table, why)

    def _is_too_long(self, intervals: int) -> bool:
        return self._limit is not None and intervals >= self._limit
