"""`Worker`: runs connectors and tasks on this machine and reports their states."""

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
from connect_py.process.fork_server import ForkServer
from connect_py.storage.connector_offset_store import ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import (
    TaskSpec,
)
from connect_py.task.source.topic_creation import TopicCreation
from connect_py.worker.connector_host import ConnectorHost
from connect_py.worker.connector_hosts import ConnectorHosts
from connect_py.worker.connector_messages import (
    CallConnector,
    ConnectorService,
    Define,
    ListServices,
    Operate,
    Request,
    Validate,
)
from connect_py.worker.connector_offsets import ConnectorOffsets
from connect_py.worker.measured_listener import MeasuredListener
from connect_py.worker.process_task_host import ProcessTaskHost
from connect_py.worker.producer_fence import fence_producers, why_not_granted
from connect_py.worker.request_threads import RequestThreads
from connect_py.worker.service_registry import DEFAULT_MAX, MAX_KEY, ServiceRegistry
from connect_py.worker.source_task_session import SourceTaskGate, SourceTaskSession
from connect_py.worker.task_host import TaskHost, TaskListener
from connect_py.worker.worker_listener import WorkerListener
from connect_py.worker.worker_tasks import (
    KILL_SECONDS,
    ConfigResolver,
    Props,
    TaskHostFactory,
    TaskSession,
    WorkerTasks,
)

START_THREADS: Final = 8  # maximum number of starts and stops that block concurrently
TOPIC_KEYS: Final = ("topics", "topics.regex")
TASK_CLASS: Final = "task.class"
EXACTLY_ONCE: Final = "exactly.once.source.support"


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectorValidation:
    """Result of validating a plugin configuration. Contains no validators or recommenders."""

    definitions: Sequence[ConfigKey]  # in the order of the plugin's ConfigDef
    values: Mapping[str, ConfigValue]  # may contain keys that are not defined


class TooManyTasksError(ConnectError):
    """A connector generated more tasks than `tasks.max`, and `tasks.max.enforce` is true."""

    java_name = "org.apache.kafka.connect.errors.TooManyTasksException"


