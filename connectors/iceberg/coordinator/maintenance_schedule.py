"""`MaintenanceSchedule`: selects maintenance actions between a coordinator's cycles, without I/O.

Compaction and expiration run in the Spark driver that runs the commits, but never during a commit
to the same table. An action starts in the gap before the next cycle if it is expected to end before
that cycle. If the gaps are too short, actions that are due may delay commits for at most `SHARE` of
the time. Estimates are conservative at first, and then follow the measured durations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
from connectors.iceberg.maintenance.compaction import (
    OPEN_FILE_BYTES,
    CompactionOutcome,
    CompactionStatus,
    TableHealth,
)
from connectors.iceberg.maintenance.expiration import ExpirationOutcome
from connectors.iceberg.protocol.commit_request import CommitCounts

SHARE: Final = 0.2  # share of the time in which actions may delay commits
_LEAST_CREDIT_SECONDS: Final = 5.0  # lower bound for the maximum of `_credit`
_MOST_SECONDS: Final = 60.0  # maximum duration of one action
_FIRST_OVERHEAD_SECONDS: Final = 1.5  # initial estimate for the smallest compaction
_FIRST_MEASURE_SECONDS: Final = 0.5  # initial estimate for an action that rewrites nothing
_FIRST_EXPIRATION_SECONDS: Final = 3.0
_FIRST_BYTES_PER_SECOND: Final = 8 << 20
_LEAST_SECONDS: Final = 0.1
_SMOOTHING: Final = 0.5  # weight of the newest measurement
_SAFETY: Final = 1.25  # safety factor for estimates
_OVERRUN: Final = 2.0  # an action that delays commits is canceled at this multiple of its budget
_MARGIN_SECONDS: Final = 0.1  # safety margin before a cycle
_LEAST_EFFORT: Final = 1 / 16  # minimum share of the cost limit, after several cancellations
_COMMITS_PER_MEASUREMENT: Final = 50
_MEASURE_SECONDS: Final = 3600.0  # interval between measurements of a table with few commits
# An expiration is due at this number of expirable snapshots. It is high because an expiration
# reads the metadata of all other snapshots.
_EXPIRATION_BATCH: Final = 50
_EXPIRATION_SECONDS: Final = 3600.0  # interval between expirations of fewer snapshots
_RETRY_SECONDS: Final = 30.0  # delay after a refusal or an error
_LONG_RETRY_SECONDS: Final = 600.0  # delay if the cause persists, such as files that are too large


class MaintenanceKind(Enum):
    """Kind of maintenance action."""

    MEASURE = "measure"
    COMPACT = "compact data files"
    EXPIRE = "expire snapshots"


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """One maintenance action on one table."""

    kind: MaintenanceKind
    table: str
    seconds: float  # time limit of a compaction
    cost_limit: int = 0  # for a compaction; see `CompactionRequest`
    delays_commits: bool = False  # True if the action may continue into the next cycle


@dataclass(slots=True)
class _Table:
    policy: MaintenancePolicy
    health: TableHealth | None = None  # as of the last measurement
    measured_at: float = float("-inf")
    expired_at: float = float("-inf")
    not_before: float = float("-inf")
    served: int = 0  # sequence number of the last action on the table
    # commits since the last measurement, and the numbers of their files and rows
    commits: int = 0
    added_files: int = 0
    added_rows: int = 0
    replaced_rows: int = 0
    effort: float = 1.0  # share of the cost limit that a compaction may use
    # minimum cost of a useful compaction if the last limit was too low, or 0
    needed_cost: int = 0


@dataclass(slots=True)
class _Estimates:
    """Estimated durations of actions, in seconds."""

    overhead: float = _FIRST_OVERHEAD_SECONDS
    measure: float = _FIRST_MEASURE_SECONDS
    expiration: float = _FIRST_EXPIRATION_SECONDS
    bytes_per_second: float = _FIRST_BYTES_PER_SECOND

    def compaction(self, cost: int) -> float:
        """Return the estimated duration of a compaction with this cost."""
        return _SAFETY * (self.overhead + cost / self.bytes_per_second)

    def cost(self, seconds: float) -> int:
        """Return the estimated cost of a compaction that takes this long."""
        return max(0, int((seconds / _SAFETY - self.overhead) * self.bytes_per_second))

    def learn(self, cost: int, seconds: float) -> None:
        """Update the estimates with the duration of a compaction.

        A small compaction updates the overhead, and a large one updates the throughput.
        """
        transfer = cost / self.bytes_per_second
        if transfer < self.overhead or seconds < self.overhead:
            self.overhead = _smoothed(self.overhead, max(seconds - transfer, _LEAST_SECONDS))
        if transfer >= self.overhead:
            measurement = cost / max(seconds - self.overhead, seconds / 2, _LEAST_SECONDS)
            self.bytes_per_second = _smoothed(
                self.bytes_per_second, min(measurement, 3 * self.bytes_per_second)
            )

    def learn_overrun(self, seconds: float) -> None:
        """Update the estimates with the time after which a compaction was canceled.

        The entire compaction would have taken longer.
        """
        if seconds > self.overhead:
            self.overhead = min(seconds, 1.5 * self.overhead)


@dataclass(slots=True)
class MaintenanceSchedule:
    """Selects maintenance actions. Owned by the coordinator's thread.

    Times are in seconds and from one monotonic clock.
    """

    interval_seconds: float  # time between the starts of consecutive cycles
    policy: Callable[[str], MaintenancePolicy]  # returns the policy for a table
    _tables: dict[str, _Table] = field(default_factory=dict)
    _estimates: _Estimates = field(default_factory=_Estimates)
    _credit: float = 0.0  # seconds for which actions may delay commits; negative after an overrun
    _credited_at: float | None = None  # time of the last credit; None if no action is due
    _sequence: int = 0

    def opened(self, table: str) -> None:
        """Add a table to which the connector writes. It is measured after its first commit."""
        self._tables.setdefault(table, _Table(self.policy(table)))

    def committed(self, table: str, counts: CommitCounts) -> None:
        """Record a commit."""
        self.opened(table)
        each = self._tables[table]
        each.commits += 1
        each.added_files += counts.added_files
        each.added_rows += counts.added_rows
        each.replaced_rows += counts.replaced_rows

    def next(self, now: float, now_ms: int, gap_seconds: float) -> MaintenanceTask | None:
        """Return the action to start now, if any.

        Args:
            now: The current time on the monotonic clock.
            now_ms: The Unix time, for maintenance windows.
            gap_seconds: The time until the next cycle. It is 0 or negative if the cycle is due.
        """
        due = [
            (each.served, table, kind)
            for table, each in self._tables.items()
            if (kind := self._due(each, now, now_ms)) is not None
        ]
        self._earn(now, is_due=bool(due))
        gap = min(gap_seconds - _MARGIN_SECONDS, _MOST_SECONDS)
        for _, table, kind in sorted(due, key=lambda each: each[:2]):
            if self._estimate(self._tables[table], kind) <= gap:
                return self._task(table, kind, gap, gap)
        for _, table, kind in sorted(due, key=lambda each: each[:2]):
            estimate = min(self._estimate(self._tables[table], kind), self._most_credit())
            if estimate <= self._credit:
                return self._task(
                    table, kind, self._credit, _OVERRUN * self._credit, delays_commits=True
                )
        return None

    def ended(
        self, task: MaintenanceTask, outcome: CompactionOutcome | ExpirationOutcome, now: float
    ) -> None:
        """Record the result of an action."""
        self._spend(task, outcome.seconds)
        each = self._tables[task.table]
        if isinstance(outcome, ExpirationOutcome):
            self._estimates.expiration = _smoothed(self._estimates.expiration, outcome.seconds)
            # measured again, because other actions may be due
            each.expired_at, each.health = now, None
            if outcome.reason:
                each.not_before = now + _LONG_RETRY_SECONDS
            return
        each.health, each.measured_at = outcome.health, now
        each.commits = each.added_files = each.added_rows = each.replaced_rows = (
            each.needed_cost
        ) = 0
        match outcome.status:
            case CompactionStatus.NOT_DUE:
                self._estimates.measure = _smoothed(self._estimates.measure, outcome.seconds)
            case CompactionStatus.COMMITTED:
                self._estimates.learn(outcome.cost, outcome.seconds)
                each.effort = min(1.0, 2 * each.effort)
            case CompactionStatus.TOO_LARGE:
                each.needed_cost = outcome.cost
                if self._estimates.compaction(outcome.cost) > self._most_credit():
                    each.not_before = now + _LONG_RETRY_SECONDS
            case CompactionStatus.CANCELED:
                self._estimates.learn_overrun(outcome.seconds)
                each.effort = max(_LEAST_EFFORT, each.effort / 2)
            case CompactionStatus.REFUSED:
                each.not_before = now + _RETRY_SECONDS

    def failed(self, task: MaintenanceTask, seconds: float, now: float) -> None:
        """Record that an action failed with an error."""
        self._spend(task, seconds)
        each = self._tables[task.table]
        each.health, each.not_before = None, now + _RETRY_SECONDS

    def _due(self, table: _Table, now: float, now_ms: int) -> MaintenanceKind | None:
        policy, health = table.policy, table.health
        if now < table.not_before:
            return None
        if health is None:
            return MaintenanceKind.MEASURE if table.commits else None
        idle = now - table.measured_at
        is_stale = table.commits >= _COMMITS_PER_MEASUREMENT or (
            table.commits > 0 and idle >= _MEASURE_SECONDS
        )
        if not health.maintained or (policy.window is not None and not policy.window.holds(now_ms)):
            return MaintenanceKind.MEASURE if is_stale else None
        if health.expirable >= _EXPIRATION_BATCH or (
            health.expirable and now - table.expired_at >= _EXPIRATION_SECONDS
        ):
            return MaintenanceKind.EXPIRE
        records = health.records + table.added_rows
        deleted = health.deleted_records + table.replaced_rows
        is_crowded = (
            policy.small_files and health.mergeable_files + table.added_files >= policy.small_files
        )
        is_dirty = policy.delete_ratio and deleted and deleted >= policy.delete_ratio * records
        has_changed = (
            table.commits > 0
            or table.needed_cost > 0
            or health.mergeable_files >= policy.small_files > 0
        )
        if (is_crowded or is_dirty) and has_changed:
            return MaintenanceKind.COMPACT
        return MaintenanceKind.MEASURE if is_stale else None

    def _estimate(self, table: _Table, kind: MaintenanceKind) -> float:
        if kind is MaintenanceKind.MEASURE:
            return _SAFETY * self._estimates.measure
        if kind is MaintenanceKind.EXPIRE:
            return _SAFETY * self._estimates.expiration
        least = max(table.policy.small_files, 2) * OPEN_FILE_BYTES
        return self._estimates.compaction(max(least, table.needed_cost))

    def _task(
        self,
        table: str,
        kind: MaintenanceKind,
        budget: float,
        seconds: float,
        *,
        delays_commits: bool = False,
    ) -> MaintenanceTask:
        self._sequence += 1
        each = self._tables[table]
        each.served = self._sequence
        limit = 0
        if kind is MaintenanceKind.COMPACT:
            limit = max(int(each.effort * self._estimates.cost(budget)), each.needed_cost)
        return MaintenanceTask(kind, table, seconds, limit, delays_commits)

    def _most_credit(self) -> float:
        return min(max(self.interval_seconds, _LEAST_CREDIT_SECONDS), _MOST_SECONDS)

    def _earn(self, now: float, *, is_due: bool) -> None:
        """While an action is due, credit a share of the elapsed time."""
        if not is_due:
            self._credited_at = None
            return
        if self._credited_at is not None:
            self._credit = min(
                self._credit + SHARE * (now - self._credited_at), self._most_credit()
            )
        self._credited_at = now

    def _spend(self, task: MaintenanceTask, seconds: float) -> None:
        if task.delays_commits:
            self._credit -= seconds


def _smoothed(value: float, measurement: float) -> float:
    return (1 - _SMOOTHING) * value + _SMOOTHING * measurement
