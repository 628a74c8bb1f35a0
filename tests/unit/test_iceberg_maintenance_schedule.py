"""Scheduling of maintenance between cycles, with a fake clock and a fake driver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from connectors.iceberg.config.maintenance_policy import (
    HourWindow,
    MaintenanceMode,
    MaintenancePolicy,
)
from connectors.iceberg.coordinator.maintenance_schedule import (
    SHARE,
    MaintenanceKind,
    MaintenanceSchedule,
    MaintenanceTask,
)
from connectors.iceberg.maintenance.compaction import (
    OPEN_FILE_BYTES,
    CompactionOutcome,
    CompactionStatus,
    TableHealth,
)
from connectors.iceberg.maintenance.expiration import ExpirationOutcome
from connectors.iceberg.protocol.commit_request import CommitCounts

TABLE = "db.orders"
HEALTHY = TableHealth(True, 10, 0, 3, 0, 10_000, 0, small_files=3, mergeable_files=3)
CROWDED = replace(HEALTHY, data_files=40, small_files=40, mergeable_files=40)
AT = 1_800_000_000_000  # milliseconds since 1970: 2027-01-15 08:00 UTC


def schedule(
    interval: float = 10.0, policy: MaintenancePolicy | None = None
) -> MaintenanceSchedule:
    return MaintenanceSchedule(interval, lambda _: policy or MaintenancePolicy())


def measured(
    health: TableHealth, made: MaintenanceSchedule | None = None, at: float = 0.0
) -> MaintenanceSchedule:
    """A schedule that has measured the table after a commit."""
    made = made or schedule()
    made.committed(TABLE, CommitCounts(added_files=1, added_rows=100))
    task = made.next(at, AT, 60.0)
    assert task is not None
    assert task.kind is MaintenanceKind.MEASURE
    made.ended(task, CompactionOutcome(CompactionStatus.NOT_DUE, health, seconds=0.1), at)
    return made


def commits(made: MaintenanceSchedule, count: int, **counts: int) -> None:
    for _ in range(count):
        made.committed(TABLE, CommitCounts(**{"added_files": 1, "added_rows": 100, **counts}))


def test_opened_tables_are_measured_after_their_first_commit() -> None:
    made = schedule()
    made.opened(TABLE)
    assert made.next(0.0, AT, 60.0) is None
    measured(HEALTHY, made)
    assert made.next(1.0, AT, 60.0) is None


def test_compaction_is_due_once_enough_files_were_added() -> None:
    made = measured(HEALTHY)
    commits(made, 6)
    assert made.next(1.0, AT, 60.0) is None  # 3 and 6 files
    commits(made, 1)
    task = made.next(2.0, AT, 20.0)
    assert task is not None
    assert (task.kind, task.table, task.delays_commits) == (MaintenanceKind.COMPACT, TABLE, False)
    assert task.seconds < 20.0
    assert task.cost_limit > 10 * OPEN_FILE_BYTES


def test_compaction_is_due_once_enough_rows_were_deleted() -> None:
    made = measured(HEALTHY)
    commits(made, 1, replaced_rows=900)
    assert made.next(1.0, AT, 60.0) is None
    commits(made, 1, replaced_rows=200)  # 1,100 of 10,200
    task = made.next(2.0, AT, 60.0)
    assert task is not None
    assert task.kind is MaintenanceKind.COMPACT


def test_compaction_does_not_start_if_a_cycle_is_due_before_its_expected_end() -> None:
    made = measured(CROWDED)
    assert made.next(1.0, AT, 1.5) is None
    assert made.next(1.1, AT, 3.0) is not None


def test_limit_follows_the_measured_throughput() -> None:
    made, limits = measured(CROWDED), []
    for at in range(1, 8):
        task = made.next(float(at), AT, 10.0)
        assert task is not None
        limits.append(task.cost_limit)
        seconds = 0.3 + task.cost_limit / (64 << 20)  # a fast machine
        outcome = CompactionOutcome(
            CompactionStatus.COMMITTED, CROWDED, cost=task.cost_limit, seconds=seconds
        )
        made.ended(task, outcome, float(at))
    assert limits[0] < 10 * (8 << 20)
    assert limits[-1] > 5 * limits[0]
    assert all(limit < 10 * (64 << 20) for limit in limits)  # what takes one cycle


def test_canceled_compactions_get_smaller_until_one_succeeds() -> None:
    made, limits = measured(CROWDED), []
    for at in range(1, 4):
        task = made.next(float(at), AT, 20.0)
        assert task is not None
        limits.append(task.cost_limit)
        made.ended(
            task,
            CompactionOutcome(
                CompactionStatus.CANCELED, CROWDED, cost=task.cost_limit, seconds=20.0
            ),
            float(at),
        )
    assert limits[1] < limits[0] / 1.9
    assert limits[2] < limits[1] / 1.9


def test_files_too_large_for_the_limit_wait_for_a_longer_gap() -> None:
    made = measured(CROWDED)
    task = made.next(1.0, AT, 4.0)
    assert task is not None
    needed = 2 * task.cost_limit
    made.ended(
        task, CompactionOutcome(CompactionStatus.TOO_LARGE, CROWDED, cost=needed, seconds=0.2), 1.2
    )
    assert made.next(2.0, AT, 4.0) is None
    large = made.next(3.0, AT, 30.0)
    assert large is not None
    assert large.cost_limit >= needed


@dataclass
class Driver:
    """Runs tasks on a fake clock."""

    schedule: MaintenanceSchedule
    now: float = 0.0
    busy: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    done: list[MaintenanceTask] = field(default_factory=list)

    def run(
        self,
        task: MaintenanceTask,
        seconds: float,
        status: CompactionStatus = CompactionStatus.COMMITTED,
    ) -> None:
        seconds = min(seconds, task.seconds)
        self.now += seconds
        self.busy[task.delays_commits] += seconds
        self.done.append(task)
        if task.kind is MaintenanceKind.EXPIRE:
            self.schedule.ended(task, ExpirationOutcome(60, 900, seconds), self.now)
            return
        is_measured = task.kind is MaintenanceKind.MEASURE
        status = CompactionStatus.NOT_DUE if is_measured else status
        outcome = CompactionOutcome(status, CROWDED, cost=task.cost_limit, seconds=seconds)
        self.schedule.ended(task, outcome, self.now)


def test_compaction_gets_its_share_where_cycles_follow_without_a_gap() -> None:
    made = schedule(interval=2.0)
    driver = Driver(made)
    while driver.now < 600.0:
        driver.now += 2.0  # a commit, after which the next cycle is due
        commits(made, 1)
        if (task := made.next(driver.now, AT, -0.1)) is not None:
            driver.run(task, 0.8)
    compactions = [task for task in driver.done if task.kind is MaintenanceKind.COMPACT]
    assert len(compactions) > 50
    assert all(task.delays_commits for task in compactions)
    assert 0.5 * SHARE < driver.busy[True] / driver.now <= SHARE


def test_share_holds_for_actions_that_always_overrun() -> None:
    made = schedule(interval=2.0)
    driver = Driver(made)
    while driver.now < 1000.0:
        driver.now += 2.0
        commits(made, 1)
        if (task := made.next(driver.now, AT, -0.1)) is not None:
            driver.run(task, 1e9, CompactionStatus.CANCELED)
    assert len(driver.done) > 10
    assert driver.busy[True] / driver.now <= 1.1 * SHARE


def test_gaps_are_used_before_the_share() -> None:
    made = schedule(interval=10.0)
    driver = Driver(made)
    for _ in range(50):
        driver.now += 4.0
        commits(made, 1)
        task = made.next(driver.now, AT, 6.0)
        if task is not None:
            driver.run(task, 0.8)
        driver.now += 5.0
    assert driver.busy[True] == 0.0
    assert driver.busy[False] > 10.0


def test_tables_take_turns() -> None:
    made = schedule()
    for table in ("db.a", "db.b"):
        made.committed(table, CommitCounts(added_files=1))
    served = []
    for at in range(6):
        task = made.next(float(at), AT, 60.0)
        assert task is not None
        served.append(task.table)
        made.ended(
            task,
            CompactionOutcome(CompactionStatus.COMMITTED, CROWDED, cost=1, seconds=0.5),
            float(at),
        )
    assert served == ["db.a", "db.b"] * 3


def test_snapshots_expire_in_batches_or_once_an_hour() -> None:
    made = measured(replace(HEALTHY, expirable=49))
    task = made.next(0.0, AT, 60.0)
    assert task is not None
    assert task.kind is MaintenanceKind.EXPIRE
    made.ended(task, ExpirationOutcome(49, 950, 1.0), 1.0)
    measured(replace(HEALTHY, expirable=49), made, at=2.0)
    assert made.next(3.0, AT, 60.0) is None
    commits(made, 50)
    measure = made.next(10.0, AT, 60.0)
    assert measure is not None
    made.ended(
        measure,
        CompactionOutcome(CompactionStatus.NOT_DUE, replace(HEALTHY, expirable=50), seconds=0.1),
        10.0,
    )
    batch = made.next(11.0, AT, 60.0)
    assert batch is not None
    assert batch.kind is MaintenanceKind.EXPIRE


def test_tables_of_others_are_measured_and_nothing_else() -> None:
    made = measured(replace(CROWDED, maintained=False, expirable=500))
    assert made.next(1.0, AT, 60.0) is None
    commits(made, 50)
    task = made.next(2.0, AT, 60.0)
    assert task is not None
    assert (task.kind, task.cost_limit) == (MaintenanceKind.MEASURE, 0)


def test_settings_of_the_table_count() -> None:
    off = MaintenancePolicy(small_files=0, delete_ratio=0)
    made = measured(CROWDED, schedule(policy=off))
    commits(made, 20, replaced_rows=50_000)
    assert made.next(1.0, AT, 60.0) is None
    night = MaintenancePolicy(MaintenanceMode.AUTO, HourWindow(22 * 60, 6 * 60))
    made = measured(CROWDED, schedule(policy=night))
    assert made.next(1.0, AT, 60.0) is None
    assert made.next(1.0, AT + 15 * 3_600_000, 60.0) is not None


def test_refused_and_failed_actions_wait() -> None:
    made = measured(CROWDED)
    task = made.next(1.0, AT, 60.0)
    assert task is not None
    made.ended(
        task, CompactionOutcome(CompactionStatus.REFUSED, CROWDED, "rows changed", seconds=1.0), 2.0
    )
    assert made.next(3.0, AT, 60.0) is None
    task = made.next(40.0, AT, 60.0)
    assert task is not None
    made.failed(task, 1.0, 41.0)
    commits(made, 1)
    assert made.next(42.0, AT, 60.0) is None
    task = made.next(80.0, AT, 60.0)
    assert task is not None
    assert task.kind is MaintenanceKind.MEASURE
