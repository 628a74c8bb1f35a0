"""`AbstractHerder`: how every herder follows the config topic and changes it, in Kafka or in this
process."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import ClassVar, TypeVar

from connect_py.api.errors import AlreadyExistsError, ConnectError, NotFoundError
from connect_py.clock import Clock
from connect_py.config.worker_config import WorkerConfig
from connect_py.futures import done, failed
from connect_py.herder.futures import chain, translated
from connect_py.herder.herder import (
    BadRequestError,
    Config,
    ConfigInfos,
    ConnectorInfo,
    ConnectorStatus,
    Created,
    InitialState,
    ServerInfo,
    Stage,
)
from connect_py.herder.herder_answers import HerderAnswers
from connect_py.herder.request_queue import RequestQueue
from connect_py.herder.restart_plan import plan_restart
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.herder.task_set import is_current
from connect_py.herder.work_runner import WorkRunner, strings
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.config_state import (
    Change,
    LoggerLevelRequested,
    RestartRequest,
    RestartRequested,
    TargetStateChanged,
)
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import Items
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")


class AbstractHerder(HerderAnswers):
    """Reads from the stores at once; what changes something, or must be asked in order, runs on the
    herder's thread.

    A subclass owns that thread. It calls `_work_on_changes` in each of its rounds, and says in
    `_leader_request` and `_owner_request` which worker of a group may answer.
    """

    UNKNOWN_CONNECTOR: ClassVar[str] = "Unknown connector: {}"  # of a plain restart
    UNKNOWN_TASK: ClassVar[str] = "Unknown task: {}"

    def __init__(
        self,
        config: WorkerConfig,
        info: ServerInfo,
        *,
        configs: ConfigStore,
        statuses: StatusStore,
        publisher: StatusPublisher,
        worker: Worker,
        queue: RequestQueue,
        clock: Clock,
        thread_name: str,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            info: What `GET /` says.
            configs: Connectors, tasks, target states; its changes go to `_config_changed`.
            publisher: The worker's listener.
        """
        super().__init__(
            config,
            info,
            configs=configs,
            statuses=statuses,
            worker=worker,
            queue=queue,
            clock=clock,
            thread_name=thread_name,
        )
        self._publisher = publisher
        self._work = WorkRunner(
            worker, configs, publisher, config.resolver, queue, self._clean_statuses
        )
        publisher.version_of = self._version_of
        publisher.on_tasks_wanted = lambda name: queue.put(
            lambda: self._work.ask_task_configs(name)
        )
        publisher.on_stop_wanted = lambda *wanted: queue.put(lambda: self._on_stop_wanted(*wanted))
        self._stops: set[str] = set()  # connectors whose tasks asked for a stop that is on its way
        self._restarts: dict[str, RestartRequest] = {}  # pending, by connector; guarded by its lock
        self._restarts_lock = threading.Lock()
        self._dirty = True  # what runs may differ from what should

    # ------------------------------------------------------------------ whose request it is

    @abstractmethod
    def _owner_request(self, id: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:  # noqa: A002 - as below
        """Like `_request`, for what only the worker that runs this connector or task may do."""

    # ------------------------------------------------------------------ services

    def prestart_services(self, configs: Mapping[str, Config]) -> None:
        """Start the shared services that tasks of these connectors, by name, will request. Any
        thread."""
        usable = {}
        for name, config in configs.items():
            with suppress(ConnectError):  # a value is null: the connector's start reports it
                usable[name] = strings(config)
        self._worker.prestart_services(usable)

    # ------------------------------------------------------------------ rounds

    def _work_on_changes(self) -> None:
        """On the herder's thread: requests that are due, restarts, then what the configuration asks
        for."""
        for action in self._queue.due():
            action()
        self._execute_restarts()
        if self._dirty:
            self._dirty = False
            self._work.reconcile()
            self._clean_statuses(None)

    def _config_changed(self, changes: Sequence[Change]) -> None:
        """On the config log's thread."""
        for change in changes:
            # those read at start-up are old
            if isinstance(change, RestartRequested) and self._started:
                with self._restarts_lock:
                    known = self._restarts.get(change.request.connector)
                    if known is None or change.request.impact >= known.impact:
                        self._restarts[change.request.connector] = change.request
            if isinstance(change, LoggerLevelRequested) and self._started:
                self._loggers.set(change.logger, change.level)
            if isinstance(change, TargetStateChanged):
                log.debug("target state of connector %s changed", change.name)
        self._dirty = True
        self._queue.wake()

    def _execute_restarts(self) -> None:
        with self._restarts_lock:
            requests, self._restarts = self._restarts, {}
        for request in requests.values():
            known = self._statuses.get(request.connector)
            if known is not None and request.connector in self._configs.snapshot().configs:
                plan = plan_restart(request, known, self._statuses.tasks(request.connector))
                self._work.restart(request.connector, connector=plan.connector, tasks=plan.tasks)

    def _clean_statuses(self, name: str | None) -> None:
        """Remove statuses of what exists no more; of one connector, or of all."""
        state = self._configs.snapshot()
        running = self._running_anywhere()
        for known in self._statuses.ids():
            connector = known.connector if isinstance(known, ConnectorTaskId) else known
            if name not in (None, connector) or connector in state.inconsistent:
                continue
            alive = (
                known in state.tasks(connector)
                if isinstance(known, ConnectorTaskId)
                else known in state.configs
            )
            if alive or known in running:
                continue
            try:
                self._statuses.delete(known)
                if known == connector:
                    self._statuses.delete_topics(connector)
            except ConnectError as error:
                log.error("the status of %s is not removed: %s", known, error)

    def _running_anywhere(self) -> Items:
        return self._work.running_items()

    # ------------------------------------------------------------------ changes

    def put_connector(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None = None
    ) -> Future[Created]:
        config = dict(config)

        def put(infos: ConfigInfos) -> Future[Created]:
            _check_valid(infos)
            return self._leader_request(
                lambda: self._answer_put(self._put_connector(name, config, replace, initial_state))
            )

        return chain(self._validate(config), put)

    def _put_connector(
        self, name: str, config: Config, replace: bool, initial_state: InitialState | None
    ) -> Created:
        state = self._state()
        exists = name in state.configs
        if exists and not replace:
            raise AlreadyExistsError(f"Connector {name} already exists")
        before = state.tasks(name)
        with self._stages.stage(f"writing a config for connector {name} to the config topic"):
            self._configs.put_connector_config(
                name, config, None if initial_state is None else initial_state.target
            )
        stored = {key: value for key, value in config.items() if value is not None}
        return Created(not exists, ConnectorInfo(name, stored, before, self._type_of(name)))

    def _answer_put(self, created: Created) -> Created | Future[Created]:
        """What is answered once a configuration was written: now, or when more of it is true."""
        return created

    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        """Merged, validated, and written if nothing else was written meanwhile: otherwise once
        more."""

        def merge() -> Future[ConnectorInfo]:
            state = self._known(name)
            merged, merged_with = dict(state.configs[name]), state.config_offsets[name]
            if changes.get("name", name) not in (name, None):
                raise BadRequestError(
                    f"Connector name configuration ({changes['name']}) doesn't match connector "
                    f"name in the URL ({name})"
                )
            for key, value in changes.items():
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            return chain(
                self._validate(merged),
                lambda infos: self._leader_request(lambda: write(infos, merged, merged_with)),
            )

        def write(infos: ConfigInfos, merged: Config, merged_with: int) -> Future[ConnectorInfo]:
            if self._known(name).config_offsets[name] != merged_with:
                return merge()
            _check_valid(infos)
            created = self._answer_put(self._put_connector(name, merged, True, None))
            return chain(
                created if isinstance(created, Future) else done(created),
                lambda outcome: done(outcome.info),
            )

        return self._leader_request(merge)

    def delete_connector(self, name: str) -> Future[None]:
        def delete() -> None:
            self._known(name)
            with self._stages.stage(
                f"removing the config for connector {name} from the config topic"
            ):
                self._configs.remove_connector_config(name)

        return self._leader_request(delete)

    def restart_connector(self, name: str) -> Future[None]:
        def restart() -> Future[None]:
            self._known(name, self.UNKNOWN_CONNECTOR)
            started = self._work.start_connector(name)
            stage = Stage("starting the connector", self._clock.time_ms())
            return translated(started, f"Failed to start connector: {name}", stage)

        return self._of_known(
            name, lambda: self._owner_request(name, restart), self.UNKNOWN_CONNECTOR
        )

    def _of_known(
        self, name: str, ask: Callable[[], Future[T]], text: str = "Unknown connector: {}"
    ) -> Future[T]:
        """An unknown connector is said to be so by any worker; only then is it asked whose request
        it is."""

        def known() -> Future[T]:
            self._known(name, text)
            return ask()

        return self._request(known)

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        def restart() -> ConnectorStatus:
            self._known(name, "Unknown connector: {}")
            status = self._statuses.get(name)
            if status is None:
                raise NotFoundError(f"Status for connector {name} not found")
            request = RestartRequest(name, include_tasks, only_failed)
            plan = plan_restart(request, status, self._statuses.tasks(name))
            with self._stages.stage(
                f"writing restart request for connector {name} to the config topic"
            ):
                self._configs.put_restart_request(request)
            return ConnectorStatus(
                name, plan.connector_status, plan.task_statuses, self._type_of(name)
            )

        return self._of_known(name, lambda: self._leader_request(restart))

    def restart_task(self, id: ConnectorTaskId) -> Future[None]:  # noqa: A002 - Connect's word
        def restart() -> None:
            state = self._known(id.connector, self.UNKNOWN_CONNECTOR)
            if id not in state.tasks(id.connector):
                raise NotFoundError(self.UNKNOWN_TASK.format(id))
            self._work.start_task(id)

        return self._of_known(
            id.connector, lambda: self._owner_request(id, restart), self.UNKNOWN_CONNECTOR
        )

    def pause_connector(self, name: str) -> None:
        self._known(name, "Unknown connector {}")
        self._configs.put_target_state(name, TargetState.PAUSED)

    def resume_connector(self, name: str) -> None:
        self._known(name, "Unknown connector {}")
        self._configs.put_target_state(name, TargetState.STARTED)

    def stop_connector(self, name: str) -> Future[None]:
        def stop() -> None:
            self._known(name, "Unknown connector {}")
            self._write_stop(name, None)

        if name not in self._state().configs and self._started:
            return failed(NotFoundError(f"Unknown connector {name}"))
        return self._leader_request(stop)

    def _write_stop(self, name: str, reason: str | None) -> None:
        with self._stages.stage(
            f"writing the target state of connector {name} to the config topic"
        ):
            self._configs.put_stop(name, reason)

    def _on_stop_wanted(self, name: str, start_number: int, reason: str) -> None:
        """A task asks for the stop of its connector, again and again while it runs: one request at
        a time goes on."""
        if name in self._stops or not is_current(self._state(), name, start_number):
            return
        self._stops.add(name)

        def ended(stop: Future[None]) -> None:
            self._stops.discard(name)
            if not stop.cancelled() and stop.exception() is not None:
                log.warning(
                    "connector %s is not stopped yet, as its task asks: %s", name, stop.exception()
                )

        self._have_stopped(name, start_number, reason).add_done_callback(ended)

    @abstractmethod
    def _have_stopped(self, name: str, start_number: int, reason: str) -> Future[None]:
        """Have `_stop_as_requested` called where changes are made: here, or by the leader."""

    def _stop_as_requested(self, name: str, start_number: int, reason: str) -> None:
        """Stop a connector unless it was changed, stopped, paused or removed meanwhile; where
        changes are made."""
        if is_current(self._state(), name, start_number):
            log.info(
                "connector %s stops, as its task asks: %s",
                name,
                reason,
                extra={"action": "stop_requested"},
            )
            self._write_stop(name, reason)

    def set_cluster_logger_level(self, namespace: str, level: str) -> None:
        self._configs.put_logger_level(namespace, level)


def _check_valid(infos: ConfigInfos) -> None:
    if infos.error_count:
        raise BadRequestError(invalid_text(infos))


def invalid_text(infos: ConfigInfos) -> str:
    """The error text for a refused configuration; each of its errors names the key."""
    lines = [
        f"Connector configuration is invalid and contains the following {infos.error_count} "
        f"error(s):"
    ]
    values = [config.value for config in infos.configs if config.value is not None]
    lines += [
        text if value.name in text else f"{value.name}: {text}"
        for value in values
        for text in value.errors
    ]
    # the braces are part of the text
    endpoint = "`/connector-plugins/{connectorType}/config/validate`"
    lines.append(f"You can also find the above list of errors at the endpoint {endpoint}")
    return "\n".join(lines)
