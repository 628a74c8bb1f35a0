"""`DistributedHerder`: the one thread that owns a worker group's state; requests in, decisions out."""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.abstract_herder import VERSION, AbstractHerder
from connect_py.herder.futures import failed
from connect_py.herder.group_member import GroupMember
from connect_py.herder.herder import BadRequestError, ServerInfo
from connect_py.herder.request_queue import RequestQueue
from connect_py.herder.request_signature import RequestSignature
from connect_py.herder.session_keys import SessionKeys
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.model import TargetState
from connect_py.storage.config_state import Change, SessionKey, SessionKeyChanged
from connect_py.storage.config_store import FENCED_TEXT, ConfigStore
from connect_py.storage.control_store import ControlStore, Epoch
from connect_py.storage.leader_producer import FencedError, LeaderProducer
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.topic_admin import TopicAdmin
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS = 1.0
STARTUP_SECONDS = 15 * 60.0  # how long internal topics may stay unreadable at start
STARTUP_PAUSE_SECONDS = 10.0
READ_SECONDS = 30.0
ACQUIRE_SECONDS = 30.0
RENEW_SECONDS = 5.0
WAIT_NOTICE_SECONDS = 30.0
FLUSH_SECONDS = 5.0


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


class LeadershipLost(Exception):  # noqa: N818 - an event, not a failure
    """Another worker leads, or the group took partition 0 away."""


