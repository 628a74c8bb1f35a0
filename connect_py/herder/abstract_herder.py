"""`AbstractHerder`: follows the config topic and changes it, for both kinds of herder."""

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
from connect_py.herder.requests.restart_plan import plan_restart
from connect_py.herder.thread.futures import chain, translated
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.work.status_publisher import StatusPublisher
from connect_py.herder.work.task_set import is_current
from connect_py.herder.work.work_runner import WorkRunner, strings
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
    """Base class of the herders. Reads are answered directly from the stores; changes run on the
    herder's thread.

    A subclass owns that thread. It calls `_work_on_changes` in each iteration, and its
    `_leader_request` and `_owner_request` decide which worker of a group processes a request.
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
        """Create the herder; nothing runs yet.

        Args:
            info: Response to `GET /`.
            configs: Connectors, tasks, and target states; it reports changes to `_config_changed`.
            publisher: Listener of the worker.
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
        publisher.on_tasks_requested = lambda name: queue.put(
            lambda: self._work.request_task_configs(name)
        )
        publisher.on_stop_callback = lambda *request: queue.put(
            lambda: self._on_stop_requested(*request)
        )
        # connectors whose tasks requested a stop that has not completed
        self._stops: set[str] = set()
        self._restarts: dict[str, RestartRequest] = {}  # pending, by connector; guarded by its lock
        self._restarts_lock = threading.Lock()
        self._dirty = True  # the running items may differ from the configured ones

    # Request routing

    @abstractmethod
    def _owner_request(self, id: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:  # noqa: A002 - as below
        """Run an action on the worker that runs this connector or task."""

    # Services

    def prestart_services(self, configs: Mapping[str, Config]) -> None:
        """Start the shared services that the tasks of these connectors will request.
        Thread-safe.
        """
        usable = {}
        for name, config in configs.items():
            with suppress(ConnectError):  # a value is null: starting the connector reports it
                usable[name] = strings(config)
        self._worker.prestart_services(usable)

    # Loop

    def _work_on_changes(self) -> None:
        """Process due requests and restarts, then apply configuration changes. Called on the
        herder's thread.
        """
        for action in self._queue.due():
            action()
        self._execute_restarts()
        if self._dirty:
            self._dirty = False
            self._work.reconcile()
            self._clean_statuses(None)

    def _config_changed(self, changes: Sequence[Change]) -> None:
        """Process changes of the config topic. Called on the reader's thread."""
        for change in changes:
            # requests read during startup are outdated
            if isinstance(change, RestartRequested) and self._started:
                with self._restarts_lock:
                    pending = self._restarts.get(change.request.connector)
                    if pending is None or change.request.impact >= pending.impact:
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
            status = self._statuses.get(request.connector)
            if status is not None and request.connector in self._configs.snapshot().configs:
                plan = plan_restart(request, status, self._statuses.tasks(request.connector))
                self._work.restart(request.connector, connector=plan.connector, tasks=plan.tasks)

    def _clean_statuses(self, name: str | None) -> None:
        """Remove statuses of deleted connectors and tasks: of one connector, or of all."""
        state = self._configs.snapshot()
        running = self._running_anywhere()
        for item in self._statuses.ids():
            connector = item.connector if isinstance(item, ConnectorTaskId) else item
            if name not in (None, connector) or connector in state.inconsistent:
                continue
            exists = (
                item in state.tasks(connector)
                if isinstance(item, ConnectorTaskId)
                else item in state.configs
            )
            if exists or item in running:
                continue
            try:
                self._statuses.delete(item)
                if item == connector:
                    self._statuses.delete_topics(connector)
            except ConnectError as error:
                log.error("failed to remove the status of %s: %s", item, error)

    def _running_anywhere(self) -> Items:
        return self._work.running_items()

    # Changes

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
        """Return the response to a written configuration, possibly after its effects are known."""
        return created

    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        """Merge, validate, and write the configuration. Start over if it was changed
        concurrently.
        """

        def merge() -> Future[ConnectorInfo]:
            state = self._existing(name)
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
            if self._existing(name).config_offsets[name] != merged_with:
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
            self._existing(name)
            with self._stages.stage(
                f"removing the config for connector {name} from the config topic"
            ):
                self._configs.remove_connector_config(name)

        return self._leader_request(delete)

    def restart_connector(self, name: str) -> Future[None]:
        def restart() -> Future[None]:
            self._existing(name, self.UNKNOWN_CONNECTOR)
            started = self._work.start_connector(name)
            stage = Stage("starting the connector", self._clock.time_ms())
            return translated(started, f"Failed to start connector: {name}", stage)

        return self._if_exists(
            name, lambda: self._owner_request(name, restart), self.UNKNOWN_CONNECTOR
        )

    def _if_exists(
        self, name: str, submit: Callable[[], Future[T]], message: str = "Unknown connector: {}"
    ) -> Future[T]:
        """Route a request only if the connector exists: any worker can report an unknown
        connector.
        """

        def check_and_submit() -> Future[T]:
            self._existing(name, message)
            return submit()

        return self._request(check_and_submit)

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        def restart() -> ConnectorStatus:
            self._existing(name, "Unknown connector: {}")
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

        return self._if_exists(name, lambda: self._leader_request(restart))

    def restart_task(self, id: ConnectorTaskId) -> Future[None]:  # noqa: A002 - Connect's word
        def restart() -> None:
            state = self._existing(id.connector, self.UNKNOWN_CONNECTOR)
            if id not in state.tasks(id.connector):
                raise NotFoundError(self.UNKNOWN_TASK.format(id))
            self._work.start_task(id)

        return self._if_exists(
            id.connector, lambda: self._owner_request(id, restart), self.UNKNOWN_CONNECTOR
        )

    def pause_connector(self, name: str) -> None:
        self._existing(name, "Unknown connector {}")
        self._configs.put_target_state(name, TargetState.PAUSED)

    def resume_connector(self, name: str) -> None:
        self._existing(name, "Unknown connector {}")
        self._configs.put_target_state(name, TargetState.STARTED)

    def stop_connector(self, name: str) -> Future[None]:
        def stop() -> None:
            self._existing(name, "Unknown connector {}")
            self._write_stop(name, None)

        if name not in self._state().configs and self._started:
            return failed(NotFoundError(f"Unknown connector {name}"))
        return self._leader_request(stop)

    def _write_stop(self, name: str, reason: str | None) -> None:
        with self._stages.stage(
            f"writing the target state of connector {name} to the config topic"
        ):
            self._configs.put_stop(name, reason)

    def _on_stop_requested(self, name: str, start_number: int, reason: str) -> None:
        """Process the stop request of a task. Tasks repeat the request while they run; only one is
        in progress per connector.
        """
        if name in self._stops or not is_current(self._state(), name, start_number):
            return
        self._stops.add(name)

        def ended(stop: Future[None]) -> None:
            self._stops.discard(name)
            if not stop.cancelled() and stop.exception() is not None:
                log.warning(
                    "failed to stop connector %s as requested by its task: %s",
                    name,
                    stop.exception(),
                )

        self._request_stop(name, start_number, reason).add_done_callback(ended)

    @abstractmethod
    def _request_stop(self, name: str, start_number: int, reason: str) -> Future[None]:
        """Call `_stop_as_requested` on the worker that writes changes: this one or the leader."""

    def _stop_as_requested(self, name: str, start_number: int, reason: str) -> None:
        """Stop a connector unless it was changed, stopped, paused, or removed meanwhile. Called
        where changes are written.
        """
        if is_current(self._state(), name, start_number):
            log.info(
                "stopping connector %s as requested by its task: %s",
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
    """Return the error message for an invalid configuration; each error names its key."""
    lines = [
        f"Connector configuration is invalid and contains the following {infos.error_count} "
        f"error(s):"
    ]
    values = [config.value for config in infos.configs if config.value is not None]
    lines += [
        error if value.name in error else f"{value.name}: {error}"
        for value in values
        for error in value.errors
    ]
    # the braces are part of the message
    endpoint = "`/connector-plugins/{connectorType}/config/validate`"
    lines.append(f"You can also find the above list of errors at the endpoint {endpoint}")
    return "\n".join(lines)
