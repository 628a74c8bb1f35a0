"""`ConnectorHosts`: a process for the connectors that are installed, and one for those of each folder of `plugin.path`.

Two folders may hold two versions of one package, which no single process can import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin
from connect_py.model import TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.connector_host import ConnectorHost


class ConnectorHosts:
    """Asks the right `ConnectorHost`; its methods are that one's. Any thread; they return at once."""

    def __init__(self, make_host: Callable[[str | None], ConnectorHost], plugins: PluginRegistry) -> None:
        """Prepare. `make_host` is called for the installed connectors now (None), for a folder's at their first use."""
        self._make_host = make_host
        self._plugins = plugins
        self._installed = make_host(None)
        self._hosts: dict[str | None, ConnectorHost] = {None: self._installed}
        self._log_levels: dict[str, int | None] = {}
        self._lease: float | None = None
        self._lock = threading.Lock()

    def _host(self, location: str | None) -> ConnectorHost:
        with self._lock:
            if location not in self._hosts:
                host = self._hosts[location] = self._make_host(location)
                host.set_log_levels(self._log_levels)
                host.extend_lease(self._lease)
            return self._hosts[location]

    def _all(self) -> list[ConnectorHost]:
        with self._lock:
            return list(self._hosts.values())

    def _holder(self, name: str) -> ConnectorHost:
        """The host that holds a connector; that of the installed ones for an unknown name."""
        return next((host for host in self._all() if name in host.names()), self._installed)

    def start(self) -> None:
        """Start the process of the installed connectors; others start when they are needed."""
        self._installed.start()

    def close(self, timeout: float) -> None:
        for host in self._all():
            host.close(timeout)

    def names(self) -> frozenset[str]:
        return frozenset().union(*(host.names() for host in self._all()))

    def start_connector(self, name: str, config: Mapping[str, str], target: TargetState) -> Future[None]:
        try:
            location = self._plugins.connector_of(config).location
        except ConnectError:
            location = None  # the process says what is wrong, and the connector is FAILED
        return self._host(location).start_connector(name, config, target)

    def fail_connector(self, name: str, trace: str) -> None:
        self._holder(name).fail_connector(name, trace)

    def stop_connector(self, name: str) -> Future[None]:
        return self._holder(name).stop_connector(name)

    def set_target_state(self, name: str, target: TargetState) -> None:
        self._holder(name).set_target_state(name, target)

    def task_configs(self, name: str, max_tasks: int) -> Future[list[dict[str, str]]]:
        return self._holder(name).task_configs(name, max_tasks)

    def validate(self, plugin: Plugin, props: Mapping[str, str | None]) -> Future[Any]:
        return self._host(plugin.location).validate(plugin, props)

    def define(self, plugin: Plugin) -> Future[Any]:
        return self._host(plugin.location).define(plugin)

    def call(self, plugin: Plugin, method: str, *arguments: Any) -> Future[Any]:
        return self._host(plugin.location).call(plugin, method, *arguments)

    def alter_offsets(self, plugin: Plugin, *arguments: Any) -> Future[Any]:
        return self._host(plugin.location).alter_offsets(plugin, *arguments)

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        with self._lock:
            self._log_levels |= levels
        for host in self._all():
            host.set_log_levels(levels)

    def extend_lease(self, until: float | None) -> None:
        with self._lock:
            self._lease = until
        for host in self._all():
            host.extend_lease(until)
