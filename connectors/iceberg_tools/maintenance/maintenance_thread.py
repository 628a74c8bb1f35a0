"""`MaintenanceThread`: maintains a coordinator's tables between cycles, in a separate driver.

A table that was opened or committed to is inspected at most once per interval. Its metadata shows
whether actions may be due. If so, a round begins: a driver is started, files are counted, and the
due actions are performed one at a time until none is due or the time budget is used up. The driver
remains available for some time after a round. If commits are frequent, many files would accumulate
while a new driver starts.

A commit does not run concurrently with an action on its table or on an aggregate of the table. The
commit waits a few seconds for the action to end and then interrupts it. After the commit, the
action continues from its own last commit. Each consecutive interruption doubles the time that a
commit waits, so tables are compacted even if cycles are short. Aggregate commits that an
earlier coordinator left unfinished do not wait. They are retried if an action commits first. A
restart loses no state because the due actions are always determined from the table.

Partitions become cold without commits, so a table with tiering is also inspected once per hour.
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

YIELD_SECONDS = 5.0  # time that a commit waits for an action on its table
LONGEST_YIELD_SECONDS = 60.0  # maximum after several consecutive interruptions
_IDLE_SECONDS = 90.0  # idle time after which the driver ends
_ANSWER_SECONDS = 15.0  # time that an interrupted action may take to end
_DRIVER = "maintenance"  # name of the driver, which connectors with equal static settings share
_RETRY_SECONDS = 600.0  # delay after a failed round
_TIERING_SECONDS = 3600.0  # interval between checks for cold partitions
# maximum total size of the files that a compaction rewrites and commits together
_LARGEST_GROUP, _SMALLEST_GROUP = (1 << 30, 32 << 20)


@dataclasses.dataclass
class _Watched:
    """Maintenance state of one table."""

    policy: MaintenancePolicy
    ref: str
    changed: bool = True
    not_before: float = 0.0  # earliest monotonic time of the next inspection
    counted: TableState | None = None
    counted_at: float = float("-inf")  # monotonic time of `counted`
    group_bytes: int = _LARGEST_GROUP
    yield_seconds: float = YIELD_SECONDS

    @property
    def may_be_cold(self) -> bool:
        """True if partitions may have become cold."""
        return (
            self.policy.tiering_age_ms is not None
            and time.monotonic() - self.counted_at > _TIERING_SECONDS
        )

    @property
    def is_due(self) -> bool:
        """True if the table must be inspected."""
        return (self.changed or self.may_be_cold) and time.monotonic() >= self.not_before


class MaintenanceThread(FullMaintenance):
    """Owns a thread, a session in the coordinator's driver, and a driver for rounds.

    Thread-safe.
    """

    def __init__(
        self,
        config: IcebergSinkConfig,
        spark: SparkConfig,
        services: SharedServices,
        metrics: IcebergMetrics,
    ) -> None:
        """Create the maintenance for a connector. `spark` configures the coordinator's sessions."""
        self._config = config
        self._spark = spark
        self._services = services
        self._metrics = metrics
        self._tables: dict[str, _Watched] = {}
        self._condition = threading.Condition()
        self._busy: str | None = None  # table of the current action
        # tables of commits in progress, and their aggregates
        self._committing: set[str] = set()
        self._worker: LakeClient | None = None  # client of the driver for rounds
        self._used_at = 0.0  # monotonic time of the end of the last round
        self._interrupted = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def commit(self, table: str, *aggregates: str) -> Iterator[None]:
        """Return a context for a commit, which excludes actions on the table and its aggregates.

        Several commits may be in progress, each to different tables.
        """
        tables = {table, *aggregates}
        with self._condition:
            self._committing |= tables
            watched = self._tables.get(self._busy or "")
            seconds = YIELD_SECONDS if watched is None else watched.yield_seconds
            if not self._condition.wait_for(lambda: self._busy not in tables, seconds):
                log.info(
                    "table %s: interrupting maintenance for a commit",
                    self._busy,
                    extra={"action": "maintenance_yields"},
                )
                self._interrupt()
                if not self._condition.wait_for(lambda: self._busy not in tables, _ANSWER_SECONDS):
                    log.warning(
                        "table %s: the maintenance action did not end, continuing with the commit",
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
        """Maintain a table of the connector. Inspect it soon if it is new or has changed."""
        config = self._config.table(table)
        if not config.maintenance.is_full or self._stopping.is_set():
            return
        with self._condition:
            ref = config.commit_branch or MAIN
            watched = self._tables.setdefault(table, _Watched(config.maintenance, ref))
            watched.changed |= changed
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Interrupt the current action and end the thread and its drivers permanently."""
        self._stopping.set()
        with self._condition:
            self._interrupt()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_ANSWER_SECONDS)

    def _interrupt(self) -> None:
        """Interrupt the current action. The caller must hold the lock."""
        if self._busy is not None and self._worker is not None:
            self._interrupted = True
            self._worker.hang_up()

    # Called on the maintenance thread

    def _run(self) -> None:
        lake = LakeClient(self._services, self._spark, user=self._config.connector)
        try:
            while not self._stopping.wait(self._pause_seconds()):
                for table, watched in list(self._tables.items()):
                    if watched.is_due and not self._stopping.is_set():
                        self._inspect(lake, table, watched)
                if time.monotonic() - self._used_at > _IDLE_SECONDS:
                    self._end_driver()
        finally:
            self._end_driver()
            # the service is not stopped because the coordinator uses it until the task ends
            lake.hang_up()

    def _pause_seconds(self) -> float:
        """Return the time until the next check for due tables and for an idle driver."""
        intervals = [watched.policy.interval_ms / 4000 for watched in list(self._tables.values())]
        return min(_IDLE_SECONDS, *intervals)

    def _inspect(self, lake: LakeClient, table: str, watched: _Watched) -> None:
        """Start a round if actions may be due and the policy allows them now."""
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
            elif watched.may_be_cold or may_be_due(state, watched.counted, policy, now_ms):
                self._round(table, watched)
        except Exception as error:  # commits continue regardless of the error
            self._end_driver()
            watched.changed, watched.not_before = True, time.monotonic() + _RETRY_SECONDS
            if not self._stopping.is_set():
                self._metrics.maintained(table, INSPECTION, "failed", time.monotonic() - started)
                trace = None if isinstance(error, ConnectError) else error
                log.warning(
                    "table %s: maintenance failed, retrying later: %s", table, error, exc_info=trace
                )

    def _round(self, table: str, watched: _Watched) -> None:
        """Perform the due actions until the time budget is spent.

        Raises:
            ConnectError: The driver does not start, or the table cannot be read.
        """
        policy, until = watched.policy, time.monotonic() + watched.policy.budget_ms / 1000
        if self._worker is None:
            spark = dataclasses.replace(self._spark, own_driver_of=_DRIVER)
            self._worker = LakeClient(self._services, spark, user=self._config.connector)
        worker = self._worker
        try:
            failed_kinds: set[str] = set()
            while not self._stopping.is_set() and (seconds := until - time.monotonic()) > 0:
                if not worker.alive():
                    worker.start()
                worker.deadline_seconds = max(seconds, 1.0)
                state = watched.counted = worker.run(table, measure, watched.ref, policy)
                watched.counted_at = time.monotonic()
                due = [
                    action
                    for action in due_actions(state, policy, int(time.time() * 1000))
                    if action.kind.value not in failed_kinds
                ]
                if not due:
                    return
                if not self._perform(worker, table, watched, due[0]):
                    failed_kinds.add(due[0].kind.value)
        finally:
            self._used_at = time.monotonic()

    def _end_driver(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def _perform(
        self, worker: LakeClient, table: str, watched: _Watched, action: MaintenanceAction
    ) -> bool:
        """Perform one action. Return False if it must not be repeated in this round."""
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
