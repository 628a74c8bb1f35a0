"""`RetryTracker`: what keeps rows waiting, logged without a flood, shown by a metric, and counted
against the limit."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from connect_py.api.errors import ConnectError
from connect_py.api.waiting import WaitReporter
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0  # between lines about the same failure
# without a try it begins anew; a call's deadline and the longest back-off lie between two tries
QUIET_SECONDS = 180.0
# a table not asked for since then has no waiting task; tasks that wait ask every few seconds
FORGET_SECONDS = 600.0
_NUMBERS = re.compile(r"\d+")  # ids, ports and times differ each time, the failure does not

COORDINATOR = "coordinator"  # what a task says that it waits for


def table_to_open(table: str) -> str:
    """What a task says that it waits for while a table is to be found, created or evolved."""
    return f"table {table}"


class Waiting(Enum):
    """What rows wait for; the value is the metric's label `reason`."""

    BEGIN = "begin"  # a coordinator, for all tables
    OPEN = "open"  # a table, which is to be found, created or evolved
    COMMIT = "commit"  # a table, which takes no commit


@dataclass(slots=True)
class _Failure:
    """Something that was tried and did not work since it last did; times are the clock's."""

    logged: float
    counted: float
    tried: float
    intervals: int = 0  # commit intervals that went by while it was tried
    kind: str | None = None  # the reason logged last, without its numbers
    silent: int = 0  # times since it was logged


class RetryTracker:
    """Of one task 0, over all lives of its coordinator; used on the coordinator's thread."""

    def __init__(
        self,
        metrics: IcebergMetrics,
        context: WaitReporter,
        limit: int | None,
        interval_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limit`: commit intervals in a row that a failure may last before the task fails; None:
        for ever."""
        self._context = context
        self._awaiting_approval: dict[
            str, float
        ] = {}  # by table that waits for a person, when that was said last
        self._metrics = metrics
        self._limit = limit
        self._interval_seconds = interval_ms / 1000
        self._clock = clock
        self._known: dict[tuple[Waiting, str], _Failure] = {}
        self._not_committed: set[str] = set()

    def cannot_begin(self, why: str) -> None:
        """A coordinator did not find what it needs, and another one will try.

        Raises:
            ConnectError: That went on for as long as the configuration allows.
        """
        intervals = self._tried(Waiting.BEGIN, "", why, f"coordinator begins anew: {why}")
        if self._is_too_long(intervals):
            raise ConnectError(
                f"the coordinator could not begin in {intervals} commit intervals in a row: {why}"
            )

    def cannot_open(self, table: str, why: str) -> None:
        """A table is not available now, and tasks that wait for it ask again.

        Raises:
            ConnectError: That went on for as long as the configuration allows.
        """
        line = f"table {table} is not available now, its partitions wait: {why}"
        intervals = self._tried(Waiting.OPEN, table, why, line)
        if self._is_too_long(intervals):
            raise ConnectError(
                f"table {table} was not available in {intervals} commit intervals in a row: {why}"
            )

    def not_committed(self, table: str, cycles: int, why: str) -> None:
        """A table took no commit in so many cycles in a row.

        Raises:
            ConnectError: As many as the configuration allows.
        """
        log.error(
            "table %s is not committed, its partitions wait (%d cycles in a row): %s",
            table,
            cycles,
            why,
            extra={"action": "table_held", "table": table},
        )
        self._not_committed.add(table)
        self._show(Waiting.COMMIT, table, why)
        if self._is_too_long(cycles):
            raise ConnectError(
                f"table {table} was not committed in {cycles} cycles in a row: {why}"
            )

    def begins(self) -> None:
        """A coordinator looks for what it needs; until it has it, all tables wait."""
        if (Waiting.BEGIN, "") not in self._known:
            self._context.waits(COORDINATOR, "it begins: it has not read all of its tables yet")

    def begun(self) -> None:
        """A coordinator found what it needs."""
        self._over(Waiting.BEGIN, "")
        self._context.waits(COORDINATOR, None)

    def opened(self, table: str) -> None:
        """A table was opened, or was refused for good: no task waits for it any more."""
        self._over(Waiting.OPEN, table)
        if self._awaiting_approval.pop(table, None) is not None:
            self._context.waits(table_to_open(table), None)

    def awaits_approval(self, table: str, why: str) -> None:
        """A table waits for a person; tasks that wait for it ask again. Logged elsewhere, and never
        too long."""
        self._over(Waiting.OPEN, table)
        self._awaiting_approval[table] = self._clock()
        self._context.waits(table_to_open(table), why)

    def cycle_ended(self, failing: Collection[str]) -> None:
        """`failing`: the tables that take no commit still. Those that no task asks for any more are
        forgotten."""
        long_ago = self._clock() - FORGET_SECONDS
        for waiting, table in [
            key for key, failure in self._known.items() if failure.tried <= long_ago
        ]:
            self._over(waiting, table)
        for table in [table for table, said in self._awaiting_approval.items() if said <= long_ago]:
            self.opened(table)
        for table in self._not_committed - set(failing):
            self._show(Waiting.COMMIT, table, None)
        self._not_committed &= set(failing)

    def _tried(self, waiting: Waiting, table: str, why: str, line: str) -> int:
        """Log it, unless that was done lately; returns how many whole commit intervals it lasts
        now.

        A failure that is over within an interval counts as none, however often it was tried. After
        a long time without a try it is not known whether it lasted, so it begins anew.
        """
        now, kind = self._clock(), _NUMBERS.sub("", why)
        failure = self._known.get((waiting, table))
        if failure is None:
            failure = self._known[waiting, table] = _Failure(now, now, now)
        elif now - failure.tried > max(2 * self._interval_seconds, QUIET_SECONDS):
            failure.intervals, failure.counted = 0, now
        elif now - failure.counted >= self._interval_seconds:
            failure.intervals, failure.counted = failure.intervals + 1, now
        failure.tried = now
        self._show(waiting, table, why)
        if failure.kind != kind or now - failure.logged >= LOG_SECONDS:
            more = (
                f" (and {failure.silent} times more since this was logged last)"
                if failure.silent
                else ""
            )
            log.warning(
                "%s%s",
                line,
                more,
                extra={"action": "table_held", "table": table} if table else None,
            )
            failure.logged, failure.kind, failure.silent = now, kind, 0
        else:
            failure.silent += 1
        return failure.intervals

    def _over(self, waiting: Waiting, table: str) -> None:
        if self._known.pop((waiting, table), None) is not None:
            self._show(waiting, table, None)

    def _show(self, waiting: Waiting, table: str, why: str | None) -> None:
        """Say why rows wait, or that they no longer do."""
        subjects = {Waiting.BEGIN: COORDINATOR, Waiting.OPEN: table_to_open(table)}
        self._context.waits(subjects.get(waiting, f"commit to table {table}"), why)
        self._metrics.waiting(waiting.value, table, why)

    def _is_too_long(self, intervals: int) -> bool:
        return self._limit is not None and intervals >= self._limit
