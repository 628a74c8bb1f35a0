"""`WorkRunner`: executes the work plan on this worker, and publishes the task sets of its
connectors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from connect_py.api.config import Type, parse
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.config.config_provider import ConfigResolver
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import done, failed, settle
from connect_py.herder.herder import BadRequestError
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.work import task_set
from connect_py.herder.work.config_reload import ConfigReload
from connect_py.herder.work.status_publisher import StatusPublisher
from connect_py.herder.work.work_plan import (
    Action,
    RequestedWork,
    SetTarget,
    StartConnector,
    StartTasks,
    StopConnector,
    StopTasks,
    plan,
)
from connect_py.model import ConnectorTaskId, State, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import Item, Items
from connect_py.worker.worker import TooManyTasksError, Worker

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.25
LAST_RETRY_SECONDS = 60.0

Config: TypeAlias = Mapping[str, str | None]


@dataclass(slots=True, eq=False)
class _TaskConfigsRequest:
    """A pending request for task configurations. `again` is set if the answer may already be
    outdated.
    """

    config_offset: int
    again: bool = False
    # futures that complete with the outcome
    waiting: list[Future[None]] = field(default_factory=list)


class WorkRunner:
    """Starts and stops connectors and tasks. All methods run on the herder's thread; completions
    arrive through its queue.

    In a group, the herder sets `assigned`, `claim`, and `publish`.
    """

    def __init__(
        self,
        worker: Worker,
        configs: ConfigStore,
        publisher: StatusPublisher,
        resolver: ConfigResolver,
        queue: RequestQueue,
        on_stopped: Callable[[str], None],
    ) -> None:
        """Create the runner. `on_stopped` is called when tasks of a connector, or the connector,
        have ended permanently.
        """
        self._worker = worker
        self._configs = configs
        self._publisher = publisher
        self._resolver = resolver
        self._queue = queue
        self._on_stopped = on_stopped
        self._requested: dict[str, RequestedWork] = {}
        # connectors with a pending request for task configurations
        self._requests: dict[str, _TaskConfigsRequest] = {}
        self._starts: dict[str, Future[None]] = {}  # last start of each requested connector
        self._reload = ConfigReload(resolver, queue, self._restart_all)
        self.assigned: Set[Item] | None = None  # items that this worker may run; None: all
        # returns the items that may be started now
        self.claim: Callable[[Items], Items] = lambda items: items
        self.publish: Callable[[str, Sequence[Mapping[str, str]]], Future[None]] = (
            self._publish_here
        )
        # receives the items that may be running here after every change
        self.on_running: Callable[[Items], None] = lambda _: None

    def reconcile(self) -> int:
        """Start and stop items according to the config topic. Return the number of actions."""
        state = self._configs.snapshot()
        actions = plan(state, self._requested, self.assigned)
        for action in actions:
            self._run(action, state)
        self.on_running(self.running_items())
        return len(actions)

    def running(self) -> tuple[list[str], list[ConnectorTaskId]]:
        """Return the connectors and tasks that were requested or have not stopped yet."""
        connectors = [
            name for name in sorted(self._requested) if self._requested[name].config_offset >= 0
        ]
        return connectors, [
            task for name in sorted(self._requested) for task in sorted(self._requested[name].tasks)
        ]

    def running_items(self) -> Items:
        """Return the connectors and tasks of `running` as one set."""
        connectors, tasks = self.running()
        return frozenset((*connectors, *tasks))

    def owns(self, item: Item) -> bool:
        """Return True if an item runs here and is not being stopped."""
        requested = self._requested.get(
            item.connector if isinstance(item, ConnectorTaskId) else item
        )
        if requested is None:
            return False
        if isinstance(item, ConnectorTaskId):
            return item in requested.tasks and item not in requested.stopping
        return requested.config_offset >= 0 and not requested.leaving

    def _run(self, action: Action, state: ClusterConfigState) -> None:
        requested = self._requested.setdefault(action.name, RequestedWork())
        if isinstance(action, StartConnector):
            if requested.config_offset < 0 and not self.claim(frozenset((action.name,))):
                return
            requested.config_offset = state.config_offsets[action.name]
            requested.target = state.target_state(action.name)
            self.start_connector(action.name)
        elif isinstance(action, SetTarget):
            log.info("connector %s: target state is now %s", action.name, action.target.value)
            requested.target = action.target
            self._worker.set_target_state(action.name, action.target)
        elif isinstance(action, StartTasks):
            if not requested.tasks and requested.config_offset < 0:
                requested.target = state.target_state(action.name)
            claimed = self.claim(frozenset(action.tasks))
            for task in (task for task in action.tasks if task in claimed):
                requested.tasks[task] = state.start_numbers.get(action.name, -1)
                self.start_task(task)
        elif isinstance(action, StopTasks):
            requested.stopping.update(action.tasks)
            stopped = self._worker.stop_tasks(action.tasks)
            self._then(stopped, partial(self._tasks_stopped, action.name, action.tasks))
        elif isinstance(action, StopConnector):
            requested.leaving = True
            self._then(
                self._worker.stop_connector(action.name),
                partial(self._connector_stopped, action.name),
            )

    def _then(self, future: Future[None], action: Callable[[], None]) -> None:
        """Run an action on the herder's thread after a future has completed or failed."""

        def done(ended: Future[None]) -> None:
            error = ended.exception()
            if error is not None:
                log.warning("error while stopping: %s", error)
            self._queue.put(action)

        future.add_done_callback(done)

    def _tasks_stopped(self, name: str, tasks: Sequence[ConnectorTaskId]) -> None:
        requested = self._requested[name]
        for task in tasks:
            requested.tasks.pop(task, None)
            requested.stopping.discard(task)
        self._stopped(name, requested)

    def _connector_stopped(self, name: str) -> None:
        requested = self._requested[name]
        requested.config_offset, requested.leaving = -1, False
        self._starts.pop(name, None)
        self._drop_request(name)
        self._stopped(name, requested)

    def _stopped(self, name: str, requested: RequestedWork) -> None:
        if requested.empty:
            del self._requested[name]
        self._on_stopped(name)
        self.reconcile()

    def start_connector(self, name: str, *, restarting: bool = False) -> Future[None]:
        """Start or restart a connector. The listener publishes the outcome."""
        self._drop_request(name)  # the answer of the previous instance is obsolete
        state = self._configs.snapshot()
        try:
            config = strings(state.configs[name])
        except ConnectError as error:
            self._publisher.on_state(name, State.FAILED, stack_trace(error))
            return failed(error)
        log.info("starting connector %s with target state %s", name, state.target_state(name).value)
        self._reload.watch(name, config)
        started = self._starts[name] = self._worker.start_connector(
            name, config, state.target_state(name), restarting=restarting
        )
        return started

    def settled(self, name: str) -> Future[None]:
        """Return a future that completes when the connector has started, if it should run, and its
        tasks are known.

        It fails if either step fails.
        """
        outcome: Future[None] = Future()

        def wait_for_tasks() -> None:
            request = self._requests.get(name)
            if request is None:
                outcome.set_result(None)
            else:
                request.waiting.append(outcome)

        def started(start: Future[None]) -> None:
            error = start.exception()
            if error is None:
                # after the request, which the worker's listener has queued
                self._queue.put(wait_for_tasks)
            else:
                outcome.set_exception(error)

        start = self._starts.get(name)
        if start is None:
            outcome.set_result(None)
        else:
            start.add_done_callback(started)
        return outcome

    def _drop_request(self, name: str) -> None:
        """Drop a pending request for task configurations, and complete the futures that wait for
        it.
        """
        request = self._requests.pop(name, None)
        settle(request.waiting if request else (), None)

    def start_task(self, task: ConnectorTaskId, *, restarting: bool = False) -> None:
        """Start or restart a task of the current set. The listener publishes the outcome."""
        state = self._configs.snapshot()
        try:
            config, connector_config = (
                strings(state.task_configs[task]),
                strings(state.configs[task.connector]),
            )
            self._check_count(task, connector_config)
        except ConnectError as error:
            self._publisher.on_state(task, State.FAILED, stack_trace(error))
            return
        log.info("starting task %s", task)
        self._reload.watch(task.connector, connector_config)
        self._worker.start_task(
            task,
            connector_config,
            config,
            state.target_state(task.connector),
            state.start_numbers.get(task.connector, 0),
            restarting=restarting,
        )

    def _check_count(self, task: ConnectorTaskId, config: Mapping[str, str]) -> None:
        limit, enforced = self._limit(config)
        if task.task >= limit and enforced:
            raise TooManyTasksError(
                f"The connector {task.connector} has generated more tasks than tasks.max, which "
                f"is {limit}: task {task.task} is not started. Set tasks.max.enforce to false "
                "to allow it"
            )

    def _limit(self, config: Mapping[str, str]) -> tuple[int, bool]:
        # resolve only these keys: a config provider may hang
        keys = ("tasks.max", "tasks.max.enforce")
        resolved = self._resolver.resolve({key: config[key] for key in keys if key in config})
        limit = parse("tasks.max", resolved.get("tasks.max", "1"), Type.INT)
        return limit, parse(
            "tasks.max.enforce", resolved.get("tasks.max.enforce", "true"), Type.BOOLEAN
        )

    def request_task_configs(self, name: str, retry_seconds: float = FIRST_RETRY_SECONDS) -> None:
        """Request the task configurations of a running connector, and publish them if they have
        changed. Failures are retried.
        """
        state = self._configs.snapshot()
        if (
            name not in state.configs
            or state.target_state(name) is not TargetState.STARTED
            or not self.owns(name)
        ):
            return
        if name in self._requests:
            self._requests[name].again = True
            return
        request = self._requests[name] = _TaskConfigsRequest(state.config_offsets[name])
        try:
            config = strings(state.configs[name])
            limit, _ = self._limit(config)
            answer = self._worker.task_configs(name, config, limit)
        except ConnectError as error:
            answer = failed(error)
        answer.add_done_callback(
            lambda done: self._queue.put(
                partial(self._task_configs_answered, name, request, done, retry_seconds)
            )
        )

    def _task_configs_answered(
        self,
        name: str,
        request: _TaskConfigsRequest,
        answer: Future[list[dict[str, str]]],
        retry_seconds: float,
    ) -> None:
        if self._requests.get(name) is not request:
            return
        state = self._configs.snapshot()
        current = state.config_offsets.get(name, -1) == request.config_offset and not request.again
        if not current or state.target_state(name) is not TargetState.STARTED:
            # the request is outdated; a deleted connector is not asked again
            self._request_again(name, request)
            return
        error = answer.exception()
        published = self.publish(name, answer.result()) if error is None else failed(error)
        if published.done():
            self._finish_request(name, request, published, retry_seconds)
        else:
            published.add_done_callback(
                lambda ended: self._queue.put(
                    partial(self._finish_request, name, request, ended, retry_seconds)
                )
            )

    def _request_again(self, name: str, request: _TaskConfigsRequest) -> None:
        del self._requests[name]
        self.request_task_configs(name)
        if name in self._requests:
            self._requests[name].waiting += request.waiting
        else:
            settle(request.waiting, None)

    def _finish_request(
        self, name: str, request: _TaskConfigsRequest, published: Future[None], retry_seconds: float
    ) -> None:
        """Complete a request after its result was published, or after a failure."""
        if self._requests.get(name) is not request:
            return
        if request.again:
            self._request_again(name, request)
            return
        del self._requests[name]
        error = published.exception()
        settle(request.waiting, error)
        stopped = self._configs.snapshot().target_state(name) is TargetState.STOPPED
        if error is None or stopped or isinstance(error, NotFoundError):
            return  # the connector is not running any more
        if isinstance(error, TooManyTasksError | ConfigError):
            log.error("connector %s failed: %s", name, error)
            self._publisher.on_state(name, State.FAILED, stack_trace(error))
            return
        log.error(
            "connector %s: failed to generate task configurations, retrying in %.2f s",
            name,
            retry_seconds,
            exc_info=error,
        )
        following = min(2 * retry_seconds, LAST_RETRY_SECONDS)
        self._queue.put(partial(self.request_task_configs, name, following), retry_seconds)

    def _publish_here(self, name: str, configs: Sequence[Mapping[str, str]]) -> Future[None]:
        try:
            self.publish_task_configs(name, configs)
        except ConnectError as error:
            return failed(error)
        return done(None)

    def publish_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write the task set to the config topic if it has changed.

        Raises:
            NotFoundError: The connector was deleted.
            BadRequestError: The connector was stopped.
        """
        state = self._configs.snapshot()
        if name not in state.configs:
            raise NotFoundError(f"Connector {name} not found")
        if configs and state.target_state(name) is TargetState.STOPPED:
            raise BadRequestError(
                f"Cannot submit non-empty set of task configs for stopped connector {name}"
            )
        reason = task_set.differs(state, name, configs)
        if reason is not None:
            log.info(
                "connector %s: publishing %d task configurations because %s",
                name,
                len(configs),
                reason,
            )
            self._configs.put_task_configs(name, configs)

    def restart(self, name: str, *, connector: bool, tasks: Sequence[ConnectorTaskId]) -> None:
        """Restart the connector and tasks of a plan that run here. Their status is RESTARTING
        between stop and start.
        """
        if connector and self.owns(name):
            self.start_connector(name, restarting=True)
        for task in tasks:
            if self.owns(task):
                self.start_task(task, restarting=True)

    def _restart_all(self, name: str) -> bool:
        """Restart everything of a connector that runs here. Return False if nothing does."""
        tasks = [task for task in self.running()[1] if task.connector == name and self.owns(task)]
        runs_here = self.owns(name)
        self.restart(name, connector=runs_here, tasks=tasks)
        return runs_here or bool(tasks)


def strings(config: Config) -> dict[str, str]:
    """Return a configuration without nulls.

    Raises:
        ConfigError: With Connect's message for the first key whose value is null.
    """
    for key, value in config.items():
        if value is None:
            raise ConfigError(
                "", f"Non-string value found in original settings for key {key}: null"
            )
    return {key: value for key, value in config.items() if value is not None}