class DistributedHerder(AbstractHerder):
    """Runs everything itself for now: the group's leader is its only working member, others wait for the lead."""

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
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            clients: Makes the clients of the internal topics.
            advertised_url: Where other workers reach this one's REST API, `http://host:port`.
            commit: Our own version, shown beside Connect's.
            make_worker: Makes the worker, given its listener and where source offsets are kept.
        """
        self._clock = clock or SystemClock()
        self._url = advertised_url
        leader = LeaderProducer(clients, config.group_id)
        self._stores = Stores(
            ConfigStore(config.storage_topic("config").name, clients, leader, self._config_changed),
            StatusStore(config.storage_topic("status").name, clients, self._clock),
            OffsetStore(config.storage_topic("offset").name, clients),
            ControlStore(config.control_topic().name, clients, leader),
            leader,
            TopicAdmin(clients.admin(), self._clock, create=config["internal.topics.automatic.creation.enable"]),
        )
        worker_id = advertised_url.partition("://")[2].rstrip("/")
        publisher = StatusPublisher(self._stores.status, worker_id, track_topics=config["topic.tracking.enable"])
        super().__init__(
            config,
            ServerInfo(VERSION, commit, cluster_id),
            configs=self._stores.config,
            statuses=self._stores.status,
            publisher=publisher,
            worker=make_worker(publisher, self._stores.offset),
            queue=RequestQueue(self._clock),
            clock=self._clock,
            thread_name=f"DistributedHerder-connect-{config['client.id'] or worker_id}-1",
        )
        self._member = GroupMember(
            config.control_topic().name,
            clients.member_settings(config.group_id, config["session.timeout.ms"], config["heartbeat.interval.ms"]),
            self._queue.wake,
        )
        self._session_keys = SessionKeys(
            config["inter.worker.signature.algorithm"],
            config["inter.worker.verification.algorithms"],
            config["session.timeout.ms"] / 1000,
            self._clock,
        )
        self._epoch: Epoch | None = None  # of our own term

    # ------------------------------------------------------------------ life

    def _main(self) -> None:
        self._start_stores()
        self._worker.start()
        self._member.start()
        while not self._stopping.is_set():
            self._lead_once()

    def _start_stores(self) -> None:
        """Create or check the topics and read them to their ends, for up to a quarter of an hour."""
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
                        store.refresh(READ_SECONDS)
                return
            except ConfigError:
                raise
            except ConnectError as error:
                if self._clock.monotonic() > deadline:
                    raise
                log.warning("internal topics are not ready: %s; again in %g s", error, STARTUP_PAUSE_SECONDS)
                self._stopping.wait(STARTUP_PAUSE_SECONDS)

    def _end(self) -> None:
        """Tasks and connectors, then the group, then the stores; who still waits is told."""
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            self._worker.stop()
            self._stores.status.flush(FLUSH_SECONDS)
            self._member.stop()
            for store in self._stores.logs:
                store.stop()
            self._stores.leader.release()
            self._pool.shutdown(wait=False, cancel_futures=True)
            for action in self._queue.drain():
                action()  # requests see that the worker stops, and say so
            log.info("Herder stopped")

    # ------------------------------------------------------------------ leadership

    def _lead_once(self) -> None:
        """Win the lead, decide until it is lost or the worker stops."""
        with self._stages.stage("ensuring membership in the cluster"):
            if not self._await_partition():
                return
            epoch = self._take_lead()
        log.info("Joined group at generation %d with epoch %d", epoch.generation, epoch.number)
        state = self._stores.config.snapshot()
        log.info("Starting connectors and tasks using config offset %d", state.offset)
        self._dirty = True
        try:
            self._tick()
            log.info("Finished starting connectors and tasks")
            if not self._started:
                self._started = True
                log.info("Herder started")
            while not self._stopping.is_set():
                self._queue.wait(TICK_SECONDS)
                self._tick()
        except (LeadershipLost, FencedError) as lost:
            log.warning("this worker leads no longer (%s): stopping its connectors and tasks", lost)
            self._give_up_work()

    def _await_partition(self) -> bool:
        """Wait until the group gives us partition 0; False when the worker stops meanwhile."""
        noticed = self._clock.monotonic()
        log.info("Rebalance started")
        while not self._stopping.is_set():
            if self._member.problem is not None:
                raise ConnectError(self._member.problem)
            if self._member.owns:
                return True
            if self._member.joined and self._clock.monotonic() - noticed > WAIT_NOTICE_SECONDS / 10:
                noticed = self._clock.monotonic() + WAIT_NOTICE_SECONDS
                log.warning(
                    "worker group '%s' has another member, which runs all connectors and tasks: this worker waits and "
                    "takes over when that one leaves, or %g s after it died",
                    self._config.group_id,
                    self._config["session.timeout.ms"] / 1000,
                )
            self._queue.wait(TICK_SECONDS)
        return False

    def _take_lead(self) -> Epoch:
        """Fence the old leader, read everything it wrote, announce the new term."""
        while True:
            try:
                self._stores.leader.acquire(ACQUIRE_SECONDS)
                for store in self._stores.logs:
                    store.refresh(READ_SECONDS)
                last = self._stores.control.highest()
                epoch = Epoch(
                    1 + (last.number if last else 0),
                    self._url,
                    1 + max(self._stores.status.highest_generation(), last.generation if last else 0),
                )
                self._stores.control.put_epoch(epoch)
                self._epoch = epoch
                self._publisher.generation = epoch.generation
                self._renew_session_key()
                return epoch
            except ConnectError as error:
                if self._stopping.is_set():
                    raise
                log.warning("the lead of the group is not taken yet: %s; trying again", error)
                self._stopping.wait(STARTUP_PAUSE_SECONDS / 10)

    def _renew_session_key(self) -> None:
        """Write a key for calls between workers when there is none, or it is too old or of another kind."""
        known, now = self._stores.config.snapshot().session_key, self._clock.time_ms()
        algorithm, ttl = self._config["inter.worker.key.generation.algorithm"], self._config["inter.worker.key.ttl.ms"]
        if known is not None and known.algorithm == algorithm and not 0 < ttl < now - known.creation_timestamp:
            return
        size = (self._config["inter.worker.key.size"] or 256) // 8
        key = base64.b64encode(secrets.token_bytes(size)).decode()
        self._stores.config.put_session_key(SessionKey(key, algorithm, now))

    def _rotate_session_key(self) -> None:
        try:
            self._renew_session_key()
        except FencedError:
            raise
        except ConnectError as error:
            log.warning("the session key is not renewed yet: %s", error)

    def _give_up_work(self) -> None:
        connectors, tasks = self._work.running()
        with self._stages.stage("stopping connectors and tasks after losing the lead"):
            for stopped in (self._worker.stop_tasks(tasks), *map(self._worker.stop_connector, connectors)):
                try:
                    stopped.result(READ_SECONDS)
                except (ConnectError, TimeoutError) as error:
                    log.warning("a stop did not end well: %s", error)
            self._work.forget()
            self._stores.status.flush(FLUSH_SECONDS)

    # ------------------------------------------------------------------ loop

    def _tick(self) -> None:
        """One round: requests, then what the config topic asks for."""
        if not self._member.owns:
            raise LeadershipLost("the group moved partition 0 of the control topic")
        if self._stores.leader.broken:
            self._renew_leader()
        self._rotate_session_key()
        self._work_on_changes()

    def _renew_leader(self) -> None:
        """After a transaction of unknown outcome: a new producer, and everything that was written read again.

        Work goes on meanwhile; requests that write fail. LeadershipLost: somebody else led in between.
        """
        try:
            with self._stages.stage("renewing the producer of the config topic"):
                self._stores.leader.acquire(RENEW_SECONDS)
                for store in (self._stores.config, self._stores.control):
                    store.refresh(READ_SECONDS)
        except ConnectError as error:
            log.warning("the config topic cannot be written yet: %s", error)
            return
        if self._stores.control.highest() != self._epoch:
            raise LeadershipLost("another worker has led meanwhile")

    # ------------------------------------------------------------------ requests

    def _answer(self, answer: Future[T], action: Callable[[], T | Future[T]]) -> None:
        """The same, and an end of this worker's lead if another worker has it.

        Raises:
            LeadershipLost: It has.
        """
        fenced: list[FencedError] = []

        def guarded() -> T | Future[T]:
            try:
                return action()
            except FencedError as error:
                fenced.append(error)
                raise ConnectError(FENCED_TEXT) from error

        super()._answer(answer, guarded)
        if fenced:
            raise LeadershipLost(str(fenced[0])) from fenced[0]

    def _leader_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        return self._request(action)

    def _owner_request(self, id: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:  # noqa: A002 - Connect's word
        return self._request(action)

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
        def fence() -> None:
            self._known(name)
            if self._type_of(name) != PluginKind.SOURCE.value:
                raise BadRequestError(f"Connector {name} is not a source connector")
            raise ConnectError("This worker does not have exactly-once source support enabled.")

        return self._signed_request(signature, fence)

    def _signed_request(self, signature: RequestSignature | None, action: Callable[[], None]) -> Future[None]:
        try:
            self._session_keys.check(signature)
        except (ConnectError, PermissionError) as error:
            return failed(error)
        return self._leader_request(action)
