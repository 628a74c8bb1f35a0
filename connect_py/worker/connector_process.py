"""Main function of the connector process, in which each connector instance has its own thread."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from connect_py.api.config import ConfigDef, ConfigKey, ConfigValue
from connect_py.api.connector import Connector, SinkConnector
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.service import SharedService
from connect_py.clock import SystemClock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import done, failed
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.log_context import NOTHING, log_context
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.process.channel import Channel
from connect_py.process.child_runtime import prepare_child, serve_worker
from connect_py.task.messages import RequestService, Waits
from connect_py.task.sink.kafka_sink_cluster import KafkaSinkCluster
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.wait_board import WaitBoard
from connect_py.task.worker_client import WorkerClient, WorkerSharedServices
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
    ServiceRequest,
    ServiceUserEnded,
    ServiceUserRequest,
    StartConnector,
    StopConnector,
    Validate,
)

# resource that a connector reports it is waiting for while its `task_configs` fails
TASK_CONFIGS: Final = "task configurations"
VALIDATORS: Final = 4  # maximum number of validations that run (or hang) concurrently
# maximum number of concurrent operations, which have their own threads because they may take hours
OPERATIONS: Final = 4

log = logging.getLogger(__name__)

T = TypeVar("T")


class ConnectorServices(WorkerSharedServices):
    """Shared services for one service user in the connector process."""

    def __init__(
        self, user: int, name: str, channel: Channel, worker_props: Mapping[str, str]
    ) -> None:
        """Create the services for one service user.

        Args:
            user: Number of the service user (see `ServiceUserRequest`).
            name: Name of the connector.
            channel: Channel to the worker.
            worker_props: Resolved properties of the worker.
        """
        worker = WorkerClient(
            lambda request: channel.call(ServiceRequest(user, name, request)),  # type: ignore[arg-type]  # the client sends only service requests
            lambda message: channel.notify(ServiceRequest(user, name, message)),  # type: ignore[arg-type]  # see above
        )
        super().__init__(worker, worker_props)
        self._user = user
        self._channel = channel

    def request_early(self, service: SharedService) -> None:
        """Request a service in advance for its future users."""
        self._worker.notify(RequestService(service, hold=False))

    def stop(self) -> None:
        """Cancel all waiting calls."""
        self._worker.stop()

    def end(self) -> None:
        """Release all services."""
        self._channel.notify(ServiceUserEnded(self._user))


class ConnectorInstance:
    """Runs one connector instance on its own thread."""

    _connector: Connector

    def __init__(
        self,
        create: Callable[[], Connector],
        request: StartConnector,
        send_event: Callable[[ConnectorEvent], None],
        services: ConnectorServices,
    ) -> None:
        """Create the instance without creating its connector.

        `create` loads the class and creates the connector. `make` calls it. It may be slow, fail,
        or hang.
        """
        self._make = create
        self.services = services
        self._name = request.name
        self.user = request.user
        self._config = dict(request.config)
        self._send = send_event
        self._running = False
        self._failed = False
        self._waits = WaitBoard(SystemClock(), lambda waiting: self._send_event(Waits(waiting)))
        self.waits = self._waits.waits
        self.send_waiting = self._waits.send_changes
        self._executor = ThreadPoolExecutor(1, f"connector-thread-{request.name}")

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call on the instance's thread after all earlier calls."""
        return self._executor.submit(self._in_context, call)

    def _in_context(self, call: Callable[[], T]) -> T:
        with log_context(self._name, scope="worker"):
            return call()

    def _send_event(self, event: State | Reconfigure | Waits, trace: str | None = None) -> None:
        self._send(ConnectorEvent(self._name, self.user, event, trace))

    # Implementation of ConnectorContext, called on any thread

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
        """Create the connector. Errors from its class or constructor are reported and re-raised."""
        try:
            self._connector = self._make()
        except Exception as error:
            self._fail(error)
            raise

    def begin(self, target: TargetState) -> None:
        """Initialize the connector and apply the first target state.

        Errors are reported and re-raised.
        """
        try:
            self._connector.services = self.services
            self._connector.initialize(self)
        except Exception as error:
            self._fail(error)
            raise
        self.change_target(target)

    def change_target(self, target: TargetState) -> None:
        """Start or stop the connector according to the target state.

        A failed connector ignores all target states except STOPPED.
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
        """Request in advance the services that tasks will need."""
        try:
            for service in self._connector.shared_services(
                dict(self._config), self.services.worker_settings
            ):
                self.services.request_early(service)
        except Exception:
            log.exception(
                "failed to list the connector's services in advance; its tasks will request them"
            )

    def _halt(self, target: TargetState) -> None:
        try:
            if self._running:
                self._running = False
                self._connector.stop()
        except Exception:
            if target is not TargetState.STOPPED:
                raise
            log.exception("failed to stop the connector")  # its state is STOPPED anyway, as in Java
        finally:
            self.services.end()
        self._failed = False if target is TargetState.STOPPED else self._failed
        self._send_event(State(target.value))

    def _fail(self, error: Exception) -> None:
        self._failed = True
        log.exception("Error while starting or stopping connector %s", self._name)
        self._send_event(State.FAILED, stack_trace(error))

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the task configurations. Raise ConnectError if the connector is not running."""
        if not self._running or self._failed:
            raise ConnectError(f"connector {self._name} is not running")
        try:
            configs = [dict(config) for config in self._connector.task_configs(max_tasks)]
        except Exception as error:
            # reported as a waiting reason, because the worker retries indefinitely
            self.waits(TASK_CONFIGS, f"{type(error).__name__}: {error}")
            raise
        self.waits(TASK_CONFIGS, None)
        return configs

    def end(self) -> None:
        """Stop the connector and its thread permanently."""
        try:
            if self._running:
                self._running = False
                self._connector.stop()
        finally:
            self._executor.shutdown(wait=False)


