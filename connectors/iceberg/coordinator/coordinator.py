"""The coordinator: a thread in task 0 that performs the actions of `CoordinatorState`.

It reads the channel, tracks time, and submits slow calls (catalog, commits, requests to the
cluster) to the threads of a `TableExecutor`. Calls for different tables run concurrently, and calls
for the same table run in sequence. Therefore, a commit does not delay other responses to tasks.

A run starts by fencing all earlier coordinators. It ends if a newer coordinator takes over, if the
outcome of a write is unknown, or if a change requires a restart. The next run reads everything
again. `connectors.iceberg.protocol` documents what a crash after each step leaves behind.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from connect_py.api.errors import CommitStateUnknownError, ConnectError, RetriableError
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import Unrouted
from connectors.iceberg.coordinator.bounded_run import BoundedRun
from connectors.iceberg.coordinator.channel_topic import (
    ChannelReader,
    CoordinatorWriter,
    FencedError,
    OvertakenError,
    create_channel,
)
from connectors.iceberg.coordinator.control_events import EventPublisher
from connectors.iceberg.coordinator.freshness import Freshness
from connectors.iceberg.coordinator.kafka_metadata import (
    describe_topics,
    first_positions,
    group_offsets,
    likely_tables,
    partitions_of,
    starts_at_end,
)
from connectors.iceberg.coordinator.maintenance_schedule import MaintenanceSchedule
from connectors.iceberg.coordinator.outlet import Outlet
from connectors.iceberg.coordinator.retry_tracker import RetryTracker
from connectors.iceberg.coordinator.table_executor import EVERY_TABLE, TableExecutor
from connectors.iceberg.coordinator.table_manager import TableManager, status_of
from connectors.iceberg.errors import (
    DuplicateKeyError,
    ExpectationFailedError,
    PairUnreadError,
    SchemaChangesPendingError,
    SparkLostError,
    TableError,
    TableMissingError,
    TableNotCreatedError,
)
from connectors.iceberg.maintenance.compaction import CompactionOutcome
from connectors.iceberg.maintenance.expiration import ExpirationOutcome
from connectors.iceberg.protocol.actions import (
    CleanFiles,
    CommitTable,
    CoordinatorAction,
    DescribeTopics,
    Fail,
    LoadTable,
    PrepareTable,
    ProveLeadership,
    ReadGroupOffsets,
    ReportFailure,
    Send,
    Stop,
    Warn,
)
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitStatus
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.ledger import TableView, look_up
from connectors.iceberg.protocol.messages import (
    CommitComplete,
    EpochStarted,
    Message,
    Report,
    StartCommit,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TopicInfo

log = logging.getLogger(__name__)

OUTLET_SECONDS = 0.5  # time for outlets to send pending events when the coordinator stops
POLL_SECONDS = 0.05  # interval between polls of the channel, also during commits
DESCRIBE_SECONDS = 30.0  # interval between checks for added partitions and replaced topics
LOOK_SECONDS = 15.0  # interval between checks for rollbacks of tables that receive no rows
LOOKS = 10  # tables per check; each table requires a request to the catalog
SCHEDULE_MS = 200  # interval between checks for due maintenance
FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 30.0
NO_TABLE: Final = frozenset({""})  # for calls that do not use a table; they run in sequence

_P = ParamSpec("_P")
_T = TypeVar("_T")
Answer = Callable[[], list[CoordinatorAction]]
_FAULT_POINTS: Mapping[type[Message], tuple[str, ...]] = {  # before and after sending
    EpochStarted: ("before_epoch_started",),
    StartCommit: ("before_start_commit", "after_start_commit"),
    CommitComplete: ("before_commit_complete", "after_commit_complete"),
}


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """Objects that all runs of a coordinator share."""

    config: IcebergSinkConfig
    context: SinkTaskContext
    tables: TableManager
    events: EventPublisher
    retries: RetryTracker
    freshness: Freshness
    bounded: BoundedRun | None  # None if the connector does not stop automatically
    schedule: MaintenanceSchedule | None  # None if this coordinator does not maintain tables
    stopping: threading.Event


@dataclass(slots=True)
class RunStatus:
    """Progress of one run."""

    started: bool = False  # True if the topics and tables that the run requires were available
    completed_cycle: bool = False


class Coordinator:
    """Owns its thread, the table threads, and the table manager. Task 0 starts and stops it."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        context: SinkTaskContext,
        tables: TableManager,
        events: EventPublisher,
        metrics: IcebergMetrics,
        outlets: Sequence[Outlet] = (),
        *,
        restarts: bool = True,
        maintains: bool = True,
    ) -> None:
        """Create a coordinator without starting it.

        Args:
            config: The connector's configuration.
            context: The context of task 0.
            tables: The table manager, which the coordinator stops.
            events: Publishes commits on the control topic.
            metrics: The sink's metrics.
            outlets: Publishers of events, which the coordinator closes.
            restarts: True to take over again after a newer coordinator has taken over.
            maintains: True to maintain tables between cycles, as configured.
        """
        self._metrics = metrics
        self._outlets = outlets
        self._restarts = restarts
        self._parts = CoordinatorParts(
            config,
            context,
            tables,
            events,
            RetryTracker(metrics, context, config.commit_max_failures, config.commit_interval_ms),
            Freshness(metrics),
            None if config.stop_at is None else BoundedRun(config.stop_at, context, metrics),
            MaintenanceSchedule(
                config.commit_interval_ms / 1000, lambda name: config.table(name).maintenance
            )
            if maintains
            else None,
            threading.Event(),
        )
        self._failure: ConnectError | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End the thread and the sessions. A commit in progress has `seconds` to finish."""
        self._parts.stopping.set()
        self._thread.join(seconds)
        self._parts.tables.stop()
        for outlet in self._outlets:
            outlet.close(OUTLET_SECONDS)

    def check(self) -> None:
        """Raise the error that ended the coordinator, if any."""
        self._parts.freshness.measure()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        stopping, backoff = self._parts.stopping, FIRST_BACKOFF_SECONDS
        while not stopping.is_set():
            status = RunStatus()
            self._metrics.coordinator_begins()
            self._parts.retries.begins()
            try:
                run_epoch(self._parts, status)
            except (FencedError, RetriableError) as error:
                if not self._may_restart(status, error):
                    return
            except ConnectError as error:
                self._failure = error
                return
            except Exception as error:
                log.exception("coordinator ended")
                self._failure = ConnectError(
                    f"the coordinator ended: {type(error).__name__}: {error}"
                )
                self._failure.__cause__ = error
                return
            if status.completed_cycle:
                backoff = FIRST_BACKOFF_SECONDS
            stopping.wait(backoff)
            backoff = min(2 * backoff, LAST_BACKOFF_SECONDS)

    def _may_restart(self, status: RunStatus, error: ConnectError) -> bool:
        """Log the end of a run or count a failed start. Return True if another run may start."""
        is_stopping = self._parts.stopping.is_set()
        if isinstance(error, OvertakenError) and not self._restarts and not is_stopping:
            self._failure = ConnectError(
                f"another coordinator of the connector has taken over: {error}"
            )
            return False
        if status.started or isinstance(error, FencedError) or is_stopping:
            log.warning("coordinator restarts: %s", error)
            return True
        try:
            self._parts.retries.cannot_begin(str(error))
        except ConnectError as failure:
            self._failure = failure
            self._failure.__cause__ = error
            return False
        return True


class RoundRobin:
    """Selects names from a changing set in round-robin order."""

    def __init__(self) -> None:
        self._last = ""

    def next(self, names: Iterable[str], count: int) -> list[str]:
        """Return up to `count` names in alphabetical order, starting after the last selection.

        After the last name, the selection continues with the first name.
        """
        ordered = sorted(names)
        start = bisect_right(ordered, self._last)
        selection = [*ordered[start:], *ordered[:start]][:count]
        self._last = selection[-1] if selection else self._last
        return selection


def run_epoch(parts: CoordinatorParts, status: RunStatus) -> None:
    """Run a coordinator until it is stopped, fenced, or overtaken.

    Raises:
        FencedError: A newer coordinator exists or may exist.
        RetriableError: Kafka or the catalog is unavailable, but a later run may succeed.
        ConnectError: A user must intervene.
    """
    config, context, stopping = parts.config, parts.context, parts.stopping
    with ExitStack() as stack:
        executor = TableExecutor(config.commit_threads)
        # The next run must not start while a commit of this run is in progress. If the task stops,
        # there is no next run, and the driver also stops.
        stack.callback(lambda: executor.shutdown(wait=not stopping.is_set()))
        driver_start = executor.submit(NO_TABLE, parts.tables.start)
        create_channel(context.client_config, config.channel_topic)
        reader = stack.enter_context(
            closing(ChannelReader(context.client_config, config.channel_topic))
        )
        writer = stack.enter_context(
            closing(
                CoordinatorWriter(
                    context.client_config, config.channel_topic, config.coordinator_transactional_id
                )
            )
        )
        fault_point("after_fencing")
        messages = reader.read_to_end()
        if parts.bounded is not None:
            messages = parts.bounded.read(messages)
        highest = _highest_epoch(messages)
        _await(driver_start, stopping)
        state, actions = _begin(parts, executor, highest)
        status.started = True
        parts.retries.begun()
        log.info(
            "coordinator of epoch %d started", state.epoch.number, extra={"action": "epoch_started"}
        )
        CoordinatorEpoch(parts, status, executor, reader, writer, state).run(actions)


def _begin(
    parts: CoordinatorParts, executor: TableExecutor, highest: Epoch | None
) -> tuple[CoordinatorState, list[CoordinatorAction]]:
    """Read topics, group offsets, and tables. Return a new epoch's state and first actions."""
    config, context, tables = parts.config, parts.context, parts.tables
    topics = describe_topics(context)
    group = group_offsets(context, topics)
    loads = {
        name: executor.submit(tables.tables_of_commit(name), tables.view, name)
        for name in likely_tables(config, topics)
    }
    views = {name: _await(load, parts.stopping) for name, load in loads.items()}
    has_ledger = any(view and look_up(view).ledger for view in views.values())
    # `auto.offset.reset=latest` is resolved to offsets once
    if not group and not has_ledger and starts_at_end(context):
        group = {
            tp: GroupOffset(offset, None) for tp, offset in first_positions(context, topics).items()
        }
    has_dynamic_tables = config.dynamic or bool(config.topic_rules)
    settings = CoordinatorSettings(
        cluster=context.cluster_id,
        start_number=context.start_number,
        commit_interval_ms=config.commit_interval_ms,
        commit_timeout_ms=config.commit_timeout_ms,
        dynamic=has_dynamic_tables,
        skip_missing=config.skip_missing,
        skip_unknown=has_dynamic_tables and config.unrouted is not Unrouted.FAIL,
        new_topic_allowed=config.restart_recreated,
        bounds=None if parts.bounded is None else parts.bounded.resolve(topics, group),
    )
    state = CoordinatorState(
        settings, nonce=uuid.uuid4().hex[:8], new_uuid=lambda: str(uuid.uuid4())
    )
    ranges = context.log_range(partitions_of(topics))
    # read after the tables, so that no ledger is beyond the end of a partition
    ends = {tp: end for tp, (_, end) in ranges.items()}
    return state, state.begin(topics, group, views, highest, _now_ms(), ends)


