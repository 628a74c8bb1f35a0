"""`ConnectHerder`: the herder of a worker in standalone or distributed mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from connect_py.futures import done
from connect_py.herder.connector_configs import startable_configs
from connect_py.herder.herder import (
    Config,
    ConfigInfos,
    ConfigKeyInfo,
    ConnectorInfo,
    ConnectorStatus,
    Created,
    Herder,
    InitialState,
    LoggerLevel,
    PluginInfo,
    RunningOperation,
    ServerInfo,
    Stage,
    TaskInfo,
    WorkerInfo,
)
from connect_py.herder.herder_metrics import HerderMetrics
from connect_py.herder.logger_levels import LoggerLevels
from connect_py.herder.request_signature import RequestSignature
from connect_py.herder.requests.config_requests import ConfigRequests
from connect_py.herder.requests.connector_views import ConnectorViews
from connect_py.herder.requests.offset_requests import OffsetRequests
from connect_py.herder.requests.operation_requests import OperationRequests
from connect_py.herder.requests.peers import Peers
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.requests.restart_requests import RestartRequests
from connect_py.herder.requests.target_state_requests import TargetStateRequests
from connect_py.herder.requests.validation_requests import ValidationRequests
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.herder_thread import HerderThread, Startup
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.metrics.samples import AnySample
from connect_py.model import ConnectorOffset, ConnectorTaskId, Status
from connect_py.storage.config_store import ConfigStore
from connect_py.worker.worker import Worker


class ConnectHerder(Herder):
    """Delegates each request to the component that handles it, and owns the herder's thread."""

    def __init__(
        self,
        info: ServerInfo,
        *,
        thread: HerderThread,
        executor: HerderExecutor,
        startup: Startup,
        is_started: Callable[[], bool],
        stages: StageBoard,
        router: RequestRouter,
        peers: Peers,
        store: ConfigStore,
        worker: Worker,
        views: ConnectorViews,
        configs: ConfigRequests,
        targets: TargetStateRequests,
        restarts: RestartRequests,
        offsets: OffsetRequests,
        operations: OperationRequests,
        validations: ValidationRequests,
        loggers: LoggerLevels,
        metrics: HerderMetrics,
    ) -> None:
        """Create the herder without starting its thread.

        Args:
            info: Response to `GET /`.
            is_started: Returns True if the worker is healthy.
        """
        self._info = info
        self._thread = thread
        self._executor = executor
        self._startup = startup
        self._is_started = is_started
        self._stages = stages
        self._router = router
        self._peers = peers
        self._store = store
        self._worker = worker
        self._views = views
        self._configs = configs
        self._targets = targets
        self._restarts = restarts
        self._offsets = offsets
        self._operations = operations
        self._validations = validations
        self._loggers = loggers
        self._metrics = metrics

    # Lifecycle

    def start(self) -> None:
        """Start the herder's thread.

        `started` returns True once the worker is ready. If startup fails, `failure` is the error.
        """
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stop the tasks, the connectors, and then the other components of this worker.

        Returns False if this takes longer than `timeout` seconds.
        """
        return self._thread.stop(timeout)

    def wait(self, seconds: float) -> bool:
        """Wait for the herder's thread to exit. Return False on timeout."""
        return self._thread.wait(seconds)

    @property
    def failure(self) -> BaseException | None:
        """Error that terminated the herder's thread, or None."""
        return self._thread.failure

    def started(self) -> bool:
        return self._is_started()

    def stopping(self) -> bool:
        return self._executor.stopping.is_set()

    def state_read(self) -> Future[None]:
        return chain(self._startup.state_read, done)

    def ping(self) -> Future[None]:
        return self._router.ping()

    # The worker

    def server_info(self) -> ServerInfo:
        return self._info

    def metrics(self) -> list[AnySample]:
        return self._metrics.samples()

    def stage(self) -> Stage | None:
        return self._stages.current()

    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        return self._views.plugins(connectors_only=connectors_only)

    def prestart_services(self, configs: Mapping[str, Config]) -> None:
        """Start the shared services that the tasks of these connectors need. Thread-safe."""
        self._worker.prestart_services(startable_configs(configs))

    # Connectors and tasks

    def connectors(self) -> list[str]:
        return self._views.connectors()

    def connector_info(self, name: str) -> Future[ConnectorInfo]:
        return self._views.request_info(name)

    def task_infos(self, name: str) -> Future[list[TaskInfo]]:
        return self._views.request_task_infos(name)

    def connector_status(self, name: str) -> ConnectorStatus:
        return self._views.connector_status(name)

    def task_status(self, id: ConnectorTaskId) -> Status:  # noqa: A002 - named as in Kafka Connect
        return self._views.task_status(id)

    def active_topics(self, name: str) -> list[str]:
        return self._views.active_topics(name)

    def reset_active_topics(self, name: str) -> None:
        self._views.reset_active_topics(name)

    # Configurations

    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        return self._validations.plugin_config(plugin, version)

    def validate(self, config: Config) -> Future[ConfigInfos]:
        return self._validations.validate(dict(config))

    def put_connector(
        self, name: str, config: Config, *, replace: bool, initial_state: InitialState | None = None
    ) -> Future[Created]:
        return self._configs.put(name, config, replace=replace, initial_state=initial_state)

    def patch_connector(self, name: str, changes: Config) -> Future[ConnectorInfo]:
        return self._configs.patch(name, changes)

    def delete_connector(self, name: str) -> Future[None]:
        return self._configs.delete(name)

    # Target states and restarts

    def pause_connector(self, name: str) -> None:
        self._targets.pause(name)

    def resume_connector(self, name: str) -> None:
        self._targets.resume(name)

    def stop_connector(self, name: str) -> Future[None]:
        return self._targets.stop(name)

    def restart_connector(self, name: str) -> Future[None]:
        return self._restarts.restart_connector(name)

    def restart_task(self, id: ConnectorTaskId) -> Future[None]:  # noqa: A002 - named as in Kafka Connect
        return self._restarts.restart_task(id)

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        return self._restarts.restart_connector_and_tasks(
            name, include_tasks=include_tasks, only_failed=only_failed
        )

    # Offsets and operations

    def connector_offsets(self, name: str) -> Future[list[ConnectorOffset]]:
        return self._offsets.read(name)

    def alter_connector_offsets(
        self, name: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Future[str]:
        return self._offsets.alter(name, offsets)

    def operate_connector(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        return self._operations.run(name, operation, arguments)

    def start_operation(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> RunningOperation:
        return self._operations.start(name, operation, arguments)

    # Loggers

    def logger_levels(self) -> dict[str, LoggerLevel]:
        return self._loggers.all()

    def logger_level(self, name: str) -> LoggerLevel:
        return self._loggers.of(name)

    def set_logger_level(self, namespace: str, level: str) -> list[str]:
        return self._loggers.set(namespace, level)

    def set_cluster_logger_level(self, namespace: str, level: str) -> None:
        self._store.put_logger_level(namespace, level)

    # The group

    def workers(self) -> list[WorkerInfo]:
        return self._peers.workers()

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        return self._peers.put_task_configs(name, configs, signature)

    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        return self._peers.put_stop_request(name, start_number, reason, signature)

    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        return self._peers.fence_zombies(name, signature)
