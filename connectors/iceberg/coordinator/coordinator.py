"""The coordinator: one thread in task 0 that carries out what `CoordinatorState` decides.

It reads the channel, keeps time, and hands everything that may take long (catalog, commits,
questions to the cluster) to the threads of a `TableExecutor`: calls on different tables run in
parallel, calls on one table one after another. So a commit under way keeps no task waiting that
only asks where a partition stands.

A life begins with fencing every earlier coordinator and ends when a newer one is seen, a write's
outcome is unknown, or the ground moved; then the next life reads everything again. What a crash
leaves after each numbered step, and who repairs it, stands in `connectors.iceberg.protocol`.
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
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

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
    begins_at_end,
    describe_topics,
    first_positions,
    group_offsets,
    likely_tables,
    partitions_of,
)
from connectors.iceberg.coordinator.maintenance_schedule import MaintenanceSchedule
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

OUTLET_SECONDS = 0.5  # for messages to others that wait when the coordinator ends
POLL_SECONDS = 0.05  # the channel is looked at this often, also while commits run
DESCRIBE_SECONDS = 30.0  # how soon added partitions and replaced topics are noticed
LOOK_SECONDS = 15.0  # how soon a roll-back of a quiet table is noticed, where there are few tables
LOOKS = 10  # tables that are looked at each time: each costs a request to the catalog
SCHEDULE_MS = 200  # between two questions whether maintenance is due
FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 30.0
NO_TABLE: Final = frozenset({""})  # of calls that need no table; they run one after another

_P = ParamSpec("_P")
_T = TypeVar("_T")
Answer = Callable[[], list[CoordinatorAction]]


class Outlet(Protocol):
    """Tells others what happens."""

    def close(self, seconds: float) -> None:
        """Send what waits, for so long at most, and end."""


class Coordinator:
    """Owns its thread, the table threads, and the table manager; started and stopped by task 0."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        context: SinkTaskContext,
        tables: TableManager,
        events: EventPublisher,
        metrics: IcebergMetrics,
        outlets: Sequence[Outlet] = (),
        *,
        begins_anew: bool = True,
        maintains: bool = True,
    ) -> None:
        """Prepare a coordinator; nothing starts yet.

        Args:
            outlets: Publish events; they end with the coordinator.
            begins_anew: Take the lead back after a newer coordinator took it.
            maintains: Maintain tables between cycles, as configured.
        """
        self._config = config
        self._context = context
        self._tables = tables
        self._events = events
        self._metrics = metrics
        self._outlets = outlets
        self._begins_anew = begins_anew
        self._freshness = Freshness(metrics)
        self._bounded = (
            None if config.stop_at is None else BoundedRun(config.stop_at, context, metrics)
        )
        self._retries = RetryTracker(
            metrics, context, config.commit_max_failures, config.commit_interval_ms
        )
        self._schedule: MaintenanceSchedule | None = None
        if maintains:
            seconds = config.commit_interval_ms / 1000
            self._schedule = MaintenanceSchedule(
                seconds, lambda name: config.table(name).maintenance
            )
        self._stopping = threading.Event()
        self._failure: ConnectError | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End the thread, the driver and its JVM; a commit under way is given this long."""
        self._stopping.set()
        self._thread.join(seconds)
        self._tables.stop()
        for outlet in self._outlets:
            outlet.close(OUTLET_SECONDS)

    def check(self) -> None:
        """Raise what ended the coordinator, if something did."""
        self._freshness.measure()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            life = _CoordinatorEpoch(
                self._config,
                self._context,
                self._tables,
                self._events,
                self._retries,
                self._freshness,
                self._bounded,
                self._schedule,
                self._stopping,
            )
            self._metrics.coordinator_begins()
            self._retries.begins()
            try:
                life.run()
            except (FencedError, RetriableError) as error:
                if not self._may_begin_anew(life, error):
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
            if life.worked:
                backoff = FIRST_BACKOFF_SECONDS
            self._stopping.wait(backoff)
            backoff = min(2 * backoff, LAST_BACKOFF_SECONDS)

    def _may_begin_anew(self, life: _CoordinatorEpoch, error: ConnectError) -> bool:
        """Tell of the end of a life; one that could not even begin is counted."""
        if (
            isinstance(error, OvertakenError)
            and not self._begins_anew
            and not self._stopping.is_set()
        ):
            self._failure = ConnectError(f"another coordinator of the connector leads: {error}")
            return False
        if life.begun or isinstance(error, FencedError) or self._stopping.is_set():
            log.warning("coordinator begins anew: %s", error)
            return True
        try:
            self._retries.cannot_begin(str(error))
        except ConnectError as given_up:
            self._failure = given_up
            self._failure.__cause__ = error
            return False
        return True


class RoundRobin:
    """Takes turns among names that come and go."""

    def __init__(self) -> None:
        self._last = ""

    def next(self, names: Iterable[str], count: int) -> list[str]:
        """The names that follow those of the last time, in order of the alphabet; each once at
        most."""
        ordered = sorted(names)
        start = bisect_right(ordered, self._last)
        found = [*ordered[start:], *ordered[:start]][:count]
        self._last = found[-1] if found else self._last
        return found


@dataclass
class _CoordinatorEpoch:
    """One epoch of a coordinator."""

    _config: IcebergSinkConfig
    _context: SinkTaskContext
    _tables: TableManager
    _events: EventPublisher
    _retries: RetryTracker
    _freshness: Freshness
    _bounded: BoundedRun | None  # None: the connector does not stop by itself
    _schedule: MaintenanceSchedule | None  # None: no table is maintained here
    _stopping: threading.Event
    _executor: TableExecutor = field(init=False)
    _writer: CoordinatorWriter = field(init=False)
    _state: CoordinatorState = field(init=False)
    _answers: queue.SimpleQueue[Answer] = field(default_factory=queue.SimpleQueue)
    _described_at: float = 0.0
    _looked_at: float = field(default_factory=time.monotonic)
    _to_look_at: RoundRobin = field(default_factory=RoundRobin)
    _is_maintaining: bool = False
    _asked_schedule_ms: int = 0
    begun: bool = False  # what it needs was there
    worked: bool = False  # at least one cycle was completed

    def run(self) -> None:
        """Live until stopped, fenced or overtaken.

        Raises:
            FencedError: A newer coordinator exists, or that is not known.
            RetriableError: Kafka or the catalog is away; a new life may find them.
            ConnectError: Something that a person must decide.
        """
        config, context = self._config, self._context
        with ExitStack() as stack:
            executor = self._executor = TableExecutor(config.commit_threads)
            # A life does not begin while a commit of the last one runs; but who stops us also ends
            # the driver.
            stack.callback(lambda: executor.shutdown(wait=not self._stopping.is_set()))
            starting = executor.submit(NO_TABLE, self._tables.start)
            create_channel(context.client_config, config.channel_topic)
            reader = stack.enter_context(
                closing(ChannelReader(context.client_config, config.channel_topic))
            )
            self._writer = CoordinatorWriter(
                context.client_config, config.channel_topic, config.coordinator_transactional_id
            )
            stack.enter_context(closing(self._writer))
            fault_point("after_fencing")
            messages = reader.read_to_end()
            highest = _highest_epoch(
                messages if self._bounded is None else self._bounded.noted(messages)
            )
            self._await(starting)
            actions = self._begin(highest)
            state = self._state
            self.begun = True
            self._retries.begun()
            log.info(
                "coordinator of epoch %d begins",
                state.epoch.number,
                extra={"action": "epoch_started"},
            )
            self._say_bounds()
            self._carry_out(actions)
            while not self._stopping.is_set() and not state.ended:
                for message in reader.poll(POLL_SECONDS):
                    decided = state.on_message(message)
                    if isinstance(message, Report):
                        fault_point("after_accept")
                    self._carry_out(decided)
                while not self._answers.empty():
                    self._carry_out(self._answers.get()())
                if time.monotonic() - self._described_at > DESCRIBE_SECONDS:
                    self._describe()
                if time.monotonic() - self._looked_at > LOOK_SECONDS:
                    self._look()
                self._maintain()
                self._carry_out(state.on_tick(_now_ms()))
                self._say_bounds()
                self._stop_at_bounds()

    def _await(self, future: Future[Any]) -> Any:
        """Wait for a call on a table thread, unless a stop is requested meanwhile."""
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if self._stopping.is_set():
                    raise RetriableError("stopped while a table thread was busy") from None

    def _say_bounds(self) -> None:
        """Write where the connector stops to the channel, if that is due."""
        messages = [] if self._bounded is None else self._bounded.message_due(self._state.epoch)
        if messages:
            fault_point("before_bounds")
            self._writer.send(messages)
            fault_point("after_bounds")

    def _stop_at_bounds(self) -> None:
        """Have the connector stopped if nothing remains to be read and committed."""
        bounded = self._bounded
        if (
            bounded is None
            or not bounded.is_look_due()
            or not bounded.is_reached(self._state.remaining)
        ):
            return
        fault_point("before_stop_request")
        later = partial(_warned, "the group's offsets are not known, asked again later")
        self._then(self._executor.submit(NO_TABLE, bounded.stop_if_committed), lambda _: [], later)

    # --- the start of a life

    def _begin(self, highest: Epoch | None) -> list[CoordinatorAction]:
        config, context = self._config, self._context
        topics = describe_topics(context)
        known = likely_tables(config, topics)
        group = group_offsets(context, topics)
        loads = {name: self._submit(name, self._tables.view, name) for name in known}
        views = {name: self._await(load) for name, load in loads.items()}
        begins = not group and not any(view and look_up(view).ledger for view in views.values())
        # `auto.offset.reset=latest` becomes numbers once, afterwards never
        if begins and begins_at_end(context):
            group = {
                tp: GroupOffset(offset, None)
                for tp, offset in first_positions(context, topics).items()
            }
        settings = CoordinatorSettings(
            cluster=context.cluster_id,
            start_number=context.start_number,
            commit_interval_ms=config.commit_interval_ms,
            commit_timeout_ms=config.commit_timeout_ms,
            dynamic=config.dynamic or bool(config.topic_rules),
            skip_missing=config.skip_missing,
            skip_unknown=(config.dynamic or bool(config.topic_rules))
            and config.unrouted is not Unrouted.FAIL,
            new_topic_allowed=config.restart_recreated,
            bounds=None if self._bounded is None else self._bounded.resolve(topics, group),
        )
        self._state = CoordinatorState(
            settings, nonce=uuid.uuid4().hex[:8], new_uuid=lambda: str(uuid.uuid4())
        )
        ranges = context.log_range(partitions_of(topics))
        # read after the tables: no ledger may lie beyond
        ends = {tp: end for tp, (_, end) in ranges.items()}
        return self._state.begin(topics, group, views, highest, _now_ms(), ends)

    # --- carrying out

    def _carry_out(self, actions: Iterable[CoordinatorAction]) -> None:
        """Do what was decided, in order; messages that stand together go out in one transaction."""
        messages: list[Message] = []
        for action in actions:
            if isinstance(action, Send):
                messages.append(action.message)
                continue
            self._send(messages)
            messages = []
            self._do(action)
        self._send(messages)

    def _send(self, messages: list[Message]) -> None:
        if not messages:
            return
        for message in messages:
            if isinstance(message, EpochStarted):
                fault_point("before_epoch_started")
            elif isinstance(message, StartCommit):
                fault_point("before_start_commit")
            elif isinstance(message, CommitComplete):
                fault_point("before_commit_complete")
        self._writer.send(messages)
        for message in messages:
            if isinstance(message, StartCommit):
                fault_point("after_start_commit")
            elif isinstance(message, CommitComplete):
                self.worked = True
                self._retries.cycle_ended(self._state.failing)
                self._freshness.tell(self._state.ages())
                self._events.on_cycle_complete(str(uuid.uuid4()), None)
                fault_point("after_commit_complete")

    def _do(self, action: CoordinatorAction) -> None:
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
                # fenced: raises, and the life is over
                self._writer.send([EpochStarted(state.epoch)])
                self._answers.put(lambda: state.on_leadership(token, True))
            case DescribeTopics():
                self._describe()
            case ReadGroupOffsets():
                topics = self._executor.submit(NO_TABLE, describe_topics, self._context)
                self._then(
                    topics,
                    lambda found: state.on_group_offsets(group_offsets(self._context, found)),
                )
            case LoadTable(table):
                self._then(
                    self._submit(table, self._tables.view_to_commit, table),
                    lambda view: state.on_table_loaded(table, view, _now_ms()),
                    lambda error: state.on_load_failed(table, _why(table, error), _now_ms()),
                )
            case PrepareTable(table, need, schema):
                self._then(
                    self._submit(table, self._tables.prepare, table, need, schema),
                    lambda found: self._prepared(table, *found),
                    lambda error: self._not_prepared(table, error),
                )
            case CommitTable(table, commit):
                used_tables = (
                    EVERY_TABLE
                    if self._tables.is_suspect(table)
                    else self._tables.tables_of_commit(table)
                )
                self._then(
                    self._executor.submit(used_tables, self._tables.commit, action, state.epoch),
                    partial(self._committed, table, commit),
                    lambda error: self._not_committed(table, commit, error),
                )
            case CleanFiles(table, table_uuid, epoch):
                cleaned = self._submit(table, self._tables.clean, table, table_uuid, epoch)
                later = partial(_warned, "files of earlier epochs stay until the next start")
                self._then(cleaned, lambda _: [], later)

    def _prepared(self, table: str, view: TableView, answer: str) -> list[CoordinatorAction]:
        self._retries.opened(table)
        return self._state.on_table_prepared(table, view, answer)

    def _not_prepared(self, table: str, error: ConnectError) -> list[CoordinatorAction]:
        """A table that waits may get better by itself or by a user's hand: tasks that wait for it
        ask again."""
        why = _why(table, error)
        if isinstance(error, RetriableError | CommitStateUnknownError):
            self._retries.cannot_open(table, why)
            return self._state.on_table_waits(table)
        if isinstance(error, SchemaChangesPendingError):
            self._retries.awaits_approval(table, why)
            return self._state.on_table_waits(table)
        self._retries.opened(table)  # there or not, that is known now
        missing = isinstance(error, TableMissingError)
        # who holds the rows tells where they are from
        rows = isinstance(error, TableNotCreatedError)
        # else it may be looked for in every cycle, and left out; tasks that wait say so
        if not missing and not rows:
            log.warning(
                "table %s is refused to tasks: %s",
                table,
                why,
                extra={"action": "table_refused", "table": table},
            )
        return self._state.on_table_refused(table, why, missing=missing, rows=rows)

    def _committed(
        self, table: str, commit: str, outcome: CommitOutcome
    ) -> list[CoordinatorAction]:
        if self._schedule is not None and outcome.status is CommitStatus.COMMITTED:
            self._schedule.committed(table, outcome.counts)
        return self._state.on_commit_outcome(
            table, commit, outcome.status, outcome.reason, outcome.snapshot_id, _now_ms()
        )

    def _not_committed(
        self, table: str, commit: str, error: ConnectError
    ) -> list[CoordinatorAction]:
        if isinstance(error, PairUnreadError):
            return [Stop(str(error))]  # all is read again, and the tasks wait where they have to
        return self._state.on_commit_outcome(
            table, commit, status_of(error), _why(table, error), None, _now_ms()
        )

    def _maintain(self) -> None:
        """Start the maintenance action that is due, if the next cycle leaves time for it."""
        schedule, next_cycle_ms, started_ms = self._schedule, self._state.next_cycle_ms, _now_ms()
        if schedule is None or next_cycle_ms is None or self._is_maintaining:
            return
        if started_ms < self._asked_schedule_ms + SCHEDULE_MS:
            return
        self._asked_schedule_ms = started_ms
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
            return _warned(
                f"table {task.table}: could not {task.kind.value}, retrying later", error
            )

        self._is_maintaining = True
        self._then(
            self._submit(task.table, self._tables.maintain, task, self._state.epoch), ended, failed
        )

    def _look(self) -> None:
        """Look at some of the tables for which no rows come, the next ones the next time: see
        `on_table_seen`."""
        self._looked_at = time.monotonic()
        for name in self._to_look_at.next(self._state.quiet_tables, LOOKS):
            future = self._submit(name, self._tables.view, name)
            self._then(future, partial(self._state.on_table_seen, name), lambda _: [])

    def _describe(self) -> None:
        self._described_at = time.monotonic()

        def described(topics: Mapping[str, TopicInfo]) -> list[CoordinatorAction]:
            actions = self._state.on_topics(topics)
            self._freshness.tell(self._state.ages())
            return actions

        later = partial(_warned, "topics could not be described, tried again later")
        self._then(
            self._executor.submit(NO_TABLE, describe_topics, self._context), described, later
        )

    def _submit(
        self, table: str, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
    ) -> Future[_T]:
        """Call a function of the table manager when no earlier call for the table is unfinished."""
        return self._executor.submit(
            self._tables.tables_of_commit(table), function, *arguments, **named
        )

    def _then(
        self,
        future: Future[Any],
        answer: Callable[[Any], list[CoordinatorAction]],
        failed: Callable[[ConnectError], list[CoordinatorAction]] | None = None,
    ) -> None:
        """When a table thread is done, give its result to the state, on the coordinator's own
        thread."""

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


def _why(table: str, error: ConnectError) -> str:
    """Without the table's name, which stands before it already."""
    return error.why if isinstance(error, TableError) else str(error).removeprefix(f"{table}: ")


def _warned(what: str, error: ConnectError) -> list[CoordinatorAction]:
    log.warning("%s: %s", what, error)
    return []


def _highest_epoch(messages: Iterable[Message]) -> Epoch | None:
    epochs = [
        epoch
        for m in messages
        if (epoch := getattr(m, "epoch", None) or getattr(m, "seen", None)) is not None
    ]
    return max(epochs, default=None)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
