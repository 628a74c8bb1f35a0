"""`ConnectorViews`: handles read requests for connectors, tasks, topics, and plugins."""

from __future__ import annotations

from concurrent.futures import Future
from typing import cast

from connect_py.api.errors import NotFoundError
from connect_py.api.plugin import PluginKind
from connect_py.config.worker_config import WorkerConfig
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.herder import ConnectorInfo, ConnectorStatus, PluginInfo, TaskInfo
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.model import ConnectorTaskId, Status
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.status_store import StatusStore


class ConnectorViews:
    """Reads snapshots of the stores. Methods that return a future run on the herder's thread."""

    def __init__(
        self,
        config: WorkerConfig,
        connectors: ConnectorConfigs,
        statuses: StatusStore,
        plugins: PluginRegistry,
        executor: HerderExecutor,
    ) -> None:
        self._config = config
        self._connectors = connectors
        self._statuses = statuses
        self._plugins = plugins
        self._executor = executor

    def connectors(self) -> list[str]:
        """Return the names of the connectors."""
        return self._connectors.state().connectors()

    def request_info(self, name: str) -> Future[ConnectorInfo]:
        """Request the configuration and tasks of a connector."""
        return self._executor.submit(lambda: self.info(name))

    def info(self, name: str) -> ConnectorInfo:
        """Return the configuration and tasks of a connector.

        Raises:
            NotFoundError: The connector does not exist.
        """
        state = self._connectors.state_with(name)
        # Null values, which only a Java worker can have written, are returned unchanged.
        config = cast(dict[str, str], dict(state.configs[name]))
        return ConnectorInfo(name, config, state.tasks(name), self._connectors.type_of(name))

    def request_task_infos(self, name: str) -> Future[list[TaskInfo]]:
        """Request the task configurations of a connector."""

        def infos() -> list[TaskInfo]:
            state = self._connectors.state_with(name)
            return [
                TaskInfo(task, cast(dict[str, str], dict(state.task_configs[task])))
                for task in state.tasks(name)
            ]

        return self._executor.submit(infos)

    def connector_status(self, name: str) -> ConnectorStatus:
        """Return the status from the status store. Raise NotFoundError if there is none."""
        status = self._statuses.get(name)
        if status is None:
            raise NotFoundError(f"No status found for connector {name}")
        return ConnectorStatus(
            name,
            status,
            self._statuses.tasks(name),
            self._connectors.type_of(name),
            self._connectors.state().stop_reasons.get(name),
        )

    def task_status(self, task: ConnectorTaskId) -> Status:
        """Return the status from the status store. Raise NotFoundError if there is none."""
        status = self._statuses.get(task)
        if status is None:
            raise NotFoundError(f"No status found for task {task}")
        return status

    def active_topics(self, name: str) -> list[str]:
        """See `Herder.active_topics`."""
        self._check_topic_tracking()
        return sorted(status.topic for status in self._statuses.topics(name))

    def reset_active_topics(self, name: str) -> None:
        """See `Herder.reset_active_topics`."""
        self._check_topic_tracking()
        if not self._config["topic.tracking.allow.reset"]:
            raise PermissionError("Topic tracking reset is disabled.")
        self._statuses.delete_topics(name)

    def _check_topic_tracking(self) -> None:
        if not self._config["topic.tracking.enable"]:
            raise PermissionError("Topic tracking is disabled.")

    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Return the installed plugins in the order in which the REST API lists them."""
        kinds: tuple[PluginKind, ...] = (PluginKind.SINK, PluginKind.SOURCE)
        if not connectors_only:
            kinds += (
                PluginKind.TRANSFORMATION,
                PluginKind.PREDICATE,
                PluginKind.CONVERTER,
                PluginKind.HEADER_CONVERTER,
            )
        plugins = [
            PluginInfo(plugin.name, kind, self._plugins.version(plugin))
            for kind in kinds
            for plugin in self._plugins.available(kind)
        ]
        return list(dict.fromkeys(plugins))
