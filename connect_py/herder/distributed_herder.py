"""`DistributedHerder`: the one thread that owns a worker group's state; requests in, decisions out."""

from __future__ import annotations

import base64
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from connect_py.api.errors import AlreadyExistsError, ConfigError, ConnectError, NotFoundError
from connect_py.api.plugin import PluginKind
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.group_member import GroupMember
from connect_py.herder.herder import (
    BadRequestError,
    Config,
    ConfigInfos,
    ConfigKeyInfo,
    ConnectorInfo,
    ConnectorStatus,
    Created,
    Herder,
    InitialState,
    PluginInfo,
    ServerInfo,
    Stage,
    TaskInfo,
)
from connect_py.herder.request_queue import RequestQueue
from connect_py.herder.restart_plan import plan_restart
from connect_py.herder.stage_board import StageBoard
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.herder.validation import Validator
from connect_py.herder.work_runner import WorkRunner
from connect_py.model import ConnectorTaskId, Status, TargetState
from connect_py.storage.config_state import (
    Change,
    ClusterConfigState,
    RestartRequest,
    RestartRequested,
    SessionKey,
    TargetStateChanged,
)
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

VERSION = "4.1.1"  # of the Kafka Connect whose behaviour this worker matches
TICK_SECONDS = 1.0
STARTUP_SECONDS = 15 * 60.0  # how long internal topics may stay unreadable at start
STARTUP_PAUSE_SECONDS = 10.0
READ_SECONDS = 30.0
ACQUIRE_SECONDS = 30.0
RENEW_SECONDS = 5.0
WAIT_NOTICE_SECONDS = 30.0
VALIDATION_THREADS = 4
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


