"""`ConnectorHosts`: a process for the connectors that are installed, and one for those of each
folder of `plugin.path`.

Two folders may hold two versions of one package, which no single process can import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from connect_py.api.errors import ConnectError
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.connector_host import ConnectorHost


class ConnectorHosts:
    """Knows which `ConnectorHost` is to be asked. Any thread; methods return at once."""

    def __init__(
        self, make_host: Callable[[str | None], ConnectorHost], plugins: PluginRegistry
    ) -> None:
        """Prepare. `make_host` is called for the installed connectors now (None), for a folder's at
        their first use."""
        self._make_host = make_host
        self._plugins = plugins
        self._installed = make_host(None)
        self._hosts: dict[str | None, ConnectorHost] = {None: self._installed}
        self._log_levels: dict[str, int | None] = {}
        self._lease: float | None = None
        self._lock = threading.Lock()

    def host_for(self, config: Mapping[str, str]) -> ConnectorHost:
        """The host that is to run a connector of this configuration."""
        try:
            return self.host_of(self._plugins.connector_of(config).location)
        except ConnectError:
            return self._installed  # the process says what is wrong, and the connector is FAILED

    def host_of(self, location: str | None) -> ConnectorHost:
        """The host of a folder of `plugin.path`; of the installed connectors, if None."""
        with self._lock:
            if location not in self._hosts:
                host = self._hosts[location] = self._make_host(location)
                host.set_log_levels(self._log_levels)
                host.extend_lease(self._lease)
            return self._hosts[location]

    def _all(self) -> list[ConnectorHost]:
        with self._lock:
            return list(self._hosts.values())

    def holder(self, name: str) -> ConnectorHost:
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
