"""`FullMaintenance`: interface of the whole maintenance policy (`enabled=true`), which plugs in.

An entry point of the group `connect_py.iceberg.maintenance` provides it. A connector without
tables that have `enabled=true` does not load it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Final, Protocol

from connect_py.api.errors import ConfigError
from connect_py.api.service import SharedServices
from connectors.iceberg.config.keys import MAINTENANCE_PREFIX
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

MAINTENANCE: Final = "connect_py.iceberg.maintenance"
INSPECTION: Final = "look at the table"  # value of the metric label `action`, counted if it fails


class FullMaintenance(Protocol):
    """Maintenance in a separate driver, next to the commits of a coordinator. Any thread."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        spark: SparkConfig,
        services: SharedServices,
        metrics: IcebergMetrics,
    ) -> None:
        """Create the maintenance of a connector. `spark` configures the coordinator's sessions."""

    def commit(self, table: str, *aggregates: str) -> AbstractContextManager[None]:
        """Return a context for a commit: no action runs on the table or its aggregates in it."""

    def watch(self, table: str, *, changed: bool = False) -> None:
        """Maintain a table of the connector from now on; inspect it soon if it was changed."""

    def stop(self) -> None:
        """Interrupt the current action, and end all threads and drivers permanently."""


def full_maintenance() -> type[FullMaintenance]:
    """Load the maintenance by the whole policy.

    Raises:
        ConfigError: No package provides it.
    """
    entries = entry_points(group=MAINTENANCE)
    if not entries:
        raise ConfigError(
            f"{MAINTENANCE_PREFIX}enabled",
            f"true requires a package with an entry point of the group {MAINTENANCE}",
        )
    (entry,) = entries
    implementation: type[FullMaintenance] = entry.load()
    return implementation
