"""`HerderAnswers`: read-only requests, answered from the stores and the worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.api.plugin import PluginKind
from connect_py.clock import Clock
from connect_py.config.worker_config import WorkerConfig
from connect_py.futures import done, pass_on
from connect_py.herder.herder import (
    Config,
    ConfigInfos,
    ConfigKeyInfo,
    ConnectorInfo,
    ConnectorStatus,
    Herder,
    LoggerLevel,
    PluginInfo,
    RunningOperation,
    ServerInfo,
    Stage,
    StagedFuture,
    TaskInfo,
)
from connect_py.herder.logger_levels import LoggerLevels
from connect_py.herder.requests.offset_requests import OffsetRequests
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.validation.validator import Validator
from connect_py.herder.work.work_runner import strings
from connect_py.metrics.samples import AnySample, OwnSample, Sample, TextSample
from connect_py.model import ConnectorTaskId, Status
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId
from connect_py.worker.connector_offsets import REQUEST_SECONDS
from connect_py.worker.worker import Worker

APP_INFO = "app-info"
WORKER_GROUP = "connect_py_worker_group"


class HerderAnswers(OffsetRequests, Herder):
    """Answers from snapshots of the stores, the plugins, and the loggers of this worker."""

    def __init__(
        self,
        config: WorkerConfig,
        info: ServerInfo,
        *,
        configs: ConfigStore,
        statuses: StatusStore,
        worker: Worker,
        queue: RequestQueue,
        clock: Clock,
        thread_name: str,
    ) -> None:
        """See `AbstractHerder`."""
        super().__init__(configs, worker, queue, clock, thread_name)
        self._config = config
        self._info = info
        self._statuses = statuses
        self._start_ms = clock.time_ms()
        self._client_id = config.props.get("client.id") or "connect-1"
        self._validator = Validator(
            config,
            worker,
            self._why_no_transactions,
            lambda name: name in configs.snapshot().configs,
        )
        self._loggers = LoggerLevels(clock, worker.set_log_levels)
        self._started = False

    def server_info(self) -> ServerInfo:
        return self._info

    def metrics(self) -> list[AnySample]:
        tags, group = {"client-id": self._client_id}, self._config.group_id
        return [
            *self._worker.metrics(),
            *self._group_metrics(),
            *(
                [OwnSample(WORKER_GROUP, "The group of the worker.", 1, {"group": group})]
                if group is not None
                else ()
            ),
            TextSample(APP_INFO, "version", self._info.version, tags),
            TextSample(APP_INFO, "commit-id", self._info.commit, tags),
            Sample(APP_INFO, "start-time-ms", self._start_ms, tags),
        ]

    def _group_metrics(self) -> Iterable[AnySample]:
        """Return the metrics of the group membership."""
        return ()

    def stage(self) -> Stage | None:
        return self._stages.current()

    def started(self) -> bool:
        return self._started

    def stopping(self) -> bool:
        return self._stopping.is_set()

    def state_read(self) -> Future[None]:
        return chain(self._state_read, done)

    def connectors(self) -> list[str]:
        return self._state().connectors()

    def connector_info(self, name: str) -> Future[ConnectorInfo]:
        return self._request(lambda: self._connector_info(name))

    def _connector_info(self, name: str) -> ConnectorInfo:
        state = self._existing(name)
        # A null can only be written by a Java worker that lost the error. It is shown unchanged.
        config = cast(dict[str, str], dict(state.configs[name]))
        return ConnectorInfo(name, config, state.tasks(name), self._type_of(name))

    def connector_status(self, name: str) -> ConnectorStatus:
        status = self._statuses.get(name)
        if status is None:
            raise NotFoundError(f"No status found for connector {name}")
        reason = self._state().stop_reasons.get(name)
        return ConnectorStatus(
            name, status, self._statuses.tasks(name), self._type_of(name), reason
        )

    def task_status(self, id: ConnectorTaskId) -> Status:  # noqa: A002 - Connect's word
        status = self._statuses.get(id)
        if status is None:
            raise NotFoundError(f"No status found for task {id}")
        return status

    def task_infos(self, name: str) -> Future[list[TaskInfo]]:
        def infos() -> list[TaskInfo]:
            state = self._existing(name)
            return [
                TaskInfo(task, cast(dict[str, str], dict(state.task_configs[task])))
                for task in state.tasks(name)
            ]

        return self._request(infos)

    def active_topics(self, name: str) -> list[str]:
        self._check_topic_tracking()
        return sorted(status.topic for status in self._statuses.topics(name))

    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        kinds: tuple[PluginKind, ...] = (PluginKind.SINK, PluginKind.SOURCE)
        if not connectors_only:
            kinds += (
                PluginKind.TRANSFORMATION,
                PluginKind.PREDICATE,
                PluginKind.CONVERTER,
                PluginKind.HEADER_CONVERTER,
            )
        registry = self._worker.plugins
        plugins = [
            PluginInfo(plugin.name, kind, registry.version(plugin))
            for kind in kinds
            for plugin in registry.available(kind)
        ]
        return list(dict.fromkeys(plugins))

    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        return self._pool.submit(self._validator.plugin_config, plugin, version)

    def validate(self, config: Config) -> Future[ConfigInfos]:
        return self._validate(dict(config))

    def _validate(self, config: Config) -> Future[ConfigInfos]:
        stages, waiting = StageBoard(self._clock), ExitStack()
        waiting.enter_context(
            stages.stage("waiting for a new thread to become available for connector validation")
        )

        def validate() -> ConfigInfos:
            waiting.close()
            return self._validator.validate(config, stages)

        answer: StagedFuture[ConfigInfos] = StagedFuture(stages.current)
        self._pool.submit(validate).add_done_callback(partial(pass_on, answer))
        return answer

    def operate_connector(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> Future[Any]:
        def operate() -> Any:
            config = strings(self._existing(name).configs[name])
            try:
                return self._worker.operate(name, config, operation, arguments).result(
                    REQUEST_SECONDS
                )
            except TimeoutError as error:
                raise ConnectError(
                    f"Timed out while connector {name} was running operation {operation}"
                ) from error

        return self._pool.submit(operate)

    def start_operation(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> RunningOperation:
        running = RunningOperation()

        def start() -> None:  # config providers may block
            try:
                config = strings(self._existing(name).configs[name])
                answer, cancel = self._worker.start_operation(
                    name, config, operation, arguments, running.show
                )
            except Exception as error:  # noqa: BLE001 - passed on to the client
                running.result.set_exception(error)
                return
            running.started(cancel)
            answer.add_done_callback(partial(pass_on, running.result))

        def submitted(start: Future[None]) -> None:
            if start.cancelled():
                running.result.set_exception(ConnectError("the worker is stopping"))

        self._pool.submit(start).add_done_callback(submitted)
        return running

    def logger_levels(self) -> dict[str, LoggerLevel]:
        return self._loggers.all()

    def logger_level(self, name: str) -> LoggerLevel:
        return self._loggers.of(name)

    def _version_of(self, id: StatusId) -> str | None:  # noqa: A002 - Connect's word
        name = id.connector if isinstance(id, ConnectorTaskId) else id
        try:
            plugin = self._worker.plugins.connector_of(self._state().configs[name])
        except (ConnectError, KeyError):
            return None
        return self._worker.plugins.version(plugin)

    def _why_no_transactions(self) -> str | None:
        """Return the reason why this worker runs without transactions, or None if it uses them.
        Thread-safe.
        """
        return None

    def set_logger_level(self, namespace: str, level: str) -> list[str]:
        return self._loggers.set(namespace, level)

    def reset_active_topics(self, name: str) -> None:
        self._check_topic_tracking()
        if not self._config["topic.tracking.allow.reset"]:
            raise PermissionError("Topic tracking reset is disabled.")
        self._statuses.delete_topics(name)

    def _check_topic_tracking(self) -> None:
        if not self._config["topic.tracking.enable"]:
            raise PermissionError("Topic tracking is disabled.")