def _await(future: Future[_T], stopping: threading.Event) -> _T:
    """Wait for a call on a table thread, unless a stop is requested."""
    while True:
        try:
            return future.result(POLL_SECONDS)
        except TimeoutError:
            if future.done():
                raise
            if stopping.is_set():
                raise RetriableError("stopped while a table thread was busy") from None


class CoordinatorEpoch:
    """Performs the actions of one epoch of a coordinator."""

    def __init__(
        self,
        parts: CoordinatorParts,
        status: RunStatus,
        executor: TableExecutor,
        reader: ChannelReader,
        writer: CoordinatorWriter,
        state: CoordinatorState,
    ) -> None:
        self._parts = parts
        self._context = parts.context
        self._tables = parts.tables
        self._retries = parts.retries
        self._status = status
        self._executor = executor
        self._reader = reader
        self._writer = writer
        self._state = state
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._described_at = 0.0
        self._looked_at = time.monotonic()
        self._quiet_tables = RoundRobin()
        self._is_maintaining = False
        self._schedule_checked_ms = 0

    def run(self, actions: list[CoordinatorAction]) -> None:
        """Perform actions until the epoch ends. Raises the same errors as `run_epoch`."""
        state = self._state
        self._write_bounds()
        self._perform_all(actions)
        while not self._parts.stopping.is_set() and not state.ended:
            for message in self._reader.poll(POLL_SECONDS):
                message_actions = state.on_message(message)
                if isinstance(message, Report):
                    fault_point("after_accept")
                self._perform_all(message_actions)
            while not self._answers.empty():
                self._perform_all(self._answers.get()())
            if time.monotonic() - self._described_at > DESCRIBE_SECONDS:
                self._describe()
            if time.monotonic() - self._looked_at > LOOK_SECONDS:
                self._look()
            self._maintain()
            self._perform_all(state.on_tick(_now_ms()))
            self._write_bounds()
            self._stop_at_bounds()

    def _write_bounds(self) -> None:
        """Write the bounds to the channel if this is due."""
        bounded = self._parts.bounded
        messages = [] if bounded is None else bounded.message_due(self._state.epoch)
        if messages:
            fault_point("before_bounds")
            self._writer.send(messages)
            fault_point("after_bounds")

    def _stop_at_bounds(self) -> None:
        """Request that the connector stop if no offsets remain."""
        bounded = self._parts.bounded
        if (
            bounded is None
            or not bounded.is_check_due()
            or not bounded.is_reached(self._state.remaining)
        ):
            return
        fault_point("before_stop_request")
        self._then(
            self._executor.submit(NO_TABLE, bounded.stop_if_committed),
            lambda _: [],
            partial(_warn, "cannot read the group offsets, retrying later"),
        )

    # Actions

    def _perform_all(self, actions: Iterable[CoordinatorAction]) -> None:
        """Perform actions in order. Consecutive messages are sent in one transaction."""
        messages: list[Message] = []
        for action in actions:
            if isinstance(action, Send):
                messages.append(action.message)
                continue
            self._send(messages)
            messages = []
            self._perform(action)
        self._send(messages)

    def _send(self, messages: list[Message]) -> None:
        if not messages:
            return
        for message in messages:
            for name in _FAULT_POINTS.get(type(message), ())[:1]:
                fault_point(name)
        self._writer.send(messages)
        for message in messages:
            if isinstance(message, CommitComplete):
                self._status.completed_cycle = True
                self._retries.cycle_ended(self._state.failing)
                self._parts.freshness.update(self._state.ages())
                self._parts.events.on_cycle_complete(str(uuid.uuid4()), None)
            for name in _FAULT_POINTS.get(type(message), ())[1:]:
                fault_point(name)

    def _perform(self, action: CoordinatorAction) -> None:
        state = self._state
        match action:
            case Stop(reason, overtaken):
                raise OvertakenError(reason) if overtaken else FencedError(reason)
            case Fail(reason):
                raise ConnectError(reason)
            case Warn(text):
                log.warning("%s", text)
            case ReportFailure(table, reason, consecutive):
                self._retries.not_committed(table, consecutive, reason)
            case ProveLeadership(token):
                # raises if another coordinator has fenced this one
                self._writer.send([EpochStarted(state.epoch)])
                self._answers.put(lambda: state.on_leadership(token, True))
            case DescribeTopics():
                self._describe()
            case ReadGroupOffsets():
                self._then(
                    self._executor.submit(NO_TABLE, describe_topics, self._context),
                    lambda topics: state.on_group_offsets(group_offsets(self._context, topics)),
                )
            case LoadTable(table):
                self._then(
                    self._submit(table, self._tables.view_to_commit, table),
                    lambda view: state.on_table_loaded(table, view, _now_ms()),
                    lambda error: state.on_load_failed(table, _reason(table, error), _now_ms()),
                )
            case PrepareTable(table, need, schema):
                self._then(
                    self._submit(table, self._tables.prepare, table, need, schema),
                    lambda result: self._prepared(table, *result),
                    lambda error: self._not_prepared(table, error),
                )
            case CommitTable(table, commit):
                tables = self._tables.tables_of_commit(table)
                self._then(
                    self._executor.submit(
                        EVERY_TABLE if self._tables.is_suspect(table) else tables,
                        self._tables.commit,
                        action,
                        state.epoch,
                    ),
                    partial(self._committed, table, commit),
                    lambda error: self._not_committed(table, commit, error),
                )
            case CleanFiles(table, table_uuid, epoch):
                self._then(
                    self._submit(table, self._tables.clean, table, table_uuid, epoch),
                    lambda _: [],
                    partial(_warn, "files of earlier epochs remain until the next start"),
                )

    def _prepared(self, table: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        self._retries.opened(table)
        return self._state.on_table_prepared(table, view, answer)

    def _not_prepared(self, table: str, error: ConnectError) -> list[CoordinatorAction]:
        """Handle a table that could not be prepared. Waiting tasks repeat their requests."""
        reason = _reason(table, error)
        if isinstance(error, RetriableError | CommitStateUnknownError):
            self._retries.cannot_open(table, reason)
            return self._state.on_table_waits(table)
        if isinstance(error, SchemaChangesPendingError):
            self._retries.awaits_approval(table, reason)
            return self._state.on_table_waits(table)
        self._retries.opened(table)  # the catalog has responded
        missing = isinstance(error, TableMissingError)
        rows = isinstance(error, TableNotCreatedError)  # the task reports the bad records
        # a missing table may be requested in every cycle, and waiting tasks report it
        if not missing and not rows:
            log.warning(
                "table %s cannot be written by tasks: %s",
                table,
                reason,
                extra={"action": "table_refused", "table": table},
            )
        return self._state.on_table_refused(table, reason, missing=missing, rows=rows)

    def _committed(
        self, table: str, commit: str, outcome: CommitOutcome
    ) -> list[CoordinatorAction]:
        schedule = self._parts.schedule
        if schedule is not None and outcome.status is CommitStatus.COMMITTED:
            schedule.committed(table, outcome.counts)
        return self._state.on_commit_outcome(
            table, commit, outcome.status, outcome.reason, outcome.snapshot_id, _now_ms()
        )

    def _not_committed(
        self, table: str, commit: str, error: ConnectError
    ) -> list[CoordinatorAction]:
        if isinstance(error, PairUnreadError):
            return [Stop(str(error))]  # all rows are read again, and tasks wait where necessary
        return self._state.on_commit_outcome(
            table, commit, status_of(error), _reason(table, error), None, _now_ms()
        )

    def _maintain(self) -> None:
        """Start a maintenance action if one is due and may start before the next cycle."""
        schedule, next_cycle_ms = self._parts.schedule, self._state.next_cycle_ms
        if schedule is None or next_cycle_ms is None or self._is_maintaining:
            return
        started_ms = _now_ms()
        if started_ms < self._schedule_checked_ms + SCHEDULE_MS:
            return
        self._schedule_checked_ms = started_ms
        gap_seconds = (next_cycle_ms - started_ms) / 1000
        task = schedule.next(started_ms / 1000, int(time.time() * 1000), gap_seconds)
        if task is None:
            return

        def ended(outcome: CompactionOutcome | ExpirationOutcome) -> list[CoordinatorAction]:
            self._is_maintaining = False
            schedule.ended(task, outcome, _now_ms() / 1000)
            return []

        def failed(error: ConnectError) -> list[CoordinatorAction]:
            self._is_maintaining = False
            now_ms = _now_ms()
            schedule.failed(task, (now_ms - started_ms) / 1000, now_ms / 1000)
            return _warn(f"table {task.table}: could not {task.kind.value}, retrying later", error)

        self._is_maintaining = True
        self._then(
            self._submit(task.table, self._tables.maintain, task, self._state.epoch), ended, failed
        )

    def _look(self) -> None:
        """Check some of the tables that receive no rows for rollbacks (see `on_table_seen`)."""
        self._looked_at = time.monotonic()
        for name in self._quiet_tables.next(self._state.quiet_tables, LOOKS):
            future = self._submit(name, self._tables.view, name)
            self._then(future, partial(self._state.on_table_seen, name), lambda _: [])

    def _describe(self) -> None:
        self._described_at = time.monotonic()

        def described(topics: Mapping[str, TopicInfo]) -> list[CoordinatorAction]:
            actions = self._state.on_topics(topics)
            self._parts.freshness.update(self._state.ages())
            return actions

        self._then(
            self._executor.submit(NO_TABLE, describe_topics, self._context),
            described,
            partial(_warn, "cannot describe the topics, retrying later"),
        )

    def _submit(
        self, table: str, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs
    ) -> Future[_T]:
        """Call a function of the table manager after all earlier calls for the table have ended."""
        return self._executor.submit(
            self._tables.tables_of_commit(table), function, *arguments, **keywords
        )

    def _then(
        self,
        future: Future[Any],
        answer: Callable[[Any], list[CoordinatorAction]],
        failed: Callable[[ConnectError], list[CoordinatorAction]] | None = None,
    ) -> None:
        """Pass the result of a call to the state machine on the coordinator's thread."""

        def decide() -> list[CoordinatorAction]:
            error = future.exception()
            if error is None:
                return answer(future.result())
            if failed is None or not isinstance(error, ConnectError):
                raise error
            if isinstance(error, DuplicateKeyError | ExpectationFailedError | SparkLostError):
                raise error
            return failed(error)

        future.add_done_callback(lambda _: self._answers.put(decide))


def _reason(table: str, error: ConnectError) -> str:
    """Return the error message without the table name, because callers add the name."""
    return error.why if isinstance(error, TableError) else str(error).removeprefix(f"{table}: ")


def _warn(message: str, error: ConnectError) -> list[CoordinatorAction]:
    log.warning("%s: %s", message, error)
    return []


def _highest_epoch(messages: Iterable[Message]) -> Epoch | None:
    epochs = [
        epoch
        for message in messages
        if (epoch := getattr(message, "epoch", None) or getattr(message, "seen", None)) is not None
    ]
    return max(epochs, default=None)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
