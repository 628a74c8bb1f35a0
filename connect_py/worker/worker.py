"""`Worker`: runs connectors and tasks on this machine, and reports what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from connect_py.api.config import ConfigKey, ConfigValue, Type, parse
from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.clock import Clock, SystemClock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import failed, mapped, pass_on
from connect_py.kafka.client_config import ClientConfigs
from connect_py.metrics.samples import AnySample
from connect_py.metrics.worker_metrics import WorkerMetrics
from connect_py.model import ConnectorTaskId, State, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.connector_offset_store import ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import (
    TaskSpec,
)
from connect_py.task.topic_creation import TopicCreation
from connect_py.worker.connector_host import ConnectorHost
from connect_py.worker.connector_hosts import ConnectorHosts
from connect_py.worker.connector_messages import (
    CallConnector,
    ConnectorService,
    Define,
    ListServices,
    Operate,
    Question,
    Validate,
)
from connect_py.worker.connector_offsets import ConnectorOffsets
from connect_py.worker.fork_server import ForkServer
from connect_py.worker.measured_listener import MeasuredListener
from connect_py.worker.process_task_host import ProcessTaskHost
from connect_py.worker.producer_fence import fence_producers, why_not_granted
from connect_py.worker.question_threads import QuestionThreads
from connect_py.worker.service_registry import DEFAULT_MAX, MAX_KEY, ServiceRegistry
from connect_py.worker.source_task_session import SourceTaskGate, SourceTaskSession
from connect_py.worker.task_host import TaskHost, TaskNews
from connect_py.worker.task_lives import (
    KILL_SECONDS,
    ConfigResolver,
    Props,
    TaskHostFactory,
    TaskLives,
    TaskSession,
)
from connect_py.worker.worker_listener import WorkerListener

START_THREADS: Final = 8  # starts and stops that may wait at the same time
TOPIC_KEYS: Final = ("topics", "topics.regex")
TASK_CLASS: Final = "task.class"
EXACTLY_ONCE: Final = "exactly.once.source.support"


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectorValidation:
    """What a plugin says about a configuration; plain data (no validators, no recommenders)."""

    definitions: Sequence[ConfigKey]  # in order of definition
    values: Mapping[str, ConfigValue]  # may name keys without definition


class TooManyTasksError(ConnectError):
    """A connector made more task configurations than `tasks.max` allows, and `tasks.max.enforce` is
    on."""

    java_name = "org.apache.kafka.connect.errors.TooManyTasksException"


class Worker:
    """Connectors in one child process, each task in a process of its own.

    Every method may be called from any thread and returns at once; work happens elsewhere and ends
    in a future or in a call of the listener. Configurations come with their placeholders; the
    worker resolves them when it uses them. `offsets` reads and changes what connectors have
    committed.
    """

    def __init__(
        self,
        props: Props,
        *,
        plugins: PluginRegistry,
        listener: WorkerListener,
        resolve: ConfigResolver = dict,
        clock: Clock | None = None,
        source_offsets: OffsetStore | None = None,
        offset_stores: ConnectorOffsetStores | None = None,
        make_task_host: TaskHostFactory | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args: props: The worker's properties, placeholders resolved. plugins: Where classes are
            found by name. listener: Takes the news. resolve: Replaces placeholders in connector and
            task configurations. source_offsets: Where source tasks' offsets are kept; without it
            source tasks fail. offset_stores: The same for requests about offsets of source
            connectors; without it these fail. make_task_host: Where tasks run; in processes unless
            given.
        """
        self._props = dict(props)
        self._plugins = plugins
        self._classes: dict[
            str, Mapping[str, str]
        ] = {}  # of connectors, by the names of Connect's metrics
        self._metrics = WorkerMetrics(lambda name: self._classes.get(name, {}))
        listener = MeasuredListener(listener, self._metrics)
        self._listener = listener
        self._resolve = resolve
        self._clock = clock or SystemClock()
        self._source_offsets = source_offsets
        self._offset_stores = offset_stores
        # the herder's; without it no source task writes in transactions
        self.gate: SourceTaskGate | None = None
        self._silence_seconds = int(self._props.get("session.timeout.ms", 10_000)) / 1000
        self._server = ForkServer(plugins.preload())
        self._services = ServiceRegistry(int(self._props.get(MAX_KEY, DEFAULT_MAX)), self._clock)
        self._connectors = ConnectorHosts(
            lambda location: ConnectorHost(
                self._server,
                plugins,
                listener,
                self._clock,
                self._silence_seconds,
                self._props,
                lambda label: self._services.user(label, location),
            ),
            plugins,
        )
        self.offsets = ConnectorOffsets(
            self._props, plugins, self._connectors, offset_stores, resolve, self._clock
        )
        self._executor = ThreadPoolExecutor(START_THREADS, "StartAndStopExecutor")
        self._questions = QuestionThreads()
        graceful_seconds = int(self._props.get("task.shutdown.graceful.timeout.ms", 5_000)) / 1000
        self._tasks = TaskLives(
            self._executor,
            listener,
            self._metrics,
            self._clock,
            resolve,
            graceful_seconds,
            make_task_host or self._process_host,
            self._session,
        )

    def _process_host(self, spec: TaskSpec, tell: TaskNews) -> TaskHost:
        return ProcessTaskHost(spec, tell, self._server, self._clock, self._silence_seconds)

    def _session(self, spec: TaskSpec) -> TaskSession:
        """What the worker keeps for a task whose configuration is resolved."""
        offsets = SourceTaskSession(
            spec, self._source_offsets, self._offset_stores, self.gate, self._questions
        )
        user = self._services.user(f"task {spec.id}", self._location(spec.connector_config))
        return TaskSession(offsets, user)

    @property
    def plugins(self) -> PluginRegistry:
        """The plugins that this worker can run."""
        return self._plugins

    def start(self) -> None:
        """Start the connector process and the server that task processes fork from, in the
        background."""
        self._services.start()
        self._server.start()
        self._connectors.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop all tasks, then all connectors, then the processes; the one method that waits.

        Args: timeout: Seconds for all tasks together; `task.shutdown.graceful.timeout.ms` unless
            given.
        """
        self._tasks.end_all(self._tasks.graceful_seconds if timeout is None else timeout)
        wait([self.stop_connector(name) for name in sorted(self._connectors.names())])
        self.offsets.close()
        self._connectors.close(KILL_SECONDS)
        self._services.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._questions.close()

    def start_connector(
        self, name: str, config: Props, target: TargetState, *, restarting: bool = False
    ) -> Future[None]:
        """Start a connector, or hold it ready when its target is PAUSED or STOPPED.

        A connector of that name that runs here is stopped first. The future fails as the
        connector's start failed; the listener has the failure by then. With `restarting` it hears
        of that, once nothing of the earlier runs.
        """
        outcome: Future[None] = Future()
        outcome.set_running_or_notify_cancel()
        self._executor.submit(
            self._start_connector, name, dict(config), target, restarting, outcome
        )
        return outcome

    def _start_connector(
        self, name: str, config: Props, target: TargetState, restarting: bool, outcome: Future[None]
    ) -> None:
        """Waits for the stop of an earlier instance, which is bounded, and not for the start, which
        may hang."""
        try:
            if name in self._connectors.names():
                self.stop_connector(name).result()
            if restarting:
                self._listener.on_state(name, State.RESTARTING)
            self._metrics.starting(name)
            try:
                resolved = self._resolve(config)
                self._look_at(name, resolved)
            except Exception as error:
                self._connectors.holder(name).fail_connector(name, stack_trace(error))
                raise
            started = self._connectors.host_for(resolved).start_connector(name, resolved, target)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            outcome.set_exception(error)
            return
        started.add_done_callback(partial(pass_on, outcome))

    def _look_at(self, name: str, config: Props) -> None:
        """Note what the connector is; ConfigError for topic creation rules that make no sense.

        Validation does not look at those, as in Java.
        """
        plugin = self._plugins.connector_of(config)
        self._classes[name] = {
            "connector-class": plugin.name,
            "connector-type": plugin.kind.value,
            "connector-version": self._plugins.version(plugin) or "unknown",
        }
        if plugin.kind is PluginKind.SOURCE:
            TopicCreation.parse(config)

    def prestart_services(self, configs: Mapping[str, Props]) -> None:
        """Start the shared services of connectors, by name, that this worker may soon run; best
        effort.

        A service that no task has requested after ten minutes stops.
        """
        if configs:
            self._executor.submit(self._ask_for_services, dict(configs))

    def _ask_for_services(self, configs: Mapping[str, Props]) -> None:
        """Resolve the configurations, which may take long, and ask the processes that have the
        classes."""
        connectors: dict[str | None, list[tuple[str, Plugin, Props]]] = {}
        for name, config in configs.items():
            try:
                props = self._resolve(config)
                plugin = self._plugins.connector_of(props)
            except Exception as error:  # noqa: BLE001 - a provider may raise anything; the connector's start reports it
                log.warning("services of connector %s are not started early: %s", name, error)
                continue
            connectors.setdefault(plugin.location, []).append((name, plugin, props))
        for location, group in connectors.items():
            self._connectors.host_of(location).ask(ListServices, group).add_done_callback(
                partial(self._start_listed_services, location)
            )

    def _start_listed_services(
        self, location: str | None, answer: Future[list[ConnectorService]]
    ) -> None:
        if (error := answer.exception()) is not None:
            log.warning("services are not started early: %s", error)
            return
        for each in answer.result():
            try:
                self._services.prestart(
                    self._services.user(f"connector {each.connector}", location), each.service
                )
            except ConnectError as refusal:
                log.warning(
                    "services of connector %s are not started early: %s", each.connector, refusal
                )

    def stop_connector(self, name: str) -> Future[None]:
        """Stop a connector and forget it; it has 5 s. Done at once when it does not run here."""
        return self._connectors.holder(name).stop_connector(name)

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Tell the connector and the tasks of that name that run here; the listener hears when they
        noticed.

        STOPPED means nothing to tasks: a caller that wants them stopped calls `stop_tasks`.
        """
        self._connectors.holder(name).set_target_state(name, target)
        if target is TargetState.STOPPED:
            return
        self._tasks.set_target_state(name, target)

    def task_configs(
        self, name: str, config: Props, max_tasks: int
    ) -> Future[list[dict[str, str]]]:
        """Ask the running connector to divide its work, once; retrying is the caller's.

        `config` is the connector's own, unresolved: values that the connector merely copied come
        back as the placeholders they were, and `task.class` is added. Sinks also inherit `topics`
        and `topics.regex`.

        Errors: NotFoundError (does not run here), TooManyTasksError (see there), what the connector
        raised.
        """
        answer = self._connectors.holder(name).task_configs(name, max_tasks)
        return mapped(
            answer, lambda made: self._finished_task_configs(name, config, max_tasks, made)
        )

    def _finished_task_configs(
        self, name: str, config: Props, max_tasks: int, made: Sequence[Mapping[str, str]]
    ) -> list[dict[str, str]]:
        resolved = self._resolve(config)
        if len(made) > max_tasks:
            text = (
                f"The connector {name} has generated {len(made)} tasks, which is greater than "
                f"{max_tasks}, the maximum number of tasks it is configured to create."
            )
            if parse("tasks.max.enforce", resolved.get("tasks.max.enforce", "true"), Type.BOOLEAN):
                raise TooManyTasksError(f"{text} Set tasks.max.enforce to false to permit it.")
            log.warning("%s It is permitted because tasks.max.enforce is false.", text)
        plugin = self._plugins.connector_of(resolved)
        extra = {TASK_CLASS: plugin.task_class or plugin.python}
        if plugin.kind is PluginKind.SINK:
            extra |= {key: resolved[key] for key in TOPIC_KEYS if resolved.get(key)}
        placeholders = {key: text for key, text in config.items() if resolved.get(key) != text}
        finished = []
        for task_config in made:
            whole = {
                key: value for key, value in {**task_config, **extra}.items() if value is not None
            }
            for key, placeholder in placeholders.items():
                if whole.get(key) == resolved.get(key):
                    whole[key] = placeholder  # stored and shown as the user wrote it
            finished.append(whole)
        return finished

    def start_task(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
        connector_config: Props,
        task_config: Props,
        target: TargetState,
        start_number: int,
        *,
        restarting: bool = False,
    ) -> None:
        """Start a task in a process of its own; the listener hears of its start or failure.

        A task of that id that runs here is stopped first. `start_number` is the config topic offset
        of the record that last started or changed the connector. `restarting` as for connectors.
        """
        props = self._props if self.gate is not None else {**self._props, EXACTLY_ONCE: "disabled"}
        spec = TaskSpec(
            id,
            props,
            dict(connector_config),
            dict(task_config),
            target,
            start_number,
            self._plugins.tables,
        )
        self._tasks.start(spec, restarting=restarting)

    def _location(self, config: Props) -> str | None:
        """The folder of `plugin.path` that a connector lies in, if any."""
        try:
            return self._plugins.connector_of(config).location
        except ConnectError:
            return None  # the task's process says what is wrong

    def stop_tasks(self, ids: Iterable[ConnectorTaskId]) -> Future[None]:
        """Ask all of these to stop at once; cancel what is left after
        `task.shutdown.graceful.timeout.ms`.

        Done when none of them runs any more, however it ended.
        """
        return self._tasks.stop(ids)

    def running_connectors(self) -> frozenset[str]:
        """Names of the connectors that this worker holds, failed, paused and stopped ones
        included."""
        return self._connectors.names()

    def running_tasks(self) -> frozenset[ConnectorTaskId]:
        """The tasks that this worker holds: started and neither ended as asked nor cancelled;
        failed ones included."""
        return self._tasks.ids()

    def validate_connector(
        self, class_name: str, props: Mapping[str, str | None]
    ) -> Future[ConnectorValidation]:
        """Have a connector class check a configuration (placeholders resolved by the caller).

        Only the connector's own keys: the framework's, converters' and transformations' are the
        caller's.

        Errors: UnknownPluginError and AmbiguousPluginError from the look-up, what `validate`
        raised.
        """
        try:
            plugin = self._plugins.find_connector(class_name, props.get("connector.plugin.version"))
        except ConnectError as error:
            return failed(error)
        return self.validate_plugin(plugin, props)

    def validate_plugin(
        self, plugin: Plugin, props: Mapping[str, str | None]
    ) -> Future[ConnectorValidation]:
        """Check properties, prefix cut off, against the definitions of a converter, transformation
        or predicate."""
        return mapped(
            self._ask(Validate, plugin, dict(props)), lambda answer: ConnectorValidation(*answer)
        )

    def plugin_definitions(self, plugin: Plugin) -> Future[list[ConfigKey]]:
        """The keys that a plugin defines, in order, without validators and recommenders."""
        return mapped(self._ask(Define, plugin), list)

    def call_connector(self, plugin: Plugin, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of a fresh, not started instance of a connector, of this version, with
        plain arguments.

        For questions about a connector that does not run. Errors: what the method raised;
        ConnectError for what cannot travel.
        """
        return self._ask(CallConnector, plugin, method, arguments)

    def operate(
        self, name: str, config: Props, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        """Have a connector's class do what only it can; `config` with placeholders. Errors: see
        `Connector.operate`."""
        props = dict(self._resolve(config))
        return self._ask(
            Operate, self._plugins.connector_of(config), name, props, operation, dict(arguments)
        )

    def start_operation(
        self,
        name: str,
        config: Props,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
    ) -> tuple[Future[Any], Callable[[], None]]:
        """Start an operation whose steps are shown; return its answer and a function that cancels
        it."""
        props, plugin = dict(self._resolve(config)), self._plugins.connector_of(config)
        host = self._connectors.host_of(plugin.location)
        return host.operate(progress, plugin, name, props, operation, dict(arguments))

    def _ask(self, question: Question, plugin: Plugin, *arguments: Any) -> Future[Any]:
        return self._connectors.host_of(plugin.location).ask(question, plugin, *arguments)

    def fence_producers(self, name: str, config: Props, count: int) -> Future[None]:
        """Have the producers of a source's tasks 0 to `count - 1` write no more; ConnectError in
        the future."""

        def fence() -> None:
            fence_producers(ClientConfigs(self._props, self._resolve(config), name), count)

        try:
            return self._questions.enter(name).submit(fence)
        finally:
            self._questions.leave(name)

    def why_not_granted(
        self, name: str, config: Props, transactional_id: str
    ) -> Future[str | None]:
        """Why a connector's producers may not have a transactional id; None: they may, or it is not
        known."""
        clients = ClientConfigs(self._props, self._resolve(config), name)
        try:
            return self._questions.enter(name).submit(why_not_granted, clients, transactional_id)
        finally:
            self._questions.leave(name)

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change levels in all child processes, and in those to come; "" is the root, None takes a
        level away."""
        self._connectors.set_log_levels(levels)
        self._tasks.set_log_levels(levels)

    def extend_lease(self, until: float | None) -> None:
        """Say by when connectors and tasks must have ended by themselves, on the machine's
        monotonic clock.

        Their processes see to that, so that it also holds while this one sleeps. None: there is no
        such time.
        """
        self._connectors.extend_lease(until)
        self._tasks.extend_lease(until)

    def metrics(self) -> list[AnySample]:
        """The measurements of this worker, and the latest of its connectors and tasks."""
        samples = self._metrics.samples(self._tasks.reports(), self._connectors.names())
        return [*samples, *self._services.samples()]
