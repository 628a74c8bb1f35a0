"""`DistributedHerder`: the one thread that owns a worker group's state; requests in, decisions out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.abstract_herder import AbstractHerder
from connect_py.herder.futures import done, failed, mapped_error, translated
from connect_py.herder.group.hello_sender import HelloSender
from connect_py.herder.group.leadership import Leadership, NotLeaderError
from connect_py.herder.group.member_state import UrlInUseError
from connect_py.herder.group.timings import Timings
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group_member import GroupMember
from connect_py.herder.herder import (
    BadRequestError,
    RequestConflictError,
    RequestTargetError,
    ServerInfo,
    StagedFuture,
)
from connect_py.herder.leader_calls import LeaderCalls
from connect_py.herder.request_queue import RequestQueue
from connect_py.herder.request_signature import RequestSignature
from connect_py.herder.session_keys import SessionKeys, successor
from connect_py.herder.start_refusals import StartRefusals
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.herder.task_set import differs
from connect_py.herder.work_runner import strings
from connect_py.herder.zombie_fencing import ZombieFencing
from connect_py.kafka.authorization_errors import RefusedError
from connect_py.metrics.rebalance_metrics import RebalanceMetrics
from connect_py.metrics.sampled import Window
from connect_py.metrics.samples import AnySample
from connect_py.model import KAFKA_VERSION, ConnectorTaskId, State, Status, TargetState
from connect_py.storage.config_state import Change, ClusterConfigState, SessionKeyChanged
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import NOTHING, Item, Items, Turn
from connect_py.storage.control_store import ControlStore
from connect_py.storage.kafka_based_log import KafkaLogs
from connect_py.storage.leader_producer import LeaderProducer
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.topic_admin import TopicAdmin
from connect_py.worker.source_task_session import TaskNotWantedError
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS = 1.0
STARTUP_SECONDS = 15 * 60.0  # how long internal topics may stay unreadable at start
STARTUP_PAUSE_SECONDS = 10.0
READ_SECONDS = 30.0
REPAIR_SECONDS = 3.0
FLUSH_SECONDS = 5.0
LEADER_TEXT = "Only the leader can process this request."
STALE_TEXT = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
OWNER_TEXT = "Only the worker that runs it can process this request."


@dataclass(frozen=True, slots=True)
class Stores:
    """The internal topics of one worker group."""

    config: ConfigStore
    status: StatusStore
    offset: OffsetStore
    control: ControlStore
    leader: LeaderProducer
    topics: TopicAdmin

    @property
    def logs(self) -> Sequence[ConfigStore | StatusStore | OffsetStore | ControlStore]:
        """Those that read a topic."""
        return self.config, self.status, self.offset, self.control


class DistributedHerder(AbstractHerder):
    """A member of a worker group: runs what the group's leader assigns to it, and leads when it is its turn.

    The herder's thread starts and stops work and answers requests. The control topic's reader, the sender of hellos and
    the leader's thread work beside it: none of them waits for another.
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

        Args:
            clients: Makes the clients of the internal topics.
            advertised_url: Where other workers reach this one's REST API, `http://host:port`.
            commit: Our own version, shown beside Connect's.
            make_worker: Makes the worker, given its listener and where source offsets are kept.
            leader_calls: How this worker asks the leader of its group; without it, it must always lead.
        """
        self._clock = clock or SystemClock()
        self._url = advertised_url
        timings = Timings(
            config["session.timeout.ms"] / 1000,
            config["heartbeat.interval.ms"] / 1000,
            config["rebalance.timeout.ms"] / 1000,
            config["scheduled.rebalance.max.delay.ms"] / 1000,
        )
        self._group = WorkerGroup(
            advertised_url, timings, self._clock, lambda: self._stores.config.snapshot().offset, self._wake,
            lambda until: self._worker.extend_lease(until),
        )  # fmt: skip
        leader = LeaderProducer(clients, config.group_id)
        logs = KafkaLogs(clients)
        self._stores = Stores(
            ConfigStore(config.storage_topic("config").name, logs, leader, self._config_changed),
            StatusStore(config.storage_topic("status").name, logs, self._clock),
            OffsetStore(config.storage_topic("offset").name, logs),
            ControlStore(config.control_topic().name, clients, leader, self._group),
            leader,
            TopicAdmin(
                clients.admin(), self._clock, create=config["internal.topics.automatic.creation.enable"],
                pause=lambda seconds: self._stopping.wait(seconds),
            ),
        )  # fmt: skip
        worker_id = worker_id_of(advertised_url)
        publisher = StatusPublisher(self._stores.status, worker_id, track_topics=config["topic.tracking.enable"])
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
        self._member = GroupMember(
            config.control_topic().name,
            clients.member_settings(config.group_id, config["session.timeout.ms"], config["heartbeat.interval.ms"]),
            self._wake,
            self._refusals.note,
        )
        self._sender = HelloSender(
            config.control_topic().name, clients.hello_settings(round(timings.lease * 1000)), self._group,
            self._refusals.note,
        )  # fmt: skip
        self._leadership = Leadership(
            self._group, lambda: self._member.owns, leader, self._stores.control, self._stores.config,
            self._stores.status, self, self._clock, self._queue.wake, self._refusals.note,
            None if config.exactly_once_sources else self._refusals.withdraw,
        )  # fmt: skip
        self._rebalances = RebalanceMetrics(self._clock, Window.of(config.props))
        self._turn = Turn()  # worked by
        self._working = False
        self._away: ExitStack | None = None  # the stage that lasts while this worker has no place in its group
        self._parked: list[Callable[[], None]] = []  # requests that wait for that place
        self._configured: tuple[Items, int] = NOTHING, -2  # as read at this offset of the config topic
        self._repaired_at = 0.0
        self._cleaned: object = None
        self._work.claim = self._claim
        self._work.on_held = self._group.holds
        self._work.publish = self._publish_task_configs
        publisher.may_publish = self._group.working
        self._session_keys = SessionKeys(
            config["inter.worker.signature.algorithm"],
            config["inter.worker.verification.algorithms"],
            config["session.timeout.ms"] / 1000,
            self._clock,
        )
        self._fencing = ZombieFencing(self._stores.config, self._leadership.queue, self._fence_producers)
        self._worker.gate = self

    # ------------------------------------------------------------------ life

    def _main(self) -> None:
        if not self._start_stores():
            return
        self._state_read.set_result(None)
        self._await_lone_leader()
        if self._stopping.is_set():
            return
        self._worker.start()
        self._member.start()
        self._sender.start()
        self._leadership.start()
        log.info("Rebalance started")
        with self._stages.stage("ensuring membership in the cluster"):
            while not self._stopping.is_set() and not self._started:
                self._join()
                if not self._started:
                    self._check_refusals()
                self._queue.wait(TICK_SECONDS)
        while not self._stopping.is_set():
            self._tick()
            self._queue.wait(TICK_SECONDS)

    def _await_lone_leader(self) -> None:
        """Wait until the lease of another worker must have ended that led without transactions.

        Raises:
            RefusedError: That worker lives.
        """
        self._group.read_to_end()
        deadline = self._clock.monotonic() + self._group.timings.session
        while self._group.lone_leader(surely=False) is not None and self._clock.monotonic() < deadline:
            self._check_lone_leader()
            if self._stopping.wait(0.2):
                return

    def _check_lone_leader(self) -> None:
        url = self._group.lone_leader(surely=True)
        if url is not None:
            group = self._config.group_id
            raise RefusedError(
                f"the group '{group}' has a worker, {url}, that runs without transactions, and may have no second one: "
                f"grant Write and Describe on TransactionalId 'connect-cluster-{group}', or have the brokers keep "
                "transactions, restart that worker, and start this one again"
            )

    def _why_no_transactions(self) -> str | None:
        return self._stores.leader.alone

    def _wake(self) -> None:
        """On any thread: a record came, or ownership changed."""
        self._queue.wake()
        self._leadership.queue.wake()

    def _start_stores(self) -> bool:
        """Create or check the topics and read them to their ends, for up to a quarter of an hour; False at a stop."""
        log.info("Herder starting")
        deadline = self._clock.monotonic() + STARTUP_SECONDS
        begun = False
        while not self._stopping.is_set():
            try:
                with self._stages.stage("initializing and reading to the end of internal topics"):
                    for topic in (*map(self._config.storage_topic, ("config", "status", "offset")),
                                  self._config.control_topic()):  # fmt: skip
                        self._stores.topics.ensure(topic)
                    if not begun:
                        for store in self._stores.logs:
                            store.start()
                        begun = True
                    for store in self._stores.logs:
                        store.refresh_unless(self._stopping, READ_SECONDS)
                return True
            except ConfigError:
                raise
            except ConnectError as error:
                if self._stopping.is_set():
                    break
                if isinstance(error, RefusedError):
                    self._refusals.note(str(error))
                self._check_refusals()
                if self._clock.monotonic() > deadline:
                    raise
                log.warning("internal topics are not ready: %s; again in %g s", error, STARTUP_PAUSE_SECONDS)
                self._stopping.wait(STARTUP_PAUSE_SECONDS)
        return False

    def _check_refusals(self) -> None:
        """Give up the start, with a RefusedError, once the cluster has refused something for a minute."""
        for store in self._stores.logs:
            if store.refusal is not None:
                self._refusals.note(store.refusal)
        self._refusals.check()

    def _end(self) -> None:
        """End tasks and connectors, then the group, then the stores; requests that wait are refused."""
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            self._group.leave()
            self._worker.stop()
            self._stores.status.flush(FLUSH_SECONDS)
            self._group.holds(NOTHING)
            self._leadership.stop()
            self._sender.stop()
            self._member.stop()
            for store in self._stores.logs:
                store.stop()
            self._stores.leader.release()
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
            log.info("Joined group at generation %d with epoch %d", share.generation, share.turn.epoch)
            log.info("Starting connectors and tasks using config offset %d", share.config_offset)
        elif self._working and not share.working:
            log.warning("this worker was not heard of in its group in time: it stops its connectors and tasks")
        if news:
            self._rebalances.began()
            self._dirty = True
            self._publisher.generation = max(self._publisher.generation, share.generation)
        self._work.assigned = share.items if share.working else NOTHING
        if not share.working:
            self._group.holds(self._work.held())  # another life begins once nothing is left of this one
        self._work_on_changes()
        if share.working and share.turn != self._turn:
            log.info("Finished starting connectors and tasks")
        if news and share.working:
            self._rebalances.completed()
        self._turn, self._working = share.turn, share.working
        self._run_parked()
        self._repair_statuses()

    def _group_metrics(self) -> Iterable[AnySample]:
        share = self._group.share()
        tasks = sum(isinstance(item, ConnectorTaskId) for item in share.items)
        return self._rebalances.samples(
            generation=share.generation, leader_url=self._group.leader_url(), connectors=len(share.items) - tasks,
            tasks=tasks, client_id=self._client_id,
        )  # fmt: skip

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
        """Write again that this worker runs its work, since a late worker may have overwritten it; leaders clean up."""
        now = self._clock.monotonic()
        if self._working and now - self._repaired_at > REPAIR_SECONDS:
            self._repaired_at = now
            self._publisher.repair(item for item in self._work.held() if self._work.owns(item))
        if self._leadership.leads:
            seen = (self._state().offset, self._group.held_by_others())
            if seen != self._cleaned:
                self._cleaned = seen
                self._clean_statuses(None)

    def _clean_statuses(self, name: str | None) -> None:
        if self._leadership.leads:
            super()._clean_statuses(name)

    def _running_anywhere(self) -> Items:
        return self._work.held() | self._group.held_by_others()

    # ------------------------------------------------------------------ LeaderDuties, on the leader's thread

    def configured(self) -> tuple[Items, int]:
        state = self._state()
        if self._configured[1] != state.offset:
            tasks = (task for name in state.configs for task in self._tasks_to_run(state, name))
            self._configured = frozenset((*state.configs, *tasks)), state.offset
        return self._configured

    def _tasks_to_run(self, state: ClusterConfigState, name: str) -> Sequence[ConnectorTaskId]:
        return () if state.target_state(name) is TargetState.STOPPED else state.tasks(name)

    def before_round(self, lost: Mapping[Item, str], generation: int) -> None:
        written = False
        for item, url in lost.items():
            known = self._stores.status.get(item)
            if known is not None and known.state is not State.UNASSIGNED:
                self._stores.status.put(item, Status(State.UNASSIGNED, worker_id_of(url), generation))
                written = True
        if written:
            self._stores.status.flush(FLUSH_SECONDS)

    def housekeeping(self) -> None:
        algorithm, bits, ttl_ms = (
            self._config[f"inter.worker.key.{name}"] for name in ("generation.algorithm", "size", "ttl.ms")
        )
        key = successor(self._state().session_key, algorithm, bits, ttl_ms, self._clock.time_ms())
        if key is not None:
            self._stores.config.put_session_key(key)

    # ------------------------------------------------------------------ requests

    def _member_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """On the herder's thread, once this worker has a place in its group: a long rebalance is a slow answer."""
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
        """Right after a change of a configuration, tasks stop and start or move: the request waits for that."""

        def exists() -> bool:
            state = self._state()
            return id in (state.tasks(id.connector) if isinstance(id, ConnectorTaskId) else state.configs)

        def settled() -> bool:
            if self._work.owns(id) or not exists():
                return True
            return self._group.owner_url(id) != self._url and not self._group.is_moving(id)

        def run() -> T | Future[T]:
            if self._work.owns(id) or not exists():  # what does not exist is said to be so by anybody
                return action()
            url = self._group.owner_url(id)
            if url == self._url:  # still about to start, or to stop
                raise RequestConflictError(STALE_TEXT)
            raise RequestTargetError(OWNER_TEXT, url)

        return self._member_request(lambda: self._settled_request(settled, run))

    def _publish_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> Future[None]:
        """Have the leader publish a task set if it is news: here, or by a signed call."""
        if self._leadership.leads:
            return self._leadership.submit(lambda: self._work.publish_task_configs(name, configs))
        if differs(self._state(), name, configs) is None:
            return done(None)
        return self._call_leader(
            lambda calls, url: calls.put_task_configs(url, name, configs, self._session_keys.headers)
        )

    def _call_leader(self, call: Callable[[LeaderCalls, str], None]) -> Future[None]:
        if self._stopping.is_set():
            return failed(ConnectError("the worker is stopping"))
        url = self._group.leader_url()
        if self._leader_calls is None or url is None or url == self._url:
            return failed(ConnectError("the leader of the group is not known just now"))
        calls = self._leader_calls
        return self._pool.submit(call, calls, url)

    # ------------------------------------------------------------------ requests of other workers

    def _config_changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, SessionKeyChanged):
                self._session_keys.take(change.key)
        super()._config_changed(changes)

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        def put() -> None:
            state = self._known(name)
            if configs and state.target_state(name) is TargetState.STOPPED:
                raise BadRequestError(f"Cannot submit non-empty set of task configs for stopped connector {name}")
            self._work.publish_task_configs(name, configs)

        return self._signed_request(signature, put)

    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        def fence() -> Future[None]:
            self._known(name)
            if self._type_of(name) != PluginKind.SOURCE.value:
                raise BadRequestError(f"Connector {name} is not a source connector")
            return self._fencing.fence(name)

        return self._signed_request(signature, fence)

    # ------------------------------------------------------------------ SourceTaskGate, on threads of the worker

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        if self._leadership.leads:
            return self._leadership.submit(lambda: self._fencing.fence(name))
        return self._call_leader(lambda calls, url: calls.fence_zombies(url, name, self._session_keys.headers))

    def verify_source_task(self, id: ConnectorTaskId, start_number: int) -> Future[None]:  # noqa: A002 - Connect's word
        def verify() -> None:
            if self._state().start_numbers.get(id.connector, 0) != start_number:
                raise TaskNotWantedError(f"task {id} must not write: its connector has a new set of tasks")
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

    def _signed_request(
        self, signature: RequestSignature | None, action: Callable[[], Future[None] | None]
    ) -> Future[None]:
        try:
            self._session_keys.check(signature)
        except (ConnectError, PermissionError) as error:
            return failed(error)
        return self._leader_request(action)


def worker_id_of(url: str) -> str:
    """How statuses name the worker of an advertised URL: host and port."""
    return url.partition("://")[2].rstrip("/")