class DistributedHerder(Herder):
    """Runs everything itself for now: the group's leader is its only working member, others wait for the lead."""

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
        self._config = config
        self._clock = clock or SystemClock()
        self._info = ServerInfo(VERSION, commit, cluster_id)
        self._url = advertised_url
        self._queue = RequestQueue(self._clock)
        self._stages = StageBoard(self._clock)
        leader = LeaderProducer(clients, config.group_id)
        self._restarts: dict[str, RestartRequest] = {}  # pending, by connector; guarded by its lock
        self._restarts_lock = threading.Lock()
        self._stores = Stores(
            ConfigStore(config.storage_topic("config").name, clients, leader, self._config_changed),
            StatusStore(config.storage_topic("status").name, clients, self._clock),
            OffsetStore(config.storage_topic("offset").name, clients),
            ControlStore(config.control_topic().name, clients, leader),
            leader,
            TopicAdmin(clients.admin(), self._clock, create=config["internal.topics.automatic.creation.enable"]),
        )
        worker_id = advertised_url.partition("://")[2].rstrip("/")
        self._publisher = StatusPublisher(self._stores.status, worker_id, track_topics=config["topic.tracking.enable"])
        self._publisher.version_of = self._version_of
        self._publisher.on_tasks_wanted = lambda name: self._queue.put(lambda: self._work.ask_task_configs(name))
        self._worker = make_worker(self._publisher, self._stores.offset)
        self._validator = Validator(config, self._worker)
        self._work = WorkRunner(
            self._worker, self._stores.config, self._publisher, config.resolver, self._queue, self._clean_statuses
        )
        self._member = GroupMember(
            config.control_topic().name,
            clients.member_settings(config.group_id, config["session.timeout.ms"], config["heartbeat.interval.ms"]),
            self._queue.wake,
        )
        self._pool = ThreadPoolExecutor(VALIDATION_THREADS, thread_name_prefix="validate")
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._started = False
        self._epoch: Epoch | None = None  # of our own term
        self._dirty = True
        self.failure: BaseException | None = None  # why the thread ended by itself
        self._thread = threading.Thread(target=self._run, name=f"DistributedHerder-connect-{worker_id}-1", daemon=True)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin; `started` tells when the worker is ready, `failure` when it cannot be."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stop everything that runs here, in order; False when that took longer than `timeout` seconds."""
        self._stopping.set()
        self._queue.wake()
        if not self._thread.is_alive():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for the herder's end; whether it has ended."""
        return self._ended.wait(seconds)

    def _run(self) -> None:
        try:
            self._start_stores()
            self._worker.start()
            self._member.start()
            while not self._stopping.is_set():
                self._lead_once()
        except Exception as error:
            log.exception("herder thread ends")
            self.failure = error
        finally:
            self._end()
            self._ended.set()

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
        for action in self._queue.due():
            action()
        self._execute_restarts()
        self._rotate_session_key()
        if self._dirty:
            self._dirty = False
            self._work.reconcile()
            self._clean_statuses(None)

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

    def _config_changed(self, changes: Sequence[Change]) -> None:
        """On the config log's thread."""
        for change in changes:
            if isinstance(change, RestartRequested) and self._started:  # those read at start-up are old
                with self._restarts_lock:
                    known = self._restarts.get(change.request.connector)
                    if known is None or change.request.impact >= known.impact:
                        self._restarts[change.request.connector] = change.request
            if isinstance(change, TargetStateChanged):
                log.debug("target state of connector %s changed", change.name)
        self._dirty = True
        self._queue.wake()

    def _execute_restarts(self) -> None:
        with self._restarts_lock:
            requests, self._restarts = self._restarts, {}
        for request in requests.values():
            known = self._stores.status.get(request.connector)
            if known is not None and request.connector in self._stores.config.snapshot().configs:
                plan = plan_restart(request, known, self._stores.status.tasks(request.connector))
                self._work.restart(request.connector, connector=plan.connector, tasks=plan.tasks)

    def _clean_statuses(self, name: str | None) -> None:
        """Remove statuses of what exists no more; of one connector, or of all."""
        state = self._stores.config.snapshot()
        connectors, running = self._work.running()
        for known in self._stores.status.ids():
            connector = known.connector if isinstance(known, ConnectorTaskId) else known
            if name not in (None, connector) or connector in state.inconsistent:
                continue
            alive = known in state.tasks(connector) if isinstance(known, ConnectorTaskId) else known in state.configs
            if alive or known in running or (known == connector and connector in connectors):
                continue
            try:
                self._stores.status.delete(known)
                if known == connector:
                    self._stores.status.delete_topics(connector)
            except ConnectError as error:
                log.error("the status of %s is not removed: %s", known, error)

    # ------------------------------------------------------------------ requests

    def _request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run on the herder's thread; the answer, or the answer's future, ends in the future returned."""
        answer: Future[T] = Future()

        def run() -> None:
            if self._stopping.is_set():
                answer.set_exception(ConnectError("Worker is shutting down"))
                return
            try:
                result = action()
            except FencedError as error:
                answer.set_exception(ConnectError(FENCED_TEXT))
                raise LeadershipLost(str(error)) from error
            except Exception as error:  # noqa: BLE001 - whoever asked gets it, and decides
                answer.set_exception(error)
                return
            if isinstance(result, Future):
                result.add_done_callback(partial(_pass_on, answer))
            else:
                answer.set_result(result)

        self._queue.put(run)
        return answer

    def _state(self) -> ClusterConfigState:
        return self._stores.config.snapshot()

    def _known(self, name: str, text: str = "Connector {} not found") -> ClusterConfigState:
        state = self._state()
        if name not in state.configs:
            raise NotFoundError(text.format(name))
        return state

    def server_info(self) -> ServerInfo:
        return self._info

    def stage(self) -> Stage | None:
        return self._stages.current()

    def started(self) -> bool:
        return self._started

    def ping(self) -> Future[None]:
        return self._request(lambda: None)

    def connectors(self) -> list[str]:
        return self._state().connectors()

    def connector_info(self, name: str) -> Future[ConnectorInfo]:
        return self._request(lambda: self._connector_info(name))

    def _connector_info(self, name: str) -> ConnectorInfo:
        state = self._known(name)
        # A null can only come from a Java worker that lost the error; it is shown as it is.
        config = cast(dict[str, str], dict(state.configs[name]))
        return ConnectorInfo(name, config, state.tasks(name), self._type_of(name))

    def _type_of(self, name: str) -> str:
        config = self._state().configs.get(name, {})
        try:
            return self._worker.plugins.find_connector(config.get("connector.class") or "").kind.value
        except ConnectError:
            return "unknown"

    def _version_of(self, id: StatusId) -> str | None:  # noqa: A002 - Connect's word
        name = id.connector if isinstance(id, ConnectorTaskId) else id
        try:
            plugin = self._worker.plugins.find_connector(self._state().configs[name].get("connector.class") or "")
        except (ConnectError, KeyError):
            return None
        return self._worker.plugins.version(plugin)

    def put_connector(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None = None
    ) -> Future[Created]:
        config = dict(config)

        def put(infos: ConfigInfos) -> Future[Created]:
            return self._request(lambda: self._put_connector(name, config, infos, replace, initial_state))

        return _chain(self._validate(config), put)

    def _put_connector(
        self, name: str, config: Config, infos: ConfigInfos, replace: bool, initial_state: InitialState | None
    ) -> Created:
        if infos.error_count:
            raise BadRequestError(invalid_text(infos))
        state = self._state()
        exists = name in state.configs
        if exists and not replace:
            raise AlreadyExistsError(f"Connector {name} already exists")
        before = state.tasks(name)
        with self._stages.stage(f"writing a config for connector {name} to the config topic"):
            self._stores.config.put_connector_config(
                name, config, None if initial_state is None else initial_state.target
            )
        stored = {key: value for key, value in config.items() if value is not None}
        return Created(not exists, ConnectorInfo(name, stored, before, self._type_of(name)))

    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        def merge() -> Future[ConnectorInfo]:
            merged = dict(self._known(name).configs[name])
            if changes.get("name", name) not in (name, None):
                raise BadRequestError(
                    f"Connector name configuration ({changes['name']}) doesn't match connector name in the URL ({name})"
                )
            for key, value in changes.items():
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            created = self.put_connector(name, merged, replace=True)
            return _chain(created, lambda outcome: _done(outcome.info))

        return self._request(merge)

    def delete_connector(self, name: str) -> Future[None]:
        def delete() -> None:
            self._known(name)
            with self._stages.stage(f"removing the config for connector {name} from the config topic"):
                self._stores.config.remove_connector_config(name)

        return self._request(delete)

    def connector_status(self, name: str) -> ConnectorStatus:
        status = self._stores.status.get(name)
        if status is None:
            raise NotFoundError(f"No status found for connector {name}")
        return ConnectorStatus(name, status, self._stores.status.tasks(name), self._type_of(name))

    def task_status(self, id: ConnectorTaskId) -> Status:  # noqa: A002 - Connect's word
        status = self._stores.status.get(id)
        if status is None:
            raise NotFoundError(f"No status found for task {id}")
        return status

    def restart_connector(self, name: str) -> Future[None]:
        def restart() -> Future[None]:
            self._known(name, "Unknown connector: {}")
            started = self._work.start_connector(name)
            return _translated(started, f"Failed to start connector: {name}")

        return self._request(restart)

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        def restart() -> ConnectorStatus:
            self._known(name, "Unknown connector: {}")
            status = self._stores.status.get(name)
            if status is None:
                raise NotFoundError(f"Status for connector {name} not found")
            request = RestartRequest(name, include_tasks, only_failed)
            plan = plan_restart(request, status, self._stores.status.tasks(name))
            self._stores.config.put_restart_request(request)
            return ConnectorStatus(name, plan.connector_status, plan.task_statuses, self._type_of(name))

        return self._request(restart)

    def restart_task(self, id: ConnectorTaskId) -> Future[None]:  # noqa: A002 - Connect's word
        def restart() -> None:
            state = self._known(id.connector, "Unknown connector: {}")
            if id not in state.tasks(id.connector):
                raise NotFoundError(f"Unknown task: {id}")
            self._work.start_task(id)

        return self._request(restart)

    def pause_connector(self, name: str) -> None:
        self._known(name, "Unknown connector {}")
        self._stores.config.put_target_state(name, TargetState.PAUSED)

    def resume_connector(self, name: str) -> None:
        self._known(name, "Unknown connector {}")
        self._stores.config.put_target_state(name, TargetState.STARTED)

    def stop_connector(self, name: str) -> Future[None]:
        def stop() -> None:
            self._known(name, "Unknown connector {}")
            with self._stages.stage(f"writing the target state of connector {name} to the config topic"):
                self._stores.config.put_task_configs(name, [])
                self._stores.config.put_target_state(name, TargetState.STOPPED)

        if name not in self._state().configs and self._started:
            return _failed(NotFoundError(f"Unknown connector {name}"))
        return self._request(stop)

    def task_infos(self, name: str) -> Future[list[TaskInfo]]:
        def infos() -> list[TaskInfo]:
            state = self._known(name)
            return [TaskInfo(task, cast(dict[str, str], dict(state.task_configs[task]))) for task in state.tasks(name)]

        return self._request(infos)

    def active_topics(self, name: str) -> list[str]:
        if not self._config["topic.tracking.enable"]:
            raise PermissionError("Topic tracking is disabled.")
        return sorted(status.topic for status in self._stores.status.topics(name))

    def reset_active_topics(self, name: str) -> None:
        if not self._config["topic.tracking.enable"]:
            raise PermissionError("Topic tracking is disabled.")
        if not self._config["topic.tracking.allow.reset"]:
            raise PermissionError("Topic tracking reset is disabled.")
        self._stores.status.delete_topics(name)

    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        kinds: tuple[PluginKind, ...] = (PluginKind.SINK, PluginKind.SOURCE)
        if not connectors_only:
            kinds += (
                PluginKind.TRANSFORMATION, PluginKind.PREDICATE, PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER,
            )  # fmt: skip
        registry = self._worker.plugins
        found = [
            PluginInfo(plugin.name, kind, registry.version(plugin))
            for kind in kinds
            for plugin in registry.available(kind)
        ]
        return list(dict.fromkeys(found))

    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        return self._pool.submit(self._validator.plugin_config, plugin, version)

    def validate(self, config: Config) -> Future[ConfigInfos]:
        return self._validate(dict(config))

    def _validate(self, config: Config) -> Future[ConfigInfos]:
        return self._pool.submit(self._validator.validate, config)


def invalid_text(infos: ConfigInfos) -> str:
    """What a refused configuration is told."""
    lines = [f"Connector configuration is invalid and contains the following {infos.error_count} error(s):"]
    lines += infos.errors()
    endpoint = "`/connector-plugins/{connectorType}/config/validate`"  # the braces are part of the text
    lines.append(f"You can also find the above list of errors at the endpoint {endpoint}")
    return "\n".join(lines)


def _pass_on(answer: Future[T], result: Future[T]) -> None:
    error = result.exception()
    if error is None:
        answer.set_result(result.result())
    else:
        answer.set_exception(error)


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _failed(error: Exception) -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(error)
    return future


S = TypeVar("S")


def _chain(first: Future[S], then: Callable[[S], Future[T]]) -> Future[T]:
    """The future of what follows `first`; its error if it fails."""
    answer: Future[T] = Future()

    def go_on(done: Future[S]) -> None:
        error = done.exception()
        if error is None:
            then(done.result()).add_done_callback(partial(_pass_on, answer))
        else:
            answer.set_exception(error)

    first.add_done_callback(go_on)
    return answer


def _translated(started: Future[None], text: str) -> Future[None]:
    """The same, a failure under Connect's text."""
    answer: Future[None] = Future()

    def done(ended: Future[None]) -> None:
        error = ended.exception()
        if error is None:
            answer.set_result(None)
            return
        failure = ConnectError(text)
        failure.__cause__ = error
        answer.set_exception(failure)

    started.add_done_callback(done)
    return answer
