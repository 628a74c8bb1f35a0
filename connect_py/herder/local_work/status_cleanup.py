"""`StatusCleanup`: removes the statuses of deleted connectors and tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable

from connect_py.api.errors import ConnectError
from connect_py.herder.connector_configs import ConnectorConfigs, is_configured
from connect_py.model import ConnectorTaskId
from connect_py.storage.control_records import Items
from connect_py.storage.status_store import StatusStore

log = logging.getLogger(__name__)


class StatusCleanup:
    """Removes obsolete statuses if this worker is the leader. Used only on the herder's thread."""

    def __init__(
        self,
        connectors: ConnectorConfigs,
        statuses: StatusStore,
        leads: Callable[[], bool],
        running_items: Callable[[], Items],
    ) -> None:
        """Create the component.

        Args:
            leads: Returns True if this worker is the leader of its group.
            running_items: Returns the connectors and tasks that may be running on any worker.
        """
        self._connectors = connectors
        self._statuses = statuses
        self._leads = leads
        self._running_items = running_items

    def clean_up(self, name: str | None = None) -> None:
        """Remove the obsolete statuses of one connector, or of all connectors if `name` is None."""
        if not self._leads():
            return
        state = self._connectors.state()
        running = self._running_items()
        for item in self._statuses.ids():
            connector = item.connector if isinstance(item, ConnectorTaskId) else item
            if name not in (None, connector) or connector in state.inconsistent:
                continue
            if is_configured(state, item) or item in running:
                continue
            try:
                self._statuses.delete(item)
                if item == connector:
                    self._statuses.delete_topics(connector)
            except ConnectError as error:
                log.error("failed to remove the status of %s: %s", item, error)
