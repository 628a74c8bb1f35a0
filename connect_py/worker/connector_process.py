"""The main function of the connector process. Each connector instance has its own thread."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

from connect_py.api.config import ConfigDef, ConfigKey, ConfigValue
from connect_py.api.connector import Connector, SinkConnector
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.service import SharedService
from connect_py.clock import SystemClock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.log_context import NOTHING, log_context
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.task.channel import Channel
from connect_py.task.child_process import beat, prepare_child, read_until_worker_ends, set_levels
from connect_py.task.kafka_sink_cluster import KafkaSinkCluster
from connect_py.task.lease_guard import LeaseGuard
from connect_py.task.messages import Answer, Beat, ExtendLease, RequestService, SetLogLevels, Waits
from connect_py.task.questions import Questions
from connect_py.task.shared_services import WorkerSharedServices
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.wait_board import WaitBoard
from connect_py.worker.connector_messages import (
    AlterOffsets,
    CallConnector,
    CancelOperation,
    ChangeTarget,
    ConnectorEvent,
    ConnectorProcessSpec,
    ConnectorService,
    Define,
    ListServices,
    MakeTaskConfigs,
    Operate,
    OperationProgress,
    Reconfigure,
    Reply,
    ServiceAnswered,
    ServiceRequest,
    ServiceUserEnded,
    StartConnector,
    StopConnector,
    Validate,
)

BEAT_SECONDS: Final = 1.0
# subject of the waiting reason: a connector whose `task_configs` fails
TASK_CONFIGS: Final = "task configurations"
VALIDATORS: Final = 4  # validations that may run, or hang, at the same time
# operations that may run at the same time; they may take hours and therefore have their own threads
OPERATIONS: Final = 4

log = logging.getLogger(__name__)


class ConnectorServices(WorkerSharedServices):
    """Shared services for one user in this process."""

    def __init__(
        self, user: int, name: str, send: Callable[[object], None], worker_props: Mapping[str, str]
    ) -> None:
        """Create the services of one user. `user` is the number of the request that created it,
        `name` that of the connector.
        """
        questions = Questions(
            lambda message: send(
                ServiceRequest(user, name, message)  # type: ignore[arg-type]  # only these kinds
            )
        )
        super().__init__(questions, worker_props)
        self._user = user
        self._send = send

    def request_early(self, service: SharedService) -> None:
        """Start a service for future users."""
        self._questions.send(RequestService(service, hold=False))

    def answer(self, answer: Answer) -> None:
        """Deliver the worker's response."""
        self._questions.answer(answer)

    def stop(self) -> None:
        """End all waiting calls."""
        self._questions.stop()

    def end(self) -> None:
        """Release all services."""
        self._send(ServiceUserEnded(self._user))


