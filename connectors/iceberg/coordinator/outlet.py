"""`Outlet`: plug-in interface for publishers of events about a connector.

Entry points in the group `connect_py.iceberg.outlets` are functions that create an outlet from the
configuration, the context of task 0, and the sink's metrics. An outlet is loaded only if the
configuration requires it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from connect_py.api.errors import ConfigError
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config import keys
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import CommitOutcome
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.table.table import TableDescription

OUTLETS: Final = "connect_py.iceberg.outlets"


class Outlet:
    """Publishes events. Thread-safe. Its methods must not delay commits or cause them to fail."""

    def observe(self, metrics: IcebergMetrics) -> IcebergMetrics:
        """Return the metrics object for the coordinator. It may also notify this outlet."""
        return metrics

    def committed(
        self, request: CommitTable, outcome: CommitOutcome, table: TableDescription
    ) -> None:
        """Handle a new snapshot of a table."""

    def close(self, seconds: float) -> None:
        """Send the pending events within this time, and stop."""


def open_outlets(
    config: IcebergSinkConfig, context: SinkTaskContext, metrics: IcebergMetrics
) -> list[Outlet]:
    """Start the outlets that the configuration requires.

    Raises:
        ConfigError: A package or library is not installed.
    """
    requirements = {
        keys.OPENLINEAGE_URL: ("lineage", config.openlineage_url or config.openlineage_file),
        keys.NOTICES_WEBHOOK: ("notices", config.notices_webhook or config.notices_topic),
    }
    outlets: list[Outlet] = []
    for key, (name, destination) in requirements.items():
        if not destination:
            continue
        entries = entry_points(group=OUTLETS, name=name)
        if not entries:
            raise ConfigError(key, f"requires a package with the entry point {name} in {OUTLETS}")
        (entry,) = entries
        create: Callable[[IcebergSinkConfig, SinkTaskContext, IcebergMetrics], Outlet]
        create = entry.load()
        outlets.append(create(config, context, metrics))
    return outlets
