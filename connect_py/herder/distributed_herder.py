"""`DistributedHerder`: the one thread that owns a worker group's state; requests in, decisions
out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TypeVar

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import DistributedConfig
from connect_py.futures import done
from connect_py.herder.futures import mapped_error, translated
from connect_py.herder.group.hello_sender import HelloSender
from connect_py.herder.group.leadership import Leadership, NotLeaderError
from connect_py.herder.group.member_state import UrlInUseError
from connect_py.herder.group.timings import Timings
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group_member import GroupMember
from connect_py.herder.group_requests import GroupRequests
from connect_py.herder.herder import (
    RequestConflictError,
    RequestTargetError,
    ServerInfo,
    StagedFuture,
    WorkerInfo,
)
from connect_py.herder.leader_calls import LeaderCalls
from connect_py.herder.leader_duties import GroupDuties
from connect_py.herder.request_queue import RequestQueue
from connect_py.herder.session_keys import SessionKeys
from connect_py.herder.start_refusals import StartRefusals
from connect_py.herder.status_publisher import StatusPublisher, worker_id_of
from connect_py.herder.stores import Stores
from connect_py.herder.task_set import differs
from connect_py.herder.work_runner import strings
from connect_py.herder.zombie_fencing import ZombieFencing
from connect_py.kafka.authorization_errors import RefusedError
from connect_py.metrics.rebalance_metrics import RebalanceMetrics
from connect_py.metrics.sampled import Window
from connect_py.metrics.samples import AnySample
from connect_py.model import KAFKA_VERSION, ConnectorTaskId, TargetState
from connect_py.storage.config_state import Change, SessionKeyChanged
from connect_py.storage.control_records import NOTHING, Items, Turn
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_table import StatusId
from connect_py.storage.storage_clients import StorageClients
from connect_py.worker.source_task_session import TaskNotWantedError
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS = 1.0
READ_SECONDS = 30.0
REPAIR_SECONDS = 3.0
FLUSH_SECONDS = 5.0
LEADER_TEXT = "Only the leader can process this request."
STALE_TEXT = (
    "Cannot complete request momentarily due to stale configuration (typically caused by "
    "a concurrent config change)"
)
OWNER_TEXT = "Only the worker that runs it can process this request."


class DistributedHerder(GroupRequests):
    """A member of a worker group: runs what the group's leader assigns to it, and leads when it is
    its turn.

    The herder's thread starts and stops work and answers requests. The control topic's reader, the
    sender of hellos and the leader's thread work beside it: none of them waits for another.
    """

    _config: DistributedConfig

    def __init__(
        self,
        config: DistributedConfig,
        *,
        clients: StorageClients,
        cluster_id: str,
        advertised_url: str,
        commit: str,
        make_worker: Callable[[StatusPublisher, OffsetStore], Worker],
        leader_calls: LeaderCalls | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args: clients: Makes the clients of the internal topics. advertised_url: Where other workers
            reach this one's REST API, `http://host:port`. commit: Our own version, shown beside
            Connect's. make_worker: Makes the worker, given its listener and where source offsets
            are kept. leader_calls: How this worker asks the leader of its group; without it, it
            must always lead.
        """
        self._clock = clock or SystemClock()
        self._url = advertised_url
        self._group = WorkerGroup(
            advertised_url,
            Timings.of(config),
            self._clock,
            lambda: self._stores.config.snapshot().offset,
            self._wake,
            lambda until: self._worker.extend_lease(until),
        )
        self._stores = Stores.of(
            config, clients, self._clock, self._config_changed, self._group, self._pause
        )
        worker_id = worker_id_of(advertised_url)
        publisher = StatusPublisher(
            self._stores.status, worker_id, track_topics=config["topic.tracking.enable"]
        )
        super().__init__(
            config,
            ServerInfo(KAFKA_VERSION, commit, cluster_id),
            configs=self._stores.config,
            statuses=self._stores.status,
            publisher=publisher,
            worker=make_worker(publisher, self._stores.offset),
            queue=RequestQueue(self._clock),
            clock=self._clock,
            thread_name=f"DistributedHerder-connect-{config['client.id'] or worker_id}-1",
        )
        self._leader_calls = leader_calls
        self._refusals = StartRefusals(self._clock)
        self._make_membership(clients)
        self._rebalances = RebalanceMetrics(self._clock, Window.of(config.props))
        self._turn = Turn()  # worked by
        self._working = False
        # the stage that lasts while this worker has no place in its group
        self._away: ExitStack | None = None
        self._parked: list[Callable[[], None]] = []  # requests that wait for that place
        self._repaired_at = 0.0
        self._cleaned: object = None
        self._work.claim = self._claim
        self._work.on_running = self._group.holds
        self._work.publish = self._publish_task_configs
        publisher.may_publish = self._group.working
        self._session_keys = SessionKeys(
            config["inter.worker.signature.algorithm"],
            config["inter.worker.verification.algorithms"],
            config["session.timeout.ms"] / 1000,
            self._clock,
        )
        self._worker.gate = self

    def _make_membership(self, clients: StorageClients) -> None:
        stores, topic = self._stores, self._config.control_topic().name
        self._member = GroupMember(
            topic,
            clients.member_settings(
                self._config.group_id,
                self._config["session.timeout.ms"],
                self._config["heartbeat.interval.ms"],
            ),
            self._wake,
            self._refusals.note,
        )
        self._sender = HelloSender(
            topic,
            clients.hello_settings(round(self._group.timings.lease * 1000)),
            self._group,
            self._refusals.note,
        )
        self._leadership = Leadership(
            self._group,
            lambda: self._member.owns,
            stores.leader,
            stores.control,
            stores.config,
            stores.status,
            GroupDuties(self._config, stores, self._clock),
            self._clock,
            self._queue.wake,
            self._refusals.note,
            None if self._config.exactly_once_sources else self._refusals.withdraw,
        )
        self._fencing = ZombieFencing(stores.config, self._leadership.queue, self._fence_producers)

    # ------------------------------------------------------------------ life

    def _main(self) -> None:
        log.info("Herder starting")
        self._worker.start()  # its processes import their modules while the topics are read
        if not self._stores.start(
            self._config, self._clock, self._stages, self._refusals, self._stopping
        ):
            return
        self._state_read.set_result(None)
        self._await_lone_leader()
        if self._stopping.is_set():
            return
        self._prestart_services()
        self._member.start()
        self._sender.start()
        self._leadership.start()
        log.info("Rebalance started")
        with self._stages.stage("ensuring membership in the cluster"):
            while not self._stopping.is_set() and not self._started:
                self._join()
                if not self._started:
                    self._stores.check_refusals(self._refusals)
                self._queue.wait(TICK_SECONDS)
        while not self._stopping.is_set():
            self._tick()
            self._queue.wait(TICK_SECONDS)

    def _prestart_services(self) -> None:
        """Start services now: the group takes seconds to decide which worker runs the tasks that
        need them."""
        state = self._state()
        started = [
            name for name in state.connectors() if state.target_state(name) is TargetState.STARTED
        ]
        self.prestart_services({name: state.configs[name] for name in started})

    def _await_lone_leader(self) -> None:
        """Wait until the lease of another worker must have ended that led without transactions.

        Raises:
            RefusedError: That worker lives.
        """
        self._group.read_to_end()
        deadline = self._clock.monotonic() + self._group.timings.session
        while (
            self._group.lone_leader(surely=False) is not None and self._clock.monotonic() < deadline
        ):
            self._check_lone_leader()
            if self._stopping.wait(0.2):
                return

    def _check_lone_leader(self) -> None:
        url = self._group.lone_leader(surely=True)
        if url is not None:
            group = self._config.group_id
            raise RefusedError(
                f"the group '{group}' has a worker, {url}, that runs without transactions, and "
                "may have no second one: grant Write and Describe on TransactionalId "
                f"'connect-cluster-{group}', or have the brokers keep transactions, restart that "
                "worker, and start this one again"
            )

    def _why_no_transactions(self) -> str | None:
        return self._stores.leader.alone

    def _pause(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def _wake(self) -> None:
        """On any thread: a record came, or ownership changed."""
        self._queue.wake()
        self._leadership.queue.wake()

    def _end(self) -> None:
        """End tasks and connectors, then the group, then the stores; requests that wait are
        refused."""
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            self._group.leave()
            self._worker.stop()
            self._stores.status.flush(FLUSH_SECONDS)
            self._group.holds(NOTHING)
            self._leadership.stop()
            self._sender.stop()
            self._member.stop()
            self._stores.stop()
            self._pool.shutdown(wait=False, cancel_futures=True)
            for action in self._parked:
                self._queue.put(action)  # to be refused with the others
            log.info("Herder stopped")

    # ------------------------------------------------------------------ membership

    def _join(self) -> None:
        """Become a member; started once the leader has a place for this one."""
        self._check_membership()
        self._group.holds(NOTHING)  # a life that no other member heard gives way to another
        share = self._group.share()
        if self._group.join() and share.joined and share.working:
            self._tick()
            self._started = True
            log.info("Herder started")

    def _check_membership(self) -> None:
        if self._member.problem is not None:
            raise ConnectError(self._member.problem)
        self._check_lone_leader()
        try:
            self._group.join()
        except UrlInUseError as error:
            raise ConnectError(str(error)) from error

    def _tick(self) -> None:
        """One round: what the group says, requests, then what the configuration asks for."""
        self._check_membership()
        share = self._group.share()
        news = (share.turn, share.working) != (self._turn, self._working)
        if share.working and share.turn != self._turn:
            log.info(
                "Joined group at generation %d with epoch %d", share.generation, share.turn.epoch
            )
            log.info("Starting connectors and tasks using config offset %d", share.config_offset)
        elif self._working and not share.working:
            log.warning(
                "this worker was not heard of in its group in time: it stops its connectors and "
                "tasks"
            )
        if news:
            self._rebalances.began()
            self._dirty = True
            self._publisher.generation = max(self._publisher.generation, share.generation)
        self._work.assigned = share.items if share.working else NOTHING
        if not share.working:
            # another life begins once nothing is left of this one
            self._group.holds(self._work.running_items())
        self._work_on_changes()
        if share.working and share.turn != self._turn:
            log.info("Finished starting connectors and tasks")
        if news and share.working:
            self._rebalances.completed()
        self._turn, self._working = share.turn, share.working
        self._run_parked()
        self._repair_statuses()

    def workers(self) -> list[WorkerInfo]:
        leader = self._group.leader_url()
        return [
            WorkerInfo(url, worker_id_of(url), url == leader, url == self._url)
            for url in self._group.urls()
        ]

    def _group_metrics(self) -> Iterable[AnySample]:
        share = self._group.share()
        tasks = sum(isinstance(item, ConnectorTaskId) for item in share.items)
        return self._rebalances.samples(
            generation=share.generation,
            leader_url=self._group.leader_url(),
            connectors=len(share.items) - tasks,
            tasks=tasks,
            client_id=self._client_id,
        )

    def _run_parked(self) -> None:
        """Requests that wait for a place in the group go on once there is one."""
        if not self._working:
            if self._away is None:
                self._away = ExitStack()
                self._away.enter_context(self._stages.stage("ensuring membership in the cluster"))
            return
        if self._away is not None:
            self._away.close()
            self._away = None
        parked, self._parked = self._parked, []
        for action in parked:
            action()

    def _claim(self, items: Items) -> Items:
        share = self._group.share()
        if self._state().offset < share.config_offset:
            self._dirty = True  # the configuration that was divided is not read yet
            return NOTHING
        return self._group.claim(items)

    def _repair_statuses(self) -> None:
        """Write again that this worker runs its work, since a late worker may have overwritten it;
        leaders clean up."""
        now = self._clock.monotonic()
        if self._working and now - self._repaired_at > REPAIR_SECONDS:
            self._repaired_at = now
            self._publisher.repair(
                item for item in self._work.running_items() if self._work.owns(item)
            )
        if self._leadership.leads:
            seen = (self._state().offset, self._group.running_elsewhere())
            if seen != self._cleaned:
                self._cleaned = seen
                self._clean_statuses(None)

    def _clean_statuses(self, name: str | None) -> None:
        if self._leadership.leads:
            super()._clean_statuses(name)

    def _running_anywhere(self) -> Items:
        return self._work.running_items() | self._group.running_elsewhere()

    # ------------------------------------------------------------------ requests

    def _member_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """On the herder's thread, once this worker has a place in its group: a long rebalance is a
        slow answer."""
        answer: StagedFuture[T] = StagedFuture()

        def run() -> None:
            if self._working or self._stopping.is_set():
                self._answer(answer, action)
            else:
                self._parked.append(run)

        self._enqueue(run)
        return answer

    def ping(self) -> Future[None]:
        return self._member_request(lambda: None)

    def _leader_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """On the leader's thread: a write that waits holds up other writes, and nothing else."""

        def ask() -> Future[T]:
            if not self._leadership.expected:
                raise self._for_leader()
            return mapped_error(self._leadership.submit(action), NotLeaderError, self._for_leader)

        return self._member_request(ask)

    def _for_leader(self) -> RequestTargetError:
        url = self._group.leader_url()
        return RequestTargetError(LEADER_TEXT, None if url == self._url else url)

    def _owner_request(self, id: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:  # noqa: A002 - Connect's word
        """Right after a change of a configuration, tasks stop and start or move: the request waits
        for that."""

        def exists() -> bool:
            state = self._state()
            return id in (
                state.tasks(id.connector) if isinstance(id, ConnectorTaskId) else state.configs
            )

        def settled() -> bool:
            if self._work.owns(id) or not exists():
                return True
            return self._group.owner_url(id) != self._url and not self._group.is_moving(id)

        def run() -> T | Future[T]:
            # what does not exist is said to be so by anybody
            if self._work.owns(id) or not exists():
                return action()
            url = self._group.owner_url(id)
            if url == self._url:  # still about to start, or to stop
                raise RequestConflictError(STALE_TEXT)
            raise RequestTargetError(OWNER_TEXT, url)

        return self._member_request(lambda: self._settled_request(settled, run))

    def _publish_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]]
    ) -> Future[None]:
        """Have the leader publish a task set if it is news: here, or by a signed call."""
        if self._leadership.leads:
            return self._leadership.submit(lambda: self._work.publish_task_configs(name, configs))
        if differs(self._state(), name, configs) is None:
            return done(None)
        return self._call_leader(
            lambda calls, url: calls.put_task_configs(
                url, name, configs, self._session_keys.headers
            )
        )

    # ------------------------------------------------------------------ requests of other workers

    def _config_changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, SessionKeyChanged):
                self._session_keys.take(change.key)
        super()._config_changed(changes)

    # ------------------------------------------------------------------ SourceTaskGate, on threads
    # of the worker

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        if self._leadership.leads:
            return self._leadership.submit(lambda: self._fencing.fence(name))
        return self._call_leader(
            lambda calls, url: calls.fence_zombies(url, name, self._session_keys.headers)
        )

    def verify_source_task(self, id: ConnectorTaskId, start_number: int) -> Future[None]:  # noqa: A002 - Connect's word
        def verify() -> None:
            if self._state().start_numbers.get(id.connector, 0) != start_number:
                raise TaskNotWantedError(
                    f"task {id} must not write: its connector has a new set of tasks"
                )
            if not self._work.owns(id):
                raise TaskNotWantedError(f"task {id} must not write: it was taken from this worker")

        self._stores.config.refresh(READ_SECONDS)
        return self._request(verify)

    def _before_altering(self, name: str) -> Future[None]:
        if not self._config.exactly_once_sources or self._type_of(name) != PluginKind.SOURCE.value:
            return done(None)
        text = "Failed to perform zombie fencing for source connector prior to modifying offsets"
        return translated(self._fencing.fence(name), text)

    def _fence_producers(self, name: str, count: int) -> Future[None]:
        return self._worker.fence_producers(name, strings(self._state().configs[name]), count)
