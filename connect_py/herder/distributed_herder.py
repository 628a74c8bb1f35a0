"""`DistributedHerder`: the herder of a worker group. One thread owns the state of this worker."""

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
from connect_py.herder.group.group_member import GroupMember
from connect_py.herder.group.group_stores import Stores
from connect_py.herder.group.heartbeat_sender import HeartbeatSender
from connect_py.herder.group.leader_calls import LeaderCalls
from connect_py.herder.group.leader_duties import GroupDuties
from connect_py.herder.group.leader_requests import GroupRequests
from connect_py.herder.group.leadership import Leadership, NotLeaderError
from connect_py.herder.group.member_state import UrlInUseError
from connect_py.herder.group.session_keys import SessionKeys
from connect_py.herder.group.start_refusals import StartRefusals
from connect_py.herder.group.timings import Timings
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group.zombie_fencing import ZombieFencing
from connect_py.herder.herder import (
    RequestConflictError,
    RequestTargetError,
    ServerInfo,
    StagedFuture,
    WorkerInfo,
)
from connect_py.herder.thread.futures import mapped_error, translated
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.work.status_publisher import StatusPublisher, worker_id_of
from connect_py.herder.work.task_set import differs
from connect_py.herder.work.work_runner import strings
from connect_py.kafka.authorization_errors import RefusedError
from connect_py.metrics.rebalance_metrics import RebalanceMetrics
from connect_py.metrics.sampled import Window
from connect_py.metrics.samples import AnySample
from connect_py.model import KAFKA_VERSION, ConnectorTaskId, TargetState
from connect_py.storage.config_state import Change, SessionKeyChanged
from connect_py.storage.control_records import NO_ITEMS, AssignmentVersion, Items
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_table import StatusId
from connect_py.storage.storage_clients import StorageClients
from connect_py.task.messages import TaskNotWantedError
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS = 1.0
READ_SECONDS = 30.0
REPAIR_SECONDS = 3.0
FLUSH_SECONDS = 5.0
LEADER_MESSAGE = "Only the leader can process this request."
STALE_CONFIG_MESSAGE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by "
    "a concurrent config change)"
)
OWNER_MESSAGE = "Only the worker that runs it can process this request."