class ConnectorInstance:
    """One connector, created and started for a target state. Its methods run on its own thread."""

    _connector: Connector

    def __init__(
        self,
        create: Callable[[], Connector],
        request: StartConnector,
        send_event: Callable[[ConnectorEvent], None],
        services: ConnectorServices,
    ) -> None:
        """Create the object. `make` loads the class and creates the connector; it may be slow,
        fail, or hang.
        """
        self._make = create
        self.services = services
        self._name = request.name
        self.generation = request.generation
        self._config = dict(request.config)
        self._send = send_event
        self._running = False
        self._failed = False
        self._waits = WaitBoard(SystemClock(), lambda waiting: self._send_event(Waits(waiting)))
        self.waits = self._waits.waits
        self.send_waiting = self._waits.send_changes
        self._executor = ThreadPoolExecutor(1, f"connector-thread-{request.name}")

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call on the instance's thread, after the earlier ones."""
        self._executor.submit(self._in_context, call)

    def _in_context(self, call: Callable[[], None]) -> None:
        with log_context(self._name, scope="worker"):
            call()

    def _send_event(self, event: State | Reconfigure | Waits, trace: str | None = None) -> None:
        self._send(ConnectorEvent(self._name, self.generation, event, trace))

    # ConnectorContext; called on any thread

    @property
    def connector(self) -> str:
        return self._name

    def request_task_reconfiguration(self) -> None:
        self._send_event(Reconfigure())

    def raise_error(self, error: Exception) -> None:
        self._failed = True
        log.error("the connector reported an error", exc_info=error)
        self._send_event(State.FAILED, stack_trace(error))

    # Called on the instance's thread

    def make(self) -> None:
        """Create the connector. Errors of its class or constructor are reported and raised."""
        try:
            self._connector = self._make()
        except Exception as error:
            self._fail(error)
            raise

    def begin(self, target: TargetState) -> None:
        """Initialize the connector and apply the first target state. Errors are reported and
        raised.
        """
        try:
            self._connector.services = self.services
            self._connector.initialize(self)
        except Exception as error:
            self._fail(error)
            raise
        self.change_target(target)

    def change_target(self, target: TargetState) -> None:
        """Start or stop the connector according to the target. A failed connector only follows
        STOPPED.
        """
        if self._failed and target is not TargetState.STOPPED:
            log.warning("ignoring target state %s: the connector has failed", target.value)
            return
        try:
            if target is TargetState.STARTED:
                if not self._running:
                    self._request_services()
                    self._connector.start(dict(self._config))
                    self._running = True
                    self._send_event(State.RUNNING)
            else:
                self._halt(target)
        except Exception as error:
            self._fail(error)
            raise

    def _request_services(self) -> None:
        """Start the services that tasks will request."""
        try:
            for service in self._connector.shared_services(
                dict(self._config), self.services.worker_settings
            ):
                self.services.request_early(service)
        except Exception:
            log.exception(
                "failed to list the services of the connector; its tasks will request them"
            )

    def _halt(self, target: TargetState) -> None:
        try:
            if self._running:
                self._running = False
                self._connector.stop()
        except Exception:
            if target is not TargetState.STOPPED:
                raise
            log.exception("failed to stop the connector")  # it is STOPPED anyway, as in Java
        finally:
            self.services.end()
        self._failed = False if target is TargetState.STOPPED else self._failed
        self._send_event(State(target.value))

    def _fail(self, error: Exception) -> None:
        self._failed = True
        log.exception("Error while starting or stopping connector %s", self._name)
        self._send_event(State.FAILED, stack_trace(error))

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the task configurations. ConnectError unless the connector is running."""
        if not self._running or self._failed:
            raise ConnectError(f"connector {self._name} is not running")
        try:
            configs = [dict(config) for config in self._connector.task_configs(max_tasks)]
        except Exception as error:
            # retried indefinitely
            self.waits(TASK_CONFIGS, f"{type(error).__name__}: {error}")
            raise
        self.waits(TASK_CONFIGS, None)
        return configs

    def end(self) -> None:
        """Stop permanently."""
        try:
            if self._running:
                self._running = False
                self._connector.stop()
        finally:
            self._executor.shutdown(wait=False)


class ConnectorProcess:
    """Receives requests on the reader's thread, and runs each on a thread that may hang."""

    def __init__(self, channel: Channel, spec: ConnectorProcessSpec) -> None:
        self._channel = channel
        self._registry = PluginRegistry(spec.plugins)
        self._worker_props = spec.worker_props
        self._services: dict[int, ConnectorServices] = {}
        self._instances: dict[str, ConnectorInstance] = {}
        self._guard = LeaseGuard()
        self._validators = ThreadPoolExecutor(VALIDATORS, "validate")
        # a hanging connector must not block validations
        self._service_lister = ThreadPoolExecutor(1, "services")
        self._operators = ThreadPoolExecutor(OPERATIONS, "operate")
        self._operations: dict[
            int, Connector | None
        ] = {}  # by request number; None while waiting for a thread
        self._operations_lock = threading.Lock()

    def send_waiting(self) -> None:
        """Send the waiting reasons of the instances that have changed. Thread-safe."""
        for instance in list(self._instances.values()):
            instance.send_waiting()

    def handle(self, message: object) -> None:
        """Process one message."""
        match message:
            case SetLogLevels(levels):
                set_levels(levels)
            case ExtendLease(until):
                self._guard.extend(until)
            case ServiceAnswered(user, answer):
                if (services := self._services.get(user)) is not None:
                    services.answer(answer)
            case StartConnector():
                self._start(message)
            case StopConnector(number, name):
                instance = self._instances.pop(name, None)
                if instance is None:
                    self._channel.send(Reply(number))
                else:
                    instance.services.stop()
                    self._services.pop(instance.generation, None)
                    instance.submit(lambda: self._reply(number, instance.end))
            case ChangeTarget(number, name, target):
                self._with_instance(number, name, lambda i: i.change_target(target))
            case MakeTaskConfigs(number, name, max_tasks):
                self._with_instance(number, name, lambda i: i.task_configs(max_tasks))
            case Validate() | Define() | CallConnector():
                self._validators.submit(
                    self._reply, message.number, lambda: self._run_plugin_request(message)
                )
            case ListServices():
                self._service_lister.submit(
                    self._reply, message.number, lambda: self._list_services(message)
                )
            case Operate():
                with self._operations_lock:
                    self._operations[message.number] = None
                self._operators.submit(self._reply, message.number, lambda: self._operate(message))
            case CancelOperation(number):
                self._cancel_operation(number)
            case AlterOffsets():
                self._validators.submit(
                    self._reply, message.number, lambda: self._alter_offsets(message)
                )

    def _services_of(self, user: int, name: str) -> ConnectorServices:
        services = self._services[user] = ConnectorServices(
            user, name, self._channel.send, self._worker_props
        )
        return services

    @contextmanager
    def _with_services(self, plugin: Plugin, user: int, name: str) -> Iterator[Any]:
        """Create a new instance of a connector class that may use shared services during the
        block.
        """
        connector = self._registry.load(plugin)()
        connector.services = self._services_of(user, name)
        try:
            yield connector
        finally:
            self._services.pop(user, None)

    def _start(self, request: StartConnector) -> None:
        """Start an instance. The class is not imported on the reader's thread, which must receive
        lease messages.
        """

        def begin() -> None:
            try:
                instance.make()
            except Exception:
                if self._instances.get(request.name) is instance:
                    del self._instances[request.name]  # nothing to stop
                raise
            instance.begin(request.target)

        instance = ConnectorInstance(
            lambda: self._registry.load(self._registry.connector_of(request.config))(),
            request,
            self._channel.send,
            self._services_of(request.number, request.name),
        )
        self._instances[request.name] = instance
        instance.submit(lambda: self._reply(request.number, begin))

    def _with_instance(
        self, number: int, name: str, call: Callable[[ConnectorInstance], object]
    ) -> None:
        instance = self._instances.get(name)
        if instance is None:
            self._channel.send(
                Reply(number, error=NotFoundError(f"Connector {name} not found on this worker"))
            )
            return
        instance.submit(lambda: self._reply(number, lambda: call(instance)))

    def _reply(self, number: int, call: Callable[[], object]) -> None:
        try:
            reply = Reply(number, call())
        except Exception as error:
            log.debug("a method of a connector failed", exc_info=True)
            reply = Reply(number, error=portable(error))
        self._channel.send(reply)

    def _run_plugin_request(self, request: Validate | Define | CallConnector) -> object:
        cls = self._registry.load(request.plugin)
        if isinstance(request, CallConnector):
            with self._with_services(
                request.plugin, request.number, request.plugin.name
            ) as connector:
                return getattr(connector, request.method)(*request.arguments)
        config_def: ConfigDef = cls.config_def
        if isinstance(request, Define):
            return plain_keys(config_def)
        with log_context(request.props.get("name") or request.plugin.name, scope="validate"):
            if request.plugin.kind in (PluginKind.SINK, PluginKind.SOURCE):
                with self._with_services(
                    request.plugin, request.number, request.plugin.name
                ) as connector:
                    values = connector.validate(dict(request.props))
            else:
                values = config_def.validate(request.props)
        return plain_keys(config_def), {name: plain_value(value) for name, value in values.items()}

    def _list_services(self, request: ListServices) -> list[ConnectorService]:
        services = []
        for name, plugin, props in request.connectors:
            with log_context(name, scope="services"):
                try:
                    shared_services = self._registry.load(plugin).shared_services(
                        dict(props), self._worker_settings
                    )
                    services += [ConnectorService(name, service) for service in shared_services]
                except Exception:
                    log.warning(
                        "failed to list the services of connector %s in advance",
                        name,
                        exc_info=True,
                    )
        return services

    def _worker_settings(self, prefix: str) -> Mapping[str, str]:
        return {key: value for key, value in self._worker_props.items() if key.startswith(prefix)}

    def _operate(self, request: Operate) -> object:
        with (
            self._with_services(request.plugin, request.number, request.name) as connector,
            log_context(request.name, scope="operations"),
        ):
            connector.report_progress = lambda step: self._channel.send(
                OperationProgress(request.number, step)
            )
            if isinstance(connector, SinkConnector):
                connector.cluster = self._cluster(request.name, request.props, self._worker_props)
                from connect_py.task.pipeline_factory import TaskPipelineFactory  # imports pyarrow

                connector.pipelines = TaskPipelineFactory(
                    dict(request.props), dict(self._worker_props)
                )
            with self._operations_lock:
                if request.number not in self._operations:
                    raise ConnectError(
                        "the operation was canceled because its client has disconnected"
                    )
                self._operations[request.number] = connector
            try:
                return connector.operate(request.props, request.operation, request.arguments)
            except (ConfigError, NotFoundError):
                raise
            except ConnectError as error:
                raise ConnectError(str(error)) from error  # its class may be defined in the plugin
            finally:
                with self._operations_lock:
                    self._operations.pop(request.number, None)

    def _cancel_operation(self, number: int) -> None:
        with self._operations_lock:
            connector = self._operations.pop(number, None)
        if connector is None:
            return  # it has ended, or will not be started
        if (services := self._services.get(number)) is not None:
            services.stop()  # it may be waiting for a driver
        try:
            connector.cancel_operation()
        except Exception:
            log.exception("failed to cancel the operation")

    def _cluster(
        self,
        name: str,
        props: Mapping[str, str],
        worker_props: Mapping[str, str],
        start_number: int = 0,
    ) -> KafkaSinkCluster:
        clients = ClientConfigs(worker_props, props, name)
        return KafkaSinkCluster(
            name, start_number, clients, ClusterAdmin(clients.admin()), TopicSelection(props)
        )

    def _alter_offsets(self, request: AlterOffsets) -> object:
        with self._with_services(request.plugin, request.number, request.name) as connector:
            return self._call_alter_offsets(connector, request)

    def _call_alter_offsets(self, connector: Any, request: AlterOffsets) -> object:
        with log_context(request.name, scope="offsets"):
            if isinstance(connector, SinkConnector):
                connector.cluster = self._cluster(
                    request.name, request.props, request.worker_props, request.start_number
                )
            try:
                return connector.alter_offsets(request.props, request.offsets)
            except NotImplementedError:
                raise
            except ConnectError as error:
                raise ConnectError(
                    str(error)
                ) from error  # its class may be defined in the plugin; the message is for the user
            except Exception as error:
                log.exception("alter_offsets failed")
                raise RuntimeError(f"{type(error).__name__}: {error}") from error


