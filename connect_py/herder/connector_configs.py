"""`ConnectorConfigs`: looks up connector configurations and the plugins that they use."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.herder.herder import Config
from connect_py.model import ConnectorTaskId
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.status_table import StatusId


class ConnectorConfigs:
    """Looks up configured connectors and their plugins. Thread-safe; never blocks."""

    def __init__(self, store: ConfigStore, plugins: PluginRegistry) -> None:
        self._store = store
        self._plugins = plugins

    def state(self) -> ClusterConfigState:
        """Return the current snapshot of the config topic."""
        return self._store.snapshot()

    def state_with(self, name: str, message: str = "Connector {} not found") -> ClusterConfigState:
        """Return the current snapshot.

        Raises:
            NotFoundError: The connector does not exist. `message` is formatted with its name.
        """
        state = self.state()
        if name not in state.configs:
            raise NotFoundError(message.format(name))
        return state

    def config(self, name: str) -> dict[str, str]:
        """Return the unresolved configuration of a connector.

        Raises:
            NotFoundError: The connector does not exist.
            ConfigError: A value is null.
        """
        return without_nulls(self.state_with(name).configs[name])

    def exists(self, name: str) -> bool:
        """Return True if the connector exists."""
        return name in self.state().configs

    def type_of(self, name: str) -> str:
        """Return "sink" or "source", or "unknown" if the plugin is not installed."""
        try:
            return self._plugins.connector_of(self.state().configs.get(name, {})).kind.value
        except ConnectError:
            return "unknown"

    def version_of(self, item: StatusId) -> str | None:
        """Return the plugin version of a connector or task, or None if it is unknown."""
        name = item.connector if isinstance(item, ConnectorTaskId) else item
        try:
            plugin = self._plugins.connector_of(self.state().configs[name])
        except (ConnectError, KeyError):
            return None
        return self._plugins.version(plugin)


def is_configured(state: ClusterConfigState, item: StatusId) -> bool:
    """Return True if the cluster configuration contains a connector or task."""
    if isinstance(item, ConnectorTaskId):
        return item in state.tasks(item.connector)
    return item in state.configs


def without_nulls(config: Config) -> dict[str, str]:
    """Return the configuration if no value is null.

    Raises:
        ConfigError: A value is null. The message is the one from Kafka Connect and names the first
            such key.
    """
    for key, value in config.items():
        if value is None:
            raise ConfigError(
                "", f"Non-string value found in original settings for key {key}: null"
            )
    return {key: value for key, value in config.items() if value is not None}


def startable_configs(configs: Mapping[str, Config]) -> dict[str, dict[str, str]]:
    """Return the configurations that contain no null values.

    A connector whose configuration contains a null value reports the error when it is started.
    """
    return {
        name: without_nulls(config)
        for name, config in configs.items()
        if None not in config.values()
    }
