"""`WorkRunner`: starts and stops connectors and tasks on this worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from connect_py.api.errors import ConnectError
from connect_py.config.config_provider import ConfigResolver
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import failed
from connect_py.herder.connector_configs import without_nulls
from connect_py.herder.local_work.config_reload import ConfigReload
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.herder.local_work.task_config_requests import TaskConfigRequests, TaskLimit
from connect_py.herder.local_work.work_assignment import WorkAssignment
from connect_py.herder.local_work.work_plan import (
    Action,
    RequestedItems,
    SetTarget,
    StartConnector,
    StartTasks,
    StopConnector,
    StopTasks,
    plan,
)
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.model import ConnectorTaskId, State
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.worker.worker import TooManyTasksError, Worker

log = logging.getLogger(__name__)


class WorkRunner:
    """Starts and stops connectors and tasks to match the config topic and the assignment.

    Used only on the herder's thread, which is notified of completions through its queue.
    """

    def __init__(
        self,
        worker: Worker,
        store: ConfigStore,
        publisher: StatusPublisher,
        resolver: ConfigResolver,
        queue: RequestQueue,
        requested: RequestedItems,
        task_configs: TaskConfigRequests,
        assignment: WorkAssignment,
        on_stopped: Callable[[str], None],
    ) -> None:
        """Create the runner.

        `on_stopped` is called with a connector's name when it or some of its tasks have permanently
        stopped.
        """
        self._worker = worker
        self._store = store
        self._publisher = publisher
        self._resolver = resolver
        self._queue = queue
        self._requested = requested
        self._task_configs = task_configs
        self._assignment = assignment
        self._on_stopped = on_stopped
        self._starts: dict[str, Future[None]] = {}  # last start of each requested connector
        self._reload = ConfigReload(resolver, queue, self._restart_all)

    def reconcile(self) -> int:
        """Start and stop connectors and tasks according to the config topic.

        Returns the number of actions.
        """
        state = self._store.snapshot()
        actions = plan(state, self._requested.by_connector(), self._assignment.assigned())
        for action in actions:
            self._run(action, state)
        self._assignment.set_running(self._requested.items())
        return len(actions)

    def _run(self, action: Action, state: ClusterConfigState) -> None:
        work = self._requested.of(action.name)
        if isinstance(action, StartConnector):
            if work.config_offset < 0 and not self._assignment.claim(frozenset((action.name,))):
                return
            work.config_offset = state.config_offsets[action.name]
            work.target = state.target_state(action.name)
            self.start_connector(action.name)
        elif isinstance(action, SetTarget):
            log.info("connector %s: new target state %s", action.name, action.target.value)
            work.target = action.target
            self._worker.set_target_state(action.name, action.target)
        elif isinstance(action, StartTasks):
            if not work.tasks and work.config_offset < 0:
                work.target = state.target_state(action.name)
            claimed = self._assignment.claim(frozenset(action.tasks))
            for task in (task for task in action.tasks if task in claimed):
                work.tasks[task] = state.start_numbers.get(action.name, -1)
                self.start_task(task)
        elif isinstance(action, StopTasks):
            work.stopping.update(action.tasks)
            stopped = self._worker.stop_tasks(action.tasks)
            self._then(stopped, partial(self._tasks_stopped, action.name, action.tasks))
        elif isinstance(action, StopConnector):
            work.leaving = True
            self._then(
                self._worker.stop_connector(action.name),
                partial(self._connector_stopped, action.name),
            )

    def _then(self, future: Future[None], action: Callable[[], None]) -> None:
        """Run an action on the herder's thread after a future has completed or failed."""

        def on_end(ended: Future[None]) -> None:
            error = ended.exception()
            if error is not None:
                log.warning("failed to stop a connector or task: %s", error)
            self._queue.put(action)

        future.add_done_callback(on_end)

    def _tasks_stopped(self, name: str, tasks: Sequence[ConnectorTaskId]) -> None:
        work = self._requested.of(name)
        for task in tasks:
            work.tasks.pop(task, None)
            work.stopping.discard(task)
        self._stopped(name)

    def _connector_stopped(self, name: str) -> None:
        work = self._requested.of(name)
        work.config_offset, work.leaving = -1, False
        self._starts.pop(name, None)
        self._task_configs.drop(name)
        self._stopped(name)

    def _stopped(self, name: str) -> None:
        self._requested.remove_if_empty(name)
        self._on_stopped(name)
        self.reconcile()

    def start_connector(self, name: str, *, restarting: bool = False) -> Future[None]:
        """Start or restart a connector. The listener publishes the outcome."""
        self._task_configs.drop(name)  # the response from the previous instance is obsolete
        state = self._store.snapshot()
        try:
            config = without_nulls(state.configs[name])
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
        """Return a future that completes when a connector is running and its tasks are configured.

        The future fails if the start or the request for task configurations fails.
        """
        outcome: Future[None] = Future()

        def started(start: Future[None]) -> None:
            error = start.exception()
            if error is None:
                # runs after the request for task configurations, which the listener has queued
                self._queue.put(partial(self._task_configs.wait, name, outcome))
            else:
                outcome.set_exception(error)

        start = self._starts.get(name)
        if start is None:
            outcome.set_result(None)
        else:
            start.add_done_callback(started)
        return outcome

    def start_task(self, task: ConnectorTaskId, *, restarting: bool = False) -> None:
        """Start or restart a task in the current task set. The listener publishes the outcome."""
        state = self._store.snapshot()
        try:
            config, connector_config = (
                without_nulls(state.task_configs[task]),
                without_nulls(state.configs[task.connector]),
            )
            self._check_limit(task, connector_config)
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

    def _check_limit(self, task: ConnectorTaskId, config: Mapping[str, str]) -> None:
        limit = TaskLimit.of(config, self._resolver)
        if task.task >= limit.max_tasks and limit.is_enforced:
            raise TooManyTasksError(
                f"The connector {task.connector} has generated more tasks than tasks.max, which "
                f"is {limit.max_tasks}: task {task.task} is not started. Set tasks.max.enforce to "
                "false to allow it"
            )

    def restart(self, name: str, *, connector: bool, tasks: Sequence[ConnectorTaskId]) -> None:
        """Restart a connector, some of its tasks, or both, if they run on this worker.

        Their status is RESTARTING between the stop and the start.
        """
        if connector and self._requested.owns(name):
            self.start_connector(name, restarting=True)
        for task in tasks:
            if self._requested.owns(task):
                self.start_task(task, restarting=True)

    def _restart_all(self, name: str) -> bool:
        """Restart a connector and its tasks on this worker. Return False if none is running."""
        tasks = [task for task in self._requested.tasks(name) if self._requested.owns(task)]
        owns_connector = self._requested.owns(name)
        self.restart(name, connector=owns_connector, tasks=tasks)
        return owns_connector or bool(tasks)