def plain_keys(config_def: ConfigDef) -> list[ConfigKey]:
    """Return definitions without functions, which can be pickled."""
    return [dataclasses.replace(key, validator=None, recommender=None) for key in config_def]


def plain_value(value: ConfigValue) -> ConfigValue:
    """Return a value as plain data."""
    return ConfigValue(
        value.name,
        value.value,
        list(value.recommended_values),
        [str(e) for e in value.errors],
        value.visible,
    )


def portable(error: Exception) -> Exception:
    """Return the error if it can be unpickled by the worker, otherwise one of our errors with its
    message.
    """
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error) and type(
            error
        ).__module__.startswith(("connect_py.", "builtins")):
            return error
    except Exception:
        log.debug("cannot pickle an error", exc_info=True)
    if isinstance(error, ConfigError):
        return ConfigError("", str(error))
    return ConnectError(f"{type(error).__name__}: {error}")


def run_connector_process(connection: Connection[Any, Any], spec: ConnectorProcessSpec) -> None:
    """Process requests until the worker closes the pipe."""
    channel = Channel(connection)
    prepare_child(channel, NOTHING, spec.log_levels)
    process = ConnectorProcess(channel, spec)

    def make_beat() -> Beat:
        process.send_waiting()
        return Beat()

    beat(channel, make_beat, BEAT_SECONDS)
    read_until_worker_ends(channel, process.handle)
    threading.Event().wait()  # the reader exits the process
