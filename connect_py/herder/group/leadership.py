"""`Leadership`: acquires and retains the leadership of the group, and writes the leader's records.

It runs on a dedicated thread. See `leader_state.py` for the definitions of terms and rounds.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.futures import pass_on
from connect_py.herder.group.leader_state import Decision, LeaderState
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.kafka.authorization_errors import NoTransactionsError, RefusedError
from connect_py.plurals import pluralize
from connect_py.storage.config_store import FENCED_MESSAGE, ConfigStore
from connect_py.storage.control_records import Epoch, Item, Items
from connect_py.storage.control_store import ControlStore
from connect_py.storage.leader_producer import FencedError, LeaderProducer
from connect_py.storage.status_store import StatusStore

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_SECONDS = 1.0
ACQUIRE_SECONDS = 10.0
READ_SECONDS = 30.0
CATCH_UP_SECONDS = 5.0
WRITE_SECONDS = 10.0
RETRY_SECONDS = 1.0
# time for discovering other workers, and for an administrator to grant a missing ACL
ALONE_SECONDS = 15.0
STOP_SECONDS = 5.0
# if the last epoch may be unknown, the next one exceeds the highest known epoch by a random number
# below this limit
NEW_TOPIC_EPOCHS = 1 << 20


class LeaderDuties(Protocol):
    """Callbacks during a leader's term. Called on the leader's thread."""

    def configured(self) -> tuple[Items, int]:
        """Return all configured connectors and tasks, and the offset of this config snapshot."""

    def before_round(self, lost: Mapping[Item, str], generation: int) -> None:
        """Handle lost connectors and tasks. Each is mapped to the URL of its last worker.

        Called before another worker can start them.
        """

    def housekeeping(self) -> None:
        """Perform periodic work. A ConnectError is logged; a FencedError ends the term."""


class NotLeaderError(ConnectError):
    """The worker is not the leader of the group, or has not become the leader yet."""


class Leadership:
    """Acquires the leadership of the group and performs the leader's work.

    The owner of partition 0 of the control topic is a candidate. It becomes the leader by fencing
    the transactional producer of the previous leader. A term has these steps:

    1. Fence the previous leader. A crash after this step leaves the group without a leader. The
       next owner of the partition repeats the step.
    2. Read the topics to their ends. A crash has the same effect as in step 1.
    3. Announce the epoch. Members then ignore earlier leaders.
    4. Decide on the rounds, and write each one in a transaction.
    """

    def __init__(
        self,
        group: WorkerGroup,
        owns_partition: Callable[[], bool],
        producer: LeaderProducer,
        control: ControlStore,
        configs: ConfigStore,
        statuses: StatusStore,
        duties: LeaderDuties,
        clock: Clock,
        queue: RequestQueue,
        on_change: Callable[[], None],
        on_refused: Callable[[str], None],
        on_alone: Callable[[str], None] | None,
    ) -> None:
        """Create the leadership without starting it.

        Args:
            queue: Requests for the leader's thread.
            on_change: Called on the leader's thread when a term starts or ends.
            on_refused: Called on the leader's thread if the cluster denies an operation that a
                leader needs.
            on_alone: Called on the leader's thread, with the reason, when this worker leads without
                transactions. Only a worker that is alone in its group may do so. If `on_alone` is
                None, this worker never leads without transactions.
        """
        self._on_refused = on_refused
        self._on_alone = on_alone
        self._refused_since: float | None = None
        self._group = group
        self._owns_partition = owns_partition
        self._producer = producer
        self._control = control
        self._configs = configs
        self._statuses = statuses
        self._duties = duties
        self._clock = clock
        self._on_change = on_change
        self._queue = queue
        self._state: LeaderState | None = None
        self._next_attempt_at = 0.0  # monotonic time of the next attempt to lead
        self._read_up_to = -1.0
        self._warned = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-leader", daemon=True)

    @property
    def leads(self) -> bool:
        """Return True if this worker is the leader."""
        return self._state is not None

    @property
    def expected(self) -> bool:
        """Return True if this worker is the leader or a candidate."""
        return self._state is not None or self._owns_partition()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the term. Pending requests fail."""
        self._stopping.set()
        self._queue.wake()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._state = None

    def submit(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the leader's thread. Actions run in order.

        The future fails with NotLeaderError if this worker is not the leader at that time.
        """
        response: Future[T] = Future()

        def run() -> None:
            if self._state is None or self._stopping.is_set():
                response.set_exception(NotLeaderError("this worker is not the leader of its group"))
                return
            try:
                result = action()
            except FencedError as error:
                response.set_exception(ConnectError(FENCED_MESSAGE))
                self._end(str(error))
                return
            except Exception as error:  # noqa: BLE001 - set on the caller's future
                response.set_exception(error)
                return
            if isinstance(result, Future):
                result.add_done_callback(partial(pass_on, response))
            else:
                response.set_result(result)

        self._queue.put(run)
        return response

    # The leader's thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
                self._warned = False
            except FencedError as error:
                self._end(str(error))
            except ConnectError as error:
                if isinstance(error, RefusedError):
                    self._on_refused(str(error))
                if not self._warned:
                    log.warning("failed to lead the group, retrying: %s", error)
                self._warned = True
                self._next_attempt_at = self._clock.monotonic() + RETRY_SECONDS
            except Exception:
                log.exception("unexpected error in the leader's loop")
                self._next_attempt_at = self._clock.monotonic() + RETRY_SECONDS
            self._work_on(self._queue.due())
            self._queue.wait(self._wait_seconds())
        self._work_on(self._queue.drain())

    def _work_on(self, actions: Iterable[Callable[[], None]]) -> None:
        for action in actions:
            try:
                action()
            except FencedError as error:
                self._end(str(error))
            except Exception:
                log.exception("unexpected error while processing a request to the leader")

    def _wait_seconds(self) -> float:
        if self._state is None:
            return WAIT_SECONDS
        now = self._clock.monotonic()
        due = max(self._group.deadline(self._state), self._next_attempt_at)
        return min(WAIT_SECONDS, max(0.02, due - now))

    def _step(self) -> None:
        now = self._clock.monotonic()
        if self._state is not None and not self._owns_partition():
            self._end("partition 0 of the control topic was reassigned")
        if self._state is not None and self._group.superseded(self._state):
            self._end("another worker has become the leader")
        if not self._owns_partition() or now < self._next_attempt_at:
            return
        if self._state is None:
            self._start_term()
        state = self._state
        if state is None:
            return
        if self._producer.broken:
            self._renew(state)
        if self._group.needs_catch_up(state):
            read_started_at = self._clock.monotonic()
            self._control.refresh(CATCH_UP_SECONDS)
            self._read_up_to = read_started_at
        configured, offset = self._duties.configured()
        decision = self._group.decide(state, configured, offset, self._read_up_to)
        if decision is not None:
            self._write(state, decision)
        self._duties.housekeeping()

    def _end(self, reason: str) -> None:
        if self._state is not None:
            log.warning("this worker is no longer the leader of its group: %s", reason)
        self._state = None
        self._producer.release()
        self._next_attempt_at = self._clock.monotonic() + 2 * self._group.timings.heartbeat_interval
        self._on_change()

    def _start_term(self) -> None:
        try:
            self._producer.acquire(ACQUIRE_SECONDS)
        except NoTransactionsError as error:
            self._go_alone(error)
        read_started_at = self._clock.monotonic()
        for store in (self._control, self._configs, self._statuses):
            store.refresh(READ_SECONDS)
        self._read_up_to = read_started_at
        highest, generation, recorded = self._group.history()
        # A recreated control topic looks like a new one. If there is any sign that the group
        # existed before, wait for members that have no record in the topic.
        trusted = recorded or not (
            highest or self._configs.snapshot().configs or self._statuses.ids()
        )
        epoch = Epoch(
            highest + (1 if trusted else random.randrange(1, NEW_TOPIC_EPOCHS)),
            self._group.url,
            1 + max(generation, self._statuses.highest_generation()),
            alone=self._producer.alone is not None,
        )
        self._control.put_epoch(epoch, WRITE_SECONDS)
        self._state = self._group.begin_term(epoch, trusted=trusted)
        log.info("this worker is the leader of the group, epoch %d", epoch.number)
        self._on_change()

    def _go_alone(self, error: NoTransactionsError) -> None:
        """Lead without transactions if this worker is the only worker in the group.

        Raises:
            NoTransactionsError: There are other workers, or it is too early to rule them out.
        """
        now = self._clock.monotonic()
        self._refused_since = now if self._refused_since is None else self._refused_since
        if (
            self._on_alone is None
            or now - self._refused_since < ALONE_SECONDS
            or self._group.has_other_workers()
        ):
            raise error
        log.warning(
            "running without transactions: %s. Other workers in this group cannot start, because "
            "concurrent writes to the internal topics would not be detected. Connectors that "
            "write in transactions, such as Iceberg sinks, are rejected",
            error,
        )
        self._on_alone(str(error))
        self._producer.go_alone(str(error))
        self._producer.acquire(ACQUIRE_SECONDS)

    def _renew(self, state: LeaderState) -> None:
        """Acquire a new producer after a transaction with an unknown outcome.

        The control topic is read first, because acquiring the producer must not fence another
        worker that has become the leader.
        """
        self._control.refresh(CATCH_UP_SECONDS)
        if self._group.superseded(state):
            raise FencedError("another worker has become the leader")
        self._producer.acquire(ACQUIRE_SECONDS)
        for store in (self._control, self._configs):
            store.refresh(READ_SECONDS)
        if self._group.superseded(state):
            raise FencedError("another worker has become the leader")

    def _write(self, state: LeaderState, decision: Decision) -> None:
        assignment = decision.assignment
        items = sum(len(assigned_member.items) for assigned_member in assignment.members.values())
        log.info(
            "round %d of epoch %d: %s, %s assigned, %d waiting %d ms for a worker to return",
            assignment.version.round,
            assignment.version.epoch,
            pluralize(len(assignment.members), "member"),
            pluralize(items, "connector or task", "connectors and tasks"),
            len(assignment.awaited),
            assignment.delay_ms,
        )
        try:
            self._duties.before_round(decision.lost, assignment.generation)
            self._control.put_assignment(state.epoch, assignment, decision.removed, WRITE_SECONDS)
        except FencedError:
            raise
        except ConnectError:
            self._group.failed(state, decision)
            raise