class Worker:
    """Runs the connectors in a child process, and each task in its own process.

    The connectors from each `plugin.path` folder share a separate process. All methods are
    thread-safe, and only `stop` blocks: the other methods return a future or notify the listener.
    Configurations are passed unresolved and are resolved when they are used. `offsets` reads and
    changes the committed offsets of connectors.
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
        gate: SourceTaskGate | None = None,
        make_task_host: TaskHostFactory | None = None,
    ) -> None:
        """Create the worker without starting any process.

        Args:
            props: Resolved properties of the worker.
            plugins: Installed plugins.
            listener: Receives events from connectors and tasks.
            resolve: Resolves connector and task configurations.
            clock: Source of time.
            source_offsets: Store for source offsets. If it is None, source tasks fail.
            offset_stores: Stores that handle offset requests for source connectors. If it is None,
                these requests fail.
            gate: Permits source tasks to write in transactions. If it is None, they do not use
                transactions.
            make_task_host: Creates the host of a task. By default, each task runs in its own
                process.
        """
        self._props = dict(props)
        self._plugins = plugins
        # attributes of each connector, named as in Kafka Connect's metrics
        self._classes: dict[str, Mapping[str, str]] = {}
        self._metrics = WorkerMetrics(lambda name: self._classes.get(name, {}))
        listener = MeasuredListener(listener, self._metrics)
        self._listener = listener
        self._resolve = resolve
        self._clock = clock or SystemClock()
        self._source_offsets = source_offsets
        self._offset_stores = offset_stores
        self._gate = gate
        self._liveness_seconds = int(self._props.get("session.timeout.ms", 10_000)) / 1000
        self._server = ForkServer(plugins.preload())
        self._services = ServiceRegistry(int(self._props.get(MAX_KEY, DEFAULT_MAX)), self._clock)
        self._connectors = ConnectorHosts(
            lambda location: ConnectorHost(
                self._server,
                plugins,
                listener,
                self._clock,
                self._liveness_seconds,
                self._props,
                lambda label: self._services.user(label, location),
            ),
            plugins,
        )
        self.offsets = ConnectorOffsets(
            self._props, plugins, self._connectors, offset_stores, resolve, self._clock
        )
        self._executor = ThreadPoolExecutor(START_THREADS, "StartAndStopExecutor")
        self._request_threads = RequestThreads()
        graceful_seconds = int(self._props.get("task.shutdown.graceful.timeout.ms", 5_000)) / 1000
        self._tasks = WorkerTasks(
            self._executor,
            listener,
            self._metrics,
            self._clock,
            resolve,
            graceful_seconds,
            make_task_host or self._process_host,
            self._session,
        )

    def _process_host(self, spec: TaskSpec, on_message: TaskListener) -> TaskHost:
        return ProcessTaskHost(spec, on_message, self._server, self._clock, self._liveness_seconds)

    def _session(self, spec: TaskSpec) -> TaskSession:
        """Create the session for a task whose configuration has been resolved."""
        offsets = SourceTaskSession(
            spec, self._source_offsets, self._offset_stores, self._gate, self._request_threads
        )
        user = self._services.user(f"task {spec.id}", self._location(spec.connector_config))
        return TaskSession(offsets, user)

    @property
    def plugins(self) -> PluginRegistry:
        """Plugins that this worker can run."""
        return self._plugins

    def start(self) -> None:
        """Start the connector process and the fork server in the background."""
        self._server.start()
        self._connectors.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop all tasks, then all connectors, and then the processes. Blocks.

        Args:
            timeout: Total time for stopping the tasks, in seconds. The default is
                `task.shutdown.graceful.timeout.ms`.
        """
        self._tasks.end_all(self._tasks.graceful_seconds if timeout is None else timeout)
        wait([self.stop_connector(name) for name in sorted(self._connectors.names())])
        self.offsets.close()
        self._connectors.close(KILL_SECONDS)
        self._services.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._request_threads.close()

    def start_connector(
        self, name: str, config: Props, target: TargetState, *, restarting: bool = False
    ) -> Future[None]:
        """Start a connector, or only initialize it if its target state is PAUSED or STOPPED.

        A running connector with the same name is stopped first. If the start fails, the listener is
        notified, and then the future fails. If `restarting` is true, the listener is notified when
        the previous instance has stopped.
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
        """Stop the previous instance and start the new one.

        Does not wait for the start to complete, because it may hang.
        """
        try:
            if name in self._connectors.names():
                self.stop_connector(name).result()
            if restarting:
                self._listener.on_state(name, State.RESTARTING)
            self._metrics.starting(name)
            try:
                resolved = self._resolve(config)
                self._check_connector(name, resolved)
            except Exception as error:
                self._connectors.holder(name).fail_connector(name, stack_trace(error))
                raise
            started = self._connectors.host_for(resolved).start_connector(name, resolved, target)
        except Exception as error:  # noqa: BLE001 - set on the caller's future
            outcome.set_exception(error)
            return
        started.add_done_callback(partial(pass_on, outcome))

    def _check_connector(self, name: str, config: Props) -> None:
        """Record the connector's attributes, and check its topic creation rules.

        As in Java, validation does not check the rules, so they are checked here.

        Raises:
            ConfigError: The topic creation rules are invalid.
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
        """Start the shared services of connectors that this worker may soon run.

        A service stops after ten minutes if no task has requested it. Failures are only logged.
        """
        if configs:
            self._executor.submit(self._request_services, dict(configs))

    def _request_services(self, configs: Mapping[str, Props]) -> None:
        """Resolve the configurations and list the services in the connector processes.

        May be slow.
        """
        connectors: dict[str | None, list[tuple[str, Plugin, Props]]] = {}
        for name, config in configs.items():
            try:
                props = self._resolve(config)
                plugin = self._plugins.connector_of(props)
            except Exception as error:  # noqa: BLE001 - a provider may raise any error; the start of the connector reports it
                log.warning(
                    "failed to list the services of connector %s in advance: %s", name, error
                )
                continue
            connectors.setdefault(plugin.location, []).append((name, plugin, props))
        for location, group in connectors.items():
            self._connectors.host_of(location).request(ListServices(group)).add_done_callback(
                partial(self._start_listed_services, location)
            )

    def _start_listed_services(
        self, location: str | None, response: Future[list[ConnectorService]]
    ) -> None:
        if (error := response.exception()) is not None:
            log.warning("failed to list services in advance: %s", error)
            return
        for each in response.result():
            try:
                self._services.prestart(
                    self._services.user(f"connector {each.connector}", location), each.service
                )
            except ConnectError as start_error:
                log.warning(
                    "failed to start a service for connector %s in advance: %s",
                    each.connector,
                    start_error,
                )

    def stop_connector(self, name: str) -> Future[None]:
        """Stop a connector and remove it. The future completes within 5 s.

        It completes immediately if the connector is not running on this worker.
        """
        return self._connectors.holder(name).stop_connector(name)

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Set the target state of a connector and its tasks on this worker.

        The listener is notified when they have reached it. STOPPED does not affect tasks; the
        caller must call `stop_tasks`.
        """
        self._connectors.holder(name).set_target_state(name, target)
        if target is TargetState.STOPPED:
            return
        self._tasks.set_target_state(name, target)

    def task_configs(
        self, name: str, config: Props, max_tasks: int
    ) -> Future[list[dict[str, str]]]:
        """Request the task configurations of a running connector. The caller retries on failure.

        `config` is the connector's unresolved configuration. If a task configuration contains the
        resolved value of a connector key, the result contains that key's placeholder instead.
        `task.class` is added, and for sinks also `topics` and `topics.regex`.

        Errors: NotFoundError (the connector is not running on this worker), TooManyTasksError, and
        any error from the connector.
        """
        response = self._connectors.holder(name).task_configs(name, max_tasks)
        return mapped(
            response,
            lambda task_configs: self._finished_task_configs(name, config, max_tasks, task_configs),
        )

    def _finished_task_configs(
        self, name: str, config: Props, max_tasks: int, task_configs: Sequence[Mapping[str, str]]
    ) -> list[dict[str, str]]:
        resolved = self._resolve(config)
        if len(task_configs) > max_tasks:
            message = (
                f"The connector {name} has generated {len(task_configs)} tasks, "
                f"which is greater than {max_tasks}, "
                "the maximum number of tasks it is configured to create."
            )
            if parse("tasks.max.enforce", resolved.get("tasks.max.enforce", "true"), Type.BOOLEAN):
                raise TooManyTasksError(f"{message} Set tasks.max.enforce to false to allow it.")
            log.warning("%s This is allowed because tasks.max.enforce is false.", message)
        plugin = self._plugins.connector_of(resolved)
        extra = {TASK_CLASS: plugin.task_class or plugin.python}
        if plugin.kind is PluginKind.SINK:
            extra |= {key: resolved[key] for key in TOPIC_KEYS if resolved.get(key)}
        placeholders = {
            key: message for key, message in config.items() if resolved.get(key) != message
        }
        finished = []
        for task_config in task_configs:
            whole = {
                key: value for key, value in {**task_config, **extra}.items() if value is not None
            }
            for key, placeholder in placeholders.items():
                if whole.get(key) == resolved.get(key):
                    whole[key] = placeholder  # resolved values must not be stored
            finished.append(whole)
        return finished

    def start_task(
        self,
        id: ConnectorTaskId,  # noqa: A002 - named as in Kafka Connect
        connector_config: Props,
        task_config: Props,
        target: TargetState,
        start_number: int,
        *,
        restarting: bool = False,
    ) -> None:
        """Start a task in its own process. The listener is notified of its start or failure.

        A running task with the same ID is stopped first. `start_number` is the config topic offset
        of the record that last started or changed the connector. `restarting` has the same meaning
        as for `start_connector`.
        """
        props = self._props if self._gate is not None else {**self._props, EXACTLY_ONCE: "disabled"}
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
        """Return the `plugin.path` folder of a connector, or None."""
        try:
            return self._plugins.connector_of(config).location
        except ConnectError:
            return None  # the process of the task reports the error

    def stop_tasks(self, ids: Iterable[ConnectorTaskId]) -> Future[None]:
        """Stop tasks, and cancel those still running after `task.shutdown.graceful.timeout.ms`.

        The future completes when none of them is running.
        """
        return self._tasks.stop(ids)

    def running_connectors(self) -> frozenset[str]:
        """Return the connectors on this worker, including failed, paused, and stopped ones."""
        return self._connectors.names()

    def running_tasks(self) -> frozenset[ConnectorTaskId]:
        """Return the tasks on this worker, including failed tasks.

        Tasks that have been stopped or canceled are not included.
        """
        return self._tasks.ids()

    def validate_connector(
        self, class_name: str, props: Mapping[str, str | None]
    ) -> Future[ConnectorValidation]:
        """Validate a resolved configuration with a connector class.

        Validates only the connector's own keys. The caller validates the keys of the framework, the
        converters, and the transformations.

        Errors: UnknownPluginError, AmbiguousPluginError, and any error from `validate`.
        """
        try:
            plugin = self._plugins.find_connector(class_name, props.get("connector.plugin.version"))
        except ConnectError as error:
            return failed(error)
        return self.validate_plugin(plugin, props)

    def validate_plugin(
        self, plugin: Plugin, props: Mapping[str, str | None]
    ) -> Future[ConnectorValidation]:
        """Validate the properties of a converter, transformation, or predicate.

        The property names have no prefix.
        """
        return mapped(
            self._request(plugin, Validate(plugin, dict(props))),
            lambda response: ConnectorValidation(*response),
        )

    def plugin_definitions(self, plugin: Plugin) -> Future[list[ConfigKey]]:
        """Return the config keys of a plugin, in order and without validators or recommenders."""
        return mapped(self._request(plugin, Define(plugin)), list)

    def call_connector(self, plugin: Plugin, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of a new connector instance. The arguments must be plain data.

        Used for requests that do not need a running connector. Errors: any error that the method
        raises, converted to ConnectError if it cannot be pickled.
        """
        return self._request(plugin, CallConnector(plugin, method, arguments))

    def operate(
        self, name: str, config: Props, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        """Run a connector operation. `config` is the connector's unresolved configuration.

        The future fails with the same errors as `Connector.operate`.
        """
        request = self._operation(name, config, operation, arguments)
        return self._request(request.plugin, request)

    def start_operation(
        self,
        name: str,
        config: Props,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
    ) -> tuple[Future[Any], Callable[[], None]]:
        """Start an operation, and call `progress` with each step that it reports.

        Returns a future for the result, and a function that cancels the operation.
        """
        request = self._operation(name, config, operation, arguments)
        return self._connectors.host_of(request.plugin.location).operate(request, progress)

    def _operation(
        self, name: str, config: Props, operation: str, arguments: Mapping[str, Any]
    ) -> Operate:
        props = dict(self._resolve(config))
        plugin = self._plugins.connector_of(config)
        return Operate(plugin, name, props, operation, dict(arguments))

    def _request(self, plugin: Plugin, request: Request) -> Future[Any]:
        return self._connectors.host_of(plugin.location).request(request)

    def fence_producers(self, name: str, config: Props, count: int) -> Future[None]:
        """Fence the producers of tasks 0 to `count - 1` of a source connector."""

        def fence() -> None:
            fence_producers(ClientConfigs(self._props, self._resolve(config), name), count)

        try:
            return self._request_threads.enter(name).submit(fence)
        finally:
            self._request_threads.leave(name)

    def why_not_granted(
        self, name: str, config: Props, transactional_id: str
    ) -> Future[str | None]:
        """Return the reason why a connector's producers may not use a transactional ID.

        The result is None if they may use it, or if the cluster does not respond.
        """
        clients = ClientConfigs(self._props, self._resolve(config), name)
        try:
            return self._request_threads.enter(name).submit(
                why_not_granted, clients, transactional_id
            )
        finally:
            self._request_threads.leave(name)

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change log levels in all current and future child processes.

        "" is the root logger; None resets a level.
        """
        self._connectors.set_log_levels(levels)
        self._tasks.set_log_levels(levels)

    def extend_lease(self, until: float | None) -> None:
        """Set the monotonic time by which connectors and tasks must have exited.

        Their processes enforce it even if this process is suspended. None removes the limit.
        """
        self._connectors.extend_lease(until)
        self._tasks.extend_lease(until)

    def metrics(self) -> list[AnySample]:
        """Return the metrics of this worker and the latest metrics of its connectors and tasks."""
        samples = self._metrics.samples(self._tasks.reports(), self._connectors.names())
        return [*samples, *self._services.samples()]
