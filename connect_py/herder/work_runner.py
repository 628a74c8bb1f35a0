"""`WorkRunner`: carries out the work plan on this worker, and publishes the task sets of its
connectors."""

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
from connect_py.herder import task_set
from connect_py.herder.config_reload import ConfigReload
from connect_py.herder.herder import BadRequestError
from connect_py.herder.request_queue import RequestQueue
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.herder.work_plan import (
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
class _Question:
    """What a connector was asked; `again` when it has news that its answer may not hold yet."""

    config_offset: int
    again: bool = False
    waiting: list[Future[None]] = field(default_factory=list)  # for the outcome


class WorkRunner:
    """Belongs to the herder's thread: all methods are called there, and completions come back
    through the queue.

    A member of a group runs what is `assigned` to it, starts what it can `claim`, and sets
    `publish`.
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
        """Prepare. `on_stopped` is called when tasks of a connector, or all of it, have ended for
        good."""
        self._worker = worker
        self._configs = configs
        self._publisher = publisher
        self._resolver = resolver
        self._queue = queue
        self._on_stopped = on_stopped
        self._requested: dict[str, RequestedWork] = {}
        self._asked: dict[str, _Question] = {}  # connectors that divide their work just now
        self._starts: dict[str, Future[None]] = {}  # the last of each connector that is held
        self._reload = ConfigReload(resolver, queue, self._restart_all)
        self.assigned: Set[Item] | None = None  # what this worker may run; None: everything
        # which of these may be started at this moment
        self.claim: Callable[[Items], Items] = lambda items: items
        self.publish: Callable[[str, Sequence[Mapping[str, str]]], Future[None]] = (
            self._publish_here
        )
        # hears what may be running here, after every change
        self.on_running: Callable[[Items], None] = lambda _: None

    def reconcile(self) -> int:
        """Start and stop what the config topic asks for; returns the number of actions."""
        state = self._configs.snapshot()
        actions = plan(state, self._requested, self.assigned)
        for action in actions:
            self._run(action, state)
        self.on_running(self.running_items())
        return len(actions)

    def running(self) -> tuple[list[str], list[ConnectorTaskId]]:
        """Connectors and tasks that the worker was asked to run, and those that have not stopped
        yet."""
        connectors = [
            name for name in sorted(self._requested) if self._requested[name].config_offset >= 0
        ]
        return connectors, [
            task for name in sorted(self._requested) for task in sorted(self._requested[name].tasks)
        ]

    def running_items(self) -> Items:
        """The same as one set."""
        connectors, tasks = self.running()
        return frozenset((*connectors, *tasks))

    def owns(self, item: Item) -> bool:
        """Whether an item runs here and is not being stopped."""
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
        """Go on, on the herder's thread, however the future ended."""

        def done(ended: Future[None]) -> None:
            error = ended.exception()
            if error is not None:
                log.warning("a stop ended with an error: %s", error)
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
        self._drop_question(name)
        self._stopped(name, requested)

    def _stopped(self, name: str, requested: RequestedWork) -> None:
        if requested.empty:
            del self._requested[name]
        self._on_stopped(name)
        self.reconcile()

    def start_connector(self, name: str, *, restarting: bool = False) -> Future[None]:
        """Start a connector, or start it again; its listener publishes the outcome."""
        self._drop_question(name)  # an earlier life's answer counts no more, should it ever come
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
        """Done when the connector has started, if it is to run, and its tasks are known; fails as
        either failed."""
        outcome: Future[None] = Future()

        def divided() -> None:
            question = self._asked.get(name)
            if question is None:
                outcome.set_result(None)
            else:
                question.waiting.append(outcome)

        def started(start: Future[None]) -> None:
            error = start.exception()
            if error is None:
                # after the question, which the worker's listener has put there
                self._queue.put(divided)
            else:
                outcome.set_exception(error)

        start = self._starts.get(name)
        if start is None:
            outcome.set_result(None)
        else:
            start.add_done_callback(started)
        return outcome

    def _drop_question(self, name: str) -> None:
        """Forget what a connector was asked; who waits for the outcome need not wait."""
        question = self._asked.pop(name, None)
        settle(question.waiting if question else (), None)

    def start_task(self, task: ConnectorTaskId, *, restarting: bool = False) -> None:
        """Start a task of the set in force, or start it again; its listener publishes the
        outcome."""
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
                f"The connector {task.connector} has generated more tasks than tasks.max, which is "
                f"{limit}: task "
                f"{task.task} does not start. Set tasks.max.enforce to false to permit it"
            )

    def _limit(self, config: Mapping[str, str]) -> tuple[int, bool]:
        # nothing else is asked for: a provider may hang
        wanted = ("tasks.max", "tasks.max.enforce")
        resolved = self._resolver.resolve({key: config[key] for key in wanted if key in config})
        limit = parse("tasks.max", resolved.get("tasks.max", "1"), Type.INT)
        return limit, parse(
            "tasks.max.enforce", resolved.get("tasks.max.enforce", "true"), Type.BOOLEAN
        )

    def ask_task_configs(self, name: str, retry_seconds: float = FIRST_RETRY_SECONDS) -> None:
        """Have a running connector divide its work, and publish the answer if it is news; failures
        are retried."""
        state = self._configs.snapshot()
        if (
            name not in state.configs
            or state.target_state(name) is not TargetState.STARTED
            or not self.owns(name)
        ):
            return
        if name in self._asked:
            self._asked[name].again = True
            return
        question = self._asked[name] = _Question(state.config_offsets[name])
        try:
            config = strings(state.configs[name])
            limit, _ = self._limit(config)
            answer = self._worker.task_configs(name, config, limit)
        except ConnectError as error:
            answer = failed(error)
        answer.add_done_callback(
            lambda done: self._queue.put(
                partial(self._task_configs_answered, name, question, done, retry_seconds)
            )
        )

    def _task_configs_answered(
        self,
        name: str,
        question: _Question,
        answer: Future[list[dict[str, str]]],
        retry_seconds: float,
    ) -> None:
        if self._asked.get(name) is not question:
            return
        state = self._configs.snapshot()
        current = (
            state.config_offsets.get(name, -1) == question.config_offset and not question.again
        )
        if not current or state.target_state(name) is not TargetState.STARTED:
            # what was asked is out of date; a deleted one is not asked again
            self._ask_again(name, question)
            return
        error = answer.exception()
        published = self.publish(name, answer.result()) if error is None else failed(error)
        if published.done():
            self._divided(name, question, published, retry_seconds)
        else:
            published.add_done_callback(
                lambda ended: self._queue.put(
                    partial(self._divided, name, question, ended, retry_seconds)
                )
            )

    def _ask_again(self, name: str, question: _Question) -> None:
        del self._asked[name]
        self.ask_task_configs(name)
        if name in self._asked:
            self._asked[name].waiting += question.waiting
        else:
            settle(question.waiting, None)

    def _divided(
        self, name: str, question: _Question, published: Future[None], retry_seconds: float
    ) -> None:
        """A connector has divided its work, and the outcome is published, or either failed."""
        if self._asked.get(name) is not question:
            return
        if question.again:
            self._ask_again(name, question)
            return
        del self._asked[name]
        error = published.exception()
        settle(question.waiting, error)
        stopped = self._configs.snapshot().target_state(name) is TargetState.STOPPED
        if error is None or stopped or isinstance(error, NotFoundError):
            return  # it does not run any more
        if isinstance(error, TooManyTasksError | ConfigError):
            log.error("connector %s fails: %s", name, error)
            self._publisher.on_state(name, State.FAILED, stack_trace(error))
            return
        log.error(
            "connector %s: task configurations failed, again in %.2f s",
            name,
            retry_seconds,
            exc_info=error,
        )
        following = min(2 * retry_seconds, LAST_RETRY_SECONDS)
        self._queue.put(partial(self.ask_task_configs, name, following), retry_seconds)

    def _publish_here(self, name: str, configs: Sequence[Mapping[str, str]]) -> Future[None]:
        try:
            self.publish_task_configs(name, configs)
        except ConnectError as error:
            return failed(error)
        return done(None)

    def publish_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write the task set to the config topic if it is news. NotFoundError, BadRequestError:
        deleted or stopped."""
        state = self._configs.snapshot()
        if name not in state.configs:
            raise NotFoundError(f"Connector {name} not found")
        if configs and state.target_state(name) is TargetState.STOPPED:
            raise BadRequestError(
                f"Cannot submit non-empty set of task configs for stopped connector {name}"
            )
        why = task_set.differs(state, name, configs)
        if why is not None:
            log.info(
                "connector %s: publishing %d task configurations, because %s",
                name,
                len(configs),
                why,
            )
            self._configs.put_task_configs(name, configs)

    def restart(self, name: str, *, connector: bool, tasks: Sequence[ConnectorTaskId]) -> None:
        """Restart what a plan names, as far as it is held here; statuses say so between stop and
        start."""
        if connector and self.owns(name):
            self.start_connector(name, restarting=True)
        for task in tasks:
            if self.owns(task):
                self.start_task(task, restarting=True)

    def _restart_all(self, name: str) -> bool:
        """Restart what is held of a connector here; False when nothing is."""
        tasks = [task for task in self.running()[1] if task.connector == name and self.owns(task)]
        here = self.owns(name)
        self.restart(name, connector=here, tasks=tasks)
        return here or bool(tasks)


def strings(config: Config) -> dict[str, str]:
    """A configuration without nulls.

    Raises:
        ConfigError: With Connect's text, naming the first key that has none.
    """
    for key, value in config.items():
        if value is None:
            raise ConfigError(
                "", f"Non-string value found in original settings for key {key}: null"
            )
    return {key: value for key, value in config.items() if value is not None}