class ConnectorProcess:
    """Receives requests on the reading thread and runs them on others, because they may hang."""

    def __init__(self, channel: Channel, spec: ConnectorProcessSpec) -> None:
        self._channel = channel
        self._registry = PluginRegistry(spec.plugins)
        self._worker_props = spec.worker_props
        self._instances: dict[str, ConnectorInstance] = {}
        self._validators = ThreadPoolExecutor(VALIDATORS, "validate")
        # a separate thread, because a connector that hangs must not block validations
        self._service_lister = ThreadPoolExecutor(1, "services")
        self._operators = ThreadPoolExecutor(OPERATIONS, "operate")
        # operations by service user number; None while an operation waits for a thread
        self._operations: dict[int, tuple[Connector, ConnectorServices] | None] = {}
        self._operations_lock = threading.Lock()

    def send_waiting(self) -> None:
        """Send the waiting reasons that have changed. Thread-safe."""
        for instance in list(self._instances.values()):
            instance.send_waiting()

    def handle(self, message: object) -> Future[Any] | None:
        """Process one message. Return a future for the result of a request."""
        match message:
            case StartConnector():
                return self._start(message)
            case StopConnector(name):
                instance = self._instances.pop(name, None)
                if instance is None:
                    return done(None)
                instance.services.stop()
                return instance.submit(instance.end)
            case ChangeTarget(name, target):
                return self._with_instance(name, lambda i: i.change_target(target))
            case MakeTaskConfigs(name, max_tasks):
                return self._with_instance(name, lambda i: i.task_configs(max_tasks))
            case Validate() | Define() | CallConnector():
                return self._validators.submit(self._run_plugin_request, message)
            case ListServices():
                return self._service_lister.submit(self._list_services, message)
            case Operate():
                with self._operations_lock:
                    self._operations[message.user] = None
                return self._operators.submit(self._operate, message)
            case AlterOffsets():
                return self._validators.submit(self._alter_offsets, message)
            case CancelOperation(user):
                self._cancel_operation(user)
        return None

    def _services_of(self, request: ServiceUserRequest, name: str) -> ConnectorServices:
        return ConnectorServices(request.user, name, self._channel, self._worker_props)

    def _new_connector(self, plugin: Plugin, request: ServiceUserRequest, name: str) -> Any:
        """Create an instance of a connector class for one request."""
        connector = self._registry.load(plugin)()
        connector.services = self._services_of(request, name)
        return connector

    def _start(self, request: StartConnector) -> Future[None]:
        """Start an instance.

        Its class is imported on the instance's thread, because the reading thread must remain able
        to receive lease messages.
        """

        def begin() -> None:
            try:
                instance.make()
            except Exception:
                if self._instances.get(request.name) is instance:
                    del self._instances[request.name]  # there is no connector to stop
                raise
            instance.begin(request.target)

        instance = ConnectorInstance(
            lambda: self._registry.load(self._registry.connector_of(request.config))(),
            request,
            self._channel.notify,
            self._services_of(request, request.name),
        )
        self._instances[request.name] = instance
        return instance.submit(begin)

    def _with_instance(
        self, name: str, call: Callable[[ConnectorInstance], object]
    ) -> Future[object]:
        instance = self._instances.get(name)
        if instance is None:
            return failed(NotFoundError(f"Connector {name} not found on this worker"))
        return instance.submit(lambda: call(instance))

    def _run_plugin_request(self, request: Validate | Define | CallConnector) -> object:
        cls = self._registry.load(request.plugin)
        if isinstance(request, CallConnector):
            connector = self._new_connector(request.plugin, request, request.plugin.name)
            return getattr(connector, request.method)(*request.arguments)
        config_def: ConfigDef = cls.config_def
        if isinstance(request, Define):
            return plain_keys(config_def)
        with log_context(request.props.get("name") or request.plugin.name, scope="validate"):
            if request.plugin.kind in (PluginKind.SINK, PluginKind.SOURCE):
                connector = self._new_connector(request.plugin, request, request.plugin.name)
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
        connector = self._new_connector(request.plugin, request, request.name)
        with log_context(request.name, scope="operations"):
            connector.report_progress = lambda step: self._channel.notify(
                OperationProgress(request.user, step)
            )
            if isinstance(connector, SinkConnector):
                connector.cluster = self._cluster(request.name, request.props, self._worker_props)
                from connect_py.task.pipeline_factory import TaskPipelineFactory  # imports pyarrow

                connector.pipelines = TaskPipelineFactory(
                    dict(request.props), dict(self._worker_props)
                )
            with self._operations_lock:
                if request.user not in self._operations:
                    raise ConnectError(
                        "the operation was canceled because its client has disconnected"
                    )
                self._operations[request.user] = connector, connector.services
            try:
                return connector.operate(request.props, request.operation, request.arguments)
            except (ConfigError, NotFoundError):
                raise
            except ConnectError as error:
                # the worker cannot load an error class that the plugin defines
                raise ConnectError(str(error)) from error
            finally:
                with self._operations_lock:
                    self._operations.pop(request.user, None)

    def _cancel_operation(self, user: int) -> None:
        with self._operations_lock:
            operation = self._operations.pop(user, None)
        if operation is None:
            return  # the operation has ended or will not be started
        connector, services = operation
        services.stop()  # the operation may be waiting for a service
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
        connector = self._new_connector(request.plugin, request, request.name)
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
                # the worker cannot load an error class that the plugin defines
                raise ConnectError(str(error)) from error
            except Exception as error:
                log.exception("alter_offsets failed")
                raise RuntimeError(f"{type(error).__name__}: {error}") from error


def plain_keys(config_def: ConfigDef) -> list[ConfigKey]:
    """Return the config keys without their functions, which cannot be pickled."""
    return [dataclasses.replace(key, validator=None, recommender=None) for key in config_def]


def plain_value(value: ConfigValue) -> ConfigValue:
    """Return a copy of a config value as plain data."""
    return ConfigValue(
        value.name,
        value.value,
        list(value.recommended_values),
        [str(e) for e in value.errors],
        value.visible,
    )


def run_connector_process(channel: Channel, spec: ConnectorProcessSpec) -> None:
    """Process requests until the worker closes the channel. The process then exits."""
    prepare_child(channel, NOTHING, spec.log_levels)
    process = ConnectorProcess(channel, spec)
    serve_worker(channel, process.handle, process.send_waiting)
    threading.Event().wait()