class DistributedHerder(GroupRequests):
    """A member of a worker group: runs the items that the leader assigns to it, and leads the group
    when elected.

    The herder's thread starts and stops items and processes requests. The reader of the control
    topic, the heartbeat sender, and the leader run on their own threads. None of them waits for
    another.
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
        """Create the herder; nothing runs yet.

        Args:
            clients: Creates the clients of the internal topics.
            advertised_url: URL at which other workers reach this one, `http://host:port`.
            commit: Version of connect-py, shown next to Connect's version.
            make_worker: Creates the worker, given its listener and the store of source offsets.
            leader_calls: Sends requests to the leader. Without it, this worker must always be the
                leader.
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
        self._applied_version = AssignmentVersion()  # of the applied assignment
        self._working = False
        # stage that is shown while this worker has no assignment
        self._rebalance_stage: ExitStack | None = None
        self._waiting_requests: list[
            Callable[[], None]
        ] = []  # requests that wait for an assignment
        self._repaired_at = 0.0
        self._cleaned: object = None
        self._work.claim = self._claim
        self._work.on_running = self._group.set_running
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
        self._sender = HeartbeatSender(
            topic,
            clients.heartbeat_settings(round(self._group.timings.lease * 1000)),
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

    # Lifecycle

    def _main(self) -> None:
        log.info("Herder starting")
        self._worker.start()  # its processes import their modules while the topics are being read
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
        """Start services now: the group needs seconds to decide which worker runs the tasks that
        use them.
        """
        state = self._state()
        started = [
            name for name in state.connectors() if state.target_state(name) is TargetState.STARTED
        ]
        self.prestart_services({name: state.configs[name] for name in started})

    def _await_lone_leader(self) -> None:
        """Wait until the lease of another worker that led without transactions has expired.

        Raises:
            RefusedError: That worker is running.
        """
        self._group.read_to_end()
        deadline = self._clock.monotonic() + self._group.timings.session_timeout
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
                f"worker {url} of group '{group}' runs without transactions and therefore must "
                "be the only one: grant Write and Describe on TransactionalId "
                f"'connect-cluster-{group}', or configure the brokers to support transactions; "
                "then restart that worker and start this one again"
            )

    def _why_no_transactions(self) -> str | None:
        return self._stores.leader.alone

    def _pause(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def _wake(self) -> None:
        """Wake the threads after a new record or a change of ownership. Thread-safe."""
        self._queue.wake()
        self._leadership.queue.wake()

    def _end(self) -> None:
        """Stop tasks and connectors, then leave the group, then stop the stores. Pending requests
        fail.
        """
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            self._group.leave()
            self._worker.stop()
            self._stores.status.flush(FLUSH_SECONDS)
            self._group.set_running(NO_ITEMS)
            self._leadership.stop()
            self._sender.stop()
            self._member.stop()
            self._stores.stop()
            self._pool.shutdown(wait=False, cancel_futures=True)
            for action in self._waiting_requests:
                self._queue.put(action)  # fails together with the other requests
            log.info("Herder stopped")

    # Membership

    def _join(self) -> None:
        """Join the group. Startup is complete once the leader has assigned items to this worker."""
        self._check_membership()
        # a member ID that no other member has seen can be replaced
        self._group.set_running(NO_ITEMS)
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
        """Run one iteration: apply the assignment, process requests, then apply the
        configuration.
        """
        self._check_membership()
        share = self._group.share()
        has_changed = (share.version, share.working) != (self._applied_version, self._working)
        if share.working and share.version != self._applied_version:
            log.info(
                "Joined group at generation %d with epoch %d", share.generation, share.version.epoch
            )
            log.info("Starting connectors and tasks using config offset %d", share.config_offset)
        elif self._working and not share.working:
            log.warning(
                "lost the membership in the group because no heartbeat arrived in time: "
                "stopping connectors and tasks"
            )
        if has_changed:
            self._rebalances.began()
            self._dirty = True
            self._publisher.generation = max(self._publisher.generation, share.generation)
        self._work.assigned = share.items if share.working else NO_ITEMS
        if not share.working:
            # a new member ID is used once everything has stopped
            self._group.set_running(self._work.running_items())
        self._work_on_changes()
        if share.working and share.version != self._applied_version:
            log.info("Finished starting connectors and tasks")
        if has_changed and share.working:
            self._rebalances.completed()
        self._applied_version, self._working = share.version, share.working
        self._run_waiting_requests()
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

    def _run_waiting_requests(self) -> None:
        """Run the requests that were waiting for an assignment, once there is one."""
        if not self._working:
            if self._rebalance_stage is None:
                self._rebalance_stage = ExitStack()
                self._rebalance_stage.enter_context(
                    self._stages.stage("ensuring membership in the cluster")
                )
            return
        if self._rebalance_stage is not None:
            self._rebalance_stage.close()
            self._rebalance_stage = None
        requests, self._waiting_requests = self._waiting_requests, []
        for action in requests:
            action()

    def _claim(self, items: Items) -> Items:
        share = self._group.share()
        if self._state().offset < share.config_offset:
            # the assignment is based on a newer configuration than this worker has read
            self._dirty = True
            return NO_ITEMS
        return self._group.claim(items)

    def _repair_statuses(self) -> None:
        """Publish the statuses of running items again in case a late worker has overwritten them.
        The leader also removes obsolete ones.
        """
        now = self._clock.monotonic()
        if self._working and now - self._repaired_at > REPAIR_SECONDS:
            self._repaired_at = now
            self._publisher.repair(
                item for item in self._work.running_items() if self._work.owns(item)
            )
        if self._leadership.leads:
            version = (self._state().offset, self._group.running_elsewhere())
            if version != self._cleaned:
                self._cleaned = version
                self._clean_statuses(None)

    def _clean_statuses(self, name: str | None) -> None:
        if self._leadership.leads:
            super()._clean_statuses(name)

    def _running_anywhere(self) -> Items:
        return self._work.running_items() | self._group.running_elsewhere()

    # Requests

    def _member_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the herder's thread once this worker has an assignment. A long rebalance
        delays the response.
        """
        answer: StagedFuture[T] = StagedFuture()

        def run() -> None:
            if self._working or self._stopping.is_set():
                self._answer(answer, action)
            else:
                self._waiting_requests.append(run)

        self._enqueue(run)
        return answer

    def ping(self) -> Future[None]:
        return self._member_request(lambda: None)

    def _leader_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the leader's thread: a slow write delays other writes and nothing
        else.
        """

        def submit() -> Future[T]:
            if not self._leadership.expected:
                raise self._leader_redirect()
            return mapped_error(
                self._leadership.submit(action), NotLeaderError, self._leader_redirect
            )

        return self._member_request(submit)

    def _leader_redirect(self) -> RequestTargetError:
        url = self._group.leader_url()
        return RequestTargetError(LEADER_MESSAGE, None if url == self._url else url)

    def _owner_request(self, id: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:  # noqa: A002 - Connect's word
        """Run an action if this worker runs the item, after pending starts, stops, and moves have
        completed.
        """

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
            # any worker can report that an item does not exist
            if self._work.owns(id) or not exists():
                return action()
            url = self._group.owner_url(id)
            if url == self._url:  # about to start or to stop
                raise RequestConflictError(STALE_CONFIG_MESSAGE)
            raise RequestTargetError(OWNER_MESSAGE, url)

        return self._member_request(lambda: self._settled_request(settled, run))

    def _publish_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]]
    ) -> Future[None]:
        """Have the leader publish a task set if it has changed: directly, or with a signed
        request.
        """
        if self._leadership.leads:
            return self._leadership.submit(lambda: self._work.publish_task_configs(name, configs))
        if differs(self._state(), name, configs) is None:
            return done(None)
        return self._call_leader(
            lambda calls, url: calls.put_task_configs(
                url, name, configs, self._session_keys.headers
            )
        )

    # Requests of other workers

    def _config_changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, SessionKeyChanged):
                self._session_keys.take(change.key)
        super()._config_changed(changes)

    # SourceTaskGate, called on threads of the worker

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
                raise TaskNotWantedError(
                    f"task {id} must not write: it was reassigned to another worker"
                )

        self._stores.config.refresh(READ_SECONDS)
        return self._request(verify)

    def _before_altering(self, name: str) -> Future[None]:
        if not self._config.exactly_once_sources or self._type_of(name) != PluginKind.SOURCE.value:
            return done(None)
        message = "Failed to perform zombie fencing for source connector prior to modifying offsets"
        return translated(self._fencing.fence(name), message)

    def _fence_producers(self, name: str, count: int) -> Future[None]:
        return self._worker.fence_producers(name, strings(self._state().configs[name]), count)
