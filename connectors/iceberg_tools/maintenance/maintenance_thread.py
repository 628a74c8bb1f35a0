"""`MaintenanceThread`: looks after the tables of a coordinator between its cycles, in a Spark
driver of its own.

A table that was opened or committed to is looked at once per interval: its metadata says whether
something may be due. Then a round begins: a driver is started, files are counted, and what is due
is done, one action after the other, until nothing is due or the budget of time is spent. The driver
ends unless another round begins soon: where commits follow each other closely, files would pile up
while the next one starts.

A commit never runs beside an action on its table, or on an aggregate that follows it. One that is
due waits a few seconds for the action to end; then the action is interrupted, and goes on after the
commit from what it had committed. After each interruption in a row a commit waits twice as long, so
that cycles that follow each other closely do not keep a table from ever being compacted. What an
earlier coordinator left to do on an aggregate does not wait: it is tried again if an action came
first. Nothing is remembered that a restart would lose: all is judged anew from the table.

Partitions get old without commits, so a table with tiering is looked at once an hour as well.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from connect_py.api.errors import ConnectError
from connect_py.api.service import SharedServices
from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.maintenance.full_maintenance import INSPECTION, FullMaintenance
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg_tools.maintenance.maintenance_action import MaintenanceRequest, maintain
from connectors.iceberg_tools.maintenance.maintenance_plan import (
    MaintenanceAction,
    due_actions,
    may_be_due,
)
from connectors.iceberg_tools.maintenance.table_state import TableState, glance, measure

log = logging.getLogger(__name__)

YIELD_SECONDS = 5.0  # that a commit waits for an action on its table to end by itself
LONGEST_YIELD_SECONDS = 60.0  # after some interruptions in a row
_IDLE_SECONDS = 90.0  # that a driver waits for another round
_ANSWER_SECONDS = 15.0  # that an interrupted action may take to be given up
_DRIVER = "maintenance"  # connectors of a worker share it, as they share that of their commits
_FAILED_SECONDS = 600.0  # after a round that failed
_TIERING_SECONDS = 3600.0
# bytes that a compaction rewrites and commits together
_LARGEST_GROUP, _SMALLEST_GROUP = (1 << 30, 32 << 20)


@dataclasses.dataclass
class _Watched:
    """What is remembered of one table."""

    policy: MaintenancePolicy
    ref: str
    changed: bool = True
    not_before: float = 0.0  # monotonic
    counted: TableState | None = None
    counted_at: float = float("-inf")  # monotonic
    group_bytes: int = _LARGEST_GROUP
    yield_seconds: float = YIELD_SECONDS

    @property
    def ages(self) -> bool:
        """Whether partitions may be old enough by now."""
        return (
            self.policy.tiering_age_ms is not None
            and time.monotonic() - self.counted_at > _TIERING_SECONDS
        )

    @property
    def is_due(self) -> bool:
        """Whether to look at it."""
        return (self.changed or self.ages) and time.monotonic() >= self.not_before


class MaintenanceThread(FullMaintenance):
    """Owns a thread, a session in the coordinator's driver, and for a round a driver. All methods:
    any thread."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        spark: SparkConfig,
        services: SharedServices,
        metrics: IcebergMetrics,
    ) -> None:
        """`spark`: what the coordinator's sessions are made from."""
        self._config = config
        self._spark = spark
        self._services = services
        self._metrics = metrics
        self._tables: dict[str, _Watched] = {}
        self._condition = threading.Condition()
        self._busy: str | None = None  # the table at which an action is under way
        # the tables of commits in progress, and those that follow them
        self._committing: set[str] = set()
        self._worker: LakeClient | None = None  # of the round, and for a while of the next one
        self._used_at = 0.0  # monotonic: when the last round ended
        self._interrupted = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def commit(self, table: str, *aggregates: str) -> Iterator[None]:
        """Around a commit: no action runs meanwhile on this table, nor on those that follow its
        commits.

        Several commits may be in progress, each on other tables.
        """
        tables = {table, *aggregates}
        with self._condition:
            self._committing |= tables
            watched = self._tables.get(self._busy or "")
            seconds = YIELD_SECONDS if watched is None else watched.yield_seconds
            if not self._condition.wait_for(lambda: self._busy not in tables, seconds):
                log.info(
                    "table %s: maintenance gives way to a commit",
                    self._busy,
                    extra={"action": "maintenance_yields"},
                )
                self._interrupt()
                if not self._condition.wait_for(lambda: self._busy not in tables, _ANSWER_SECONDS):
                    log.warning(
                        "table %s: a maintenance action does not end, a commit goes on beside it",
                        self._busy,
                    )
        try:
            yield
        finally:
            with self._condition:
                self._committing -= tables
                self._condition.notify_all()
            self.watch(table, changed=True)

    def watch(self, table: str, *, changed: bool = False) -> None:
        """Look after a table of the connector; at once if it is a new one, or was changed."""
        configured = self._config.table(table)
        if not configured.maintenance.is_full or self._stopping.is_set():
            return
        with self._condition:
            ref = configured.commit_branch or MAIN
            watched = self._tables.setdefault(table, _Watched(configured.maintenance, ref))
            watched.changed |= changed
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread and its drivers, for good; an action under way is interrupted."""
        self._stopping.set()
        with self._condition:
            self._interrupt()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_ANSWER_SECONDS)

    def _interrupt(self) -> None:
        """With the lock held."""
        if self._busy is not None and self._worker is not None:
            self._interrupted = True
            self._worker.hang_up()

    # --- on the thread

    def _run(self) -> None:
        with_coordinator = LakeClient(self._services, self._spark, user=self._config.connector)
        try:
            while not self._stopping.wait(self._pause_seconds()):
                for table, watched in list(self._tables.items()):
                    if watched.is_due and not self._stopping.is_set():
                        self._look(with_coordinator, table, watched)
                if time.monotonic() - self._used_at > _IDLE_SECONDS:
                    self._end_driver()
        finally:
            self._end_driver()
            # the service is the coordinator's as well, and ends with the task
            with_coordinator.hang_up()

    def _pause_seconds(self) -> float:
        """Between two looks at what is due; a driver that nothing needs must end in time."""
        return min(
            _IDLE_SECONDS, *(each.policy.interval_ms / 4000 for each in list(self._tables.values()))
        )

    def _look(self, lake: LakeClient, table: str, watched: _Watched) -> None:
        """Begin a round if something may be due, and this is the time for it."""
        policy, started = watched.policy, time.monotonic()
        watched.not_before = started + policy.interval_ms / 1000
        try:
            if not lake.alive():
                lake.start()
            watched.changed = False
            state = lake.run(table, glance, watched.ref, policy)
            self._metrics.table_state(table, state.data_files, state.delete_files, state.snapshots)
            now_ms = int(time.time() * 1000)
            if policy.window is not None and not policy.window.holds(now_ms):
                watched.changed = True
            elif watched.ages or may_be_due(state, watched.counted, policy, now_ms):
                self._round(table, watched)
        except Exception as error:  # tables are committed to all the same, whatever it is
            self._end_driver()
            watched.changed, watched.not_before = True, time.monotonic() + _FAILED_SECONDS
            if not self._stopping.is_set():
                self._metrics.maintained(table, INSPECTION, "failed", time.monotonic() - started)
                trace = None if isinstance(error, ConnectError) else error
                log.warning(
                    "table %s: maintenance is tried again later: %s", table, error, exc_info=trace
                )

    def _round(self, table: str, watched: _Watched) -> None:
        """Do what is due until the budget is spent.

        Raises:
            ConnectError: The driver does not start, or the table cannot be read.
        """
        policy, until = watched.policy, time.monotonic() + watched.policy.budget_ms / 1000
        if self._worker is None:
            spark = dataclasses.replace(self._spark, own_driver_of=_DRIVER)
            self._worker = LakeClient(self._services, spark, user=self._config.connector)
        worker = self._worker
        try:
            failed: set[str] = set()
            while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
                if not worker.alive():
                    worker.start()
                worker.deadline_seconds = max(left, 1.0)
                state = watched.counted = worker.run(table, measure, watched.ref, policy)
                watched.counted_at = time.monotonic()
                due = [
                    a
                    for a in due_actions(state, policy, int(time.time() * 1000))
                    if a.kind.value not in failed
                ]
                if not due:
                    return
                if not self._act(worker, table, watched, due[0]):
                    failed.add(due[0].kind.value)
        finally:
            self._used_at = time.monotonic()

    def _end_driver(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def _act(
        self, worker: LakeClient, table: str, watched: _Watched, action: MaintenanceAction
    ) -> bool:
        """Do one action; returns False if it shall not be tried again in this round."""
        with self._condition:
            self._condition.wait_for(
                lambda: table not in self._committing or self._stopping.is_set()
            )
            self._busy, self._interrupted = table, False
        kind, started = action.kind.value, time.monotonic()
        request = MaintenanceRequest(
            action, watched.policy, watched.ref, watched.group_bytes, self._config.connector
        )
        try:
            result = worker.run(table, maintain, request)
            outcome = "failed" if result.failure else "skipped" if result.skipped else "done"
            line, again = result.line(), result.helped
            group_bytes = watched.group_bytes // 2 if result.failure else 2 * watched.group_bytes
            watched.yield_seconds = YIELD_SECONDS
        except ConnectError as error:
            interrupted = self._interrupted
            outcome, line = (
                ("interrupted", f"{kind}: interrupted")
                if interrupted
                else ("failed", f"{kind}: {error}")
            )
            again = interrupted
            if interrupted:
                watched.yield_seconds = min(2 * watched.yield_seconds, LONGEST_YIELD_SECONDS)
            group_bytes = watched.group_bytes // 2
        finally:
            with self._condition:
                self._busy = None
                self._condition.notify_all()
        watched.group_bytes = min(max(group_bytes, _SMALLEST_GROUP), _LARGEST_GROUP)
        self._metrics.maintained(table, kind, outcome, time.monotonic() - started)
        level = logging.WARNING if outcome == "failed" else logging.INFO
        log.log(
            level,
            "table %s: %s",
            table,
            line,
            extra={"action": "maintenance", "table": table, "outcome": outcome},
        )
        return again
