"""`ConnectorHosts`: runs the connectors from each `plugin.path` folder in a separate process.

The folders may contain different versions of the same package, which a single process cannot
import. Another process runs the installed connectors, which are those in the worker's own Python
environment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from connect_py.api.errors import ConnectError
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.connector_host import ConnectorHost


class ConnectorHosts:
    """Selects the `ConnectorHost` for a request. Thread-safe; only `close` blocks."""

    def __init__(
        self, make_host: Callable[[str | None], ConnectorHost], plugins: PluginRegistry
    ) -> None:
        """Create the hosts.

        `make_host` is called immediately with None for the installed connectors, and with each
        folder when it is first used.
        """
        self._make_host = make_host
        self._plugins = plugins
        self._installed = make_host(None)
        self._hosts: dict[str | None, ConnectorHost] = {None: self._installed}
        self._log_levels: dict[str, int | None] = {}
        self._lease: float | None = None
        self._lock = threading.Lock()

    def host_for(self, config: Mapping[str, str]) -> ConnectorHost:
        """Return the host for a connector with this configuration."""
        try:
            return self.host_of(self._plugins.connector_of(config).location)
        except ConnectError:
            return self._installed  # the process reports the error, and the connector fails

    def host_of(self, location: str | None) -> ConnectorHost:
        """Return the host for a `plugin.path` folder. None selects the installed connectors."""
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
        """Return the host that runs a connector.

        If no host runs it, return the host for the installed connectors.
        """
        return next((host for host in self._all() if name in host.names()), self._installed)

    def start(self) -> None:
        """Start the process for the installed connectors. The other processes start on demand."""
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
