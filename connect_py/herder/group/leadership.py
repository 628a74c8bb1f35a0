"""`Leadership`: takes and keeps the lead of the group, and writes what only the leader may, on a
thread of its own."""

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
from connect_py.herder.request_queue import RequestQueue
from connect_py.kafka.authorization_errors import NoTransactionsError, RefusedError
from connect_py.storage.config_store import FENCED_TEXT, ConfigStore
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
# for other workers to be heard of, and for an administrator who is granting it just now
ALONE_SECONDS = 15.0
STOP_SECONDS = 5.0
NEW_TOPIC_EPOCHS = 1 << 20  # where the last epoch is not known, the next one is far away from it


class LeaderDuties(Protocol):
    """What a term needs from its surroundings; called on the leader's thread."""

    def configured(self) -> tuple[Items, int]:
        """All work there is, and the offset of the config topic that says so."""

    def before_round(self, lost: Mapping[Item, str], generation: int) -> None:
        """The workers of these URLs have lost this work: statuses can say so before it starts
        elsewhere."""

    def housekeeping(self) -> None:
        """Anything that a leader does from time to time; ConnectError is logged, FencedError ends
        the term."""


class NotLeaderError(ConnectError):
    """The worker is not the leader, or not yet."""


class Leadership:
    """Owning partition 0 of the control topic is the hint, the transactional producer the proof.

    1. the old leader is fenced     - no worker leads, nothing is lost: the next owner of the partition does the same
    2. topics are read to their end - the same
    3. the epoch is announced       - members ignore earlier leaders
    4. rounds are decided           - each is one transaction
    """  # noqa: E501 - a table or a literal is wider

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
        on_change: Callable[[], None],
        on_refused: Callable[[str], None],
        on_alone: Callable[[str], None] | None,
    ) -> None:
        """Prepare.

        Args: on_change: Called on the thread when a term began or ended. on_refused: Called on the
            thread when the cluster does not grant what a leader needs. on_alone: Called on the
            thread with a refusal that the worker goes on in spite of, as it is the only one of
                its group; None: it may not.
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
        self.queue = RequestQueue(clock)
        self._state: LeaderState | None = None
        self._not_before = 0.0  # of the next attempt to lead
        self._caught_up = -1.0
        self._complained = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-leader", daemon=True)

    @property
    def leads(self) -> bool:
        """Whether a term of this worker is under way."""
        return self._state is not None

    @property
    def expected(self) -> bool:
        """Whether this worker leads, or is about to."""
        return self._state is not None or self._owns_partition()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the term; requests that wait get an error."""
        self._stopping.set()
        self.queue.wake()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._state = None

    def submit(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run on the leader's thread, in order; NotLeaderError when there is no term by then."""
        answer: Future[T] = Future()

        def run() -> None:
            if self._state is None or self._stopping.is_set():
                answer.set_exception(NotLeaderError("this worker does not lead its group"))
                return
            try:
                result = action()
            except FencedError as error:
                answer.set_exception(ConnectError(FENCED_TEXT))
                self._end(str(error))
                return
            except Exception as error:  # noqa: BLE001 - the caller gets it, and decides
                answer.set_exception(error)
                return
            if isinstance(result, Future):
                result.add_done_callback(partial(pass_on, answer))
            else:
                answer.set_result(result)

        self.queue.put(run)
        return answer

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
                self._complained = False
            except FencedError as error:
                self._end(str(error))
            except ConnectError as error:
                if isinstance(error, RefusedError):
                    self._on_refused(str(error))
                if not self._complained:
                    log.warning("the group cannot be led just now: %s", error)
                self._complained = True
                self._not_before = self._clock.monotonic() + RETRY_SECONDS
            except Exception:
                log.exception("a round of the group's leader failed")
                self._not_before = self._clock.monotonic() + RETRY_SECONDS
            self._work_on(self.queue.due())
            self.queue.wait(self._wait_seconds())
        self._work_on(self.queue.drain())

    def _work_on(self, actions: Iterable[Callable[[], None]]) -> None:
        for action in actions:
            try:
                action()
            except FencedError as error:
                self._end(str(error))
            except Exception:
                log.exception("a request of the group's leader failed")

    def _wait_seconds(self) -> float:
        if self._state is None:
            return WAIT_SECONDS
        now = self._clock.monotonic()
        due = max(self._group.deadline(self._state), self._not_before)
        return min(WAIT_SECONDS, max(0.02, due - now))

    def _step(self) -> None:
        now = self._clock.monotonic()
        if self._state is not None and not self._owns_partition():
            self._end("the group moved partition 0 of the control topic")
        if self._state is not None and self._group.superseded(self._state):
            self._end("another worker has led meanwhile")
        if not self._owns_partition() or now < self._not_before:
            return
        if self._state is None:
            self._take_lead()
        state = self._state
        if state is None:
            return
        if self._producer.broken:
            self._renew(state)
        if self._group.wants_end(state):
            asked = self._clock.monotonic()
            self._control.refresh(CATCH_UP_SECONDS)
            self._caught_up = asked
        configured, offset = self._duties.configured()
        decision = self._group.decide(state, configured, offset, self._caught_up)
        if decision is not None:
            self._write(state, decision)
        self._duties.housekeeping()

    def _end(self, why: str) -> None:
        if self._state is not None:
            log.warning("this worker leads its group no longer: %s", why)
        self._state = None
        self._producer.release()
        self._not_before = self._clock.monotonic() + 2 * self._group.timings.interval
        self._on_change()

    def _take_lead(self) -> None:
        try:
            self._producer.acquire(ACQUIRE_SECONDS)
        except NoTransactionsError as error:
            self._go_alone(error)
        asked = self._clock.monotonic()
        for store in (self._control, self._configs, self._statuses):
            store.refresh(READ_SECONDS)
        self._caught_up = asked
        highest, generation, recorded = self._group.traces()
        # A topic that was made anew looks like one that was never used: then what it does not tell
        # is waited for.
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
        log.info("this worker leads the group with epoch %d", epoch.number)
        self._on_change()

    def _go_alone(self, error: NoTransactionsError) -> None:
        """Lead without transactions, if this is the only worker.

        Raises:
            NoTransactionsError: It is not, or this is not known yet.
        """
        now = self._clock.monotonic()
        self._refused_since = now if self._refused_since is None else self._refused_since
        if (
            self._on_alone is None
            or now - self._refused_since < ALONE_SECONDS
            or self._group.has_others()
        ):
            raise error
        log.warning(
            "this worker runs without transactions: %s. Nothing keeps a second worker of this "
            "group from writing the same topics, so a second one refuses to start. Connectors "
            "that write in transactions, such as Iceberg sinks, are refused",
            error,
        )
        self._on_alone(str(error))
        self._producer.go_alone(str(error))
        self._producer.acquire(ACQUIRE_SECONDS)

    def _renew(self, state: LeaderState) -> None:
        """After a transaction of unknown outcome: everything that was written read again, and a new
        producer.

        Reading first shows whether another worker leads by now; fencing that one would be wrong.
        """
        self._control.refresh(CATCH_UP_SECONDS)
        if self._group.superseded(state):
            raise FencedError("another worker has led meanwhile")
        self._producer.acquire(ACQUIRE_SECONDS)
        for store in (self._control, self._configs):
            store.refresh(READ_SECONDS)
        if self._group.superseded(state):
            raise FencedError("another worker has led meanwhile")

    def _write(self, state: LeaderState, decision: Decision) -> None:
        assignment = decision.assignment
        log.info(
            "round %d of epoch %d: %d members, %d items, %d awaited for %d ms",
            assignment.turn.round,
            assignment.turn.epoch,
            len(assignment.places),
            sum(len(place.items) for place in assignment.places.values()),
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
