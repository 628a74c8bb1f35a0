"""`FullMaintenance`: plug-in interface for the complete maintenance policy (`enabled=true`).

An entry point in the group `connect_py.iceberg.maintenance` provides the implementation. It is
loaded only if `enabled=true` is set for at least one of the connector's tables.
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
INSPECTION: Final = "look at the table"  # value of the metric label `action`


class FullMaintenance(Protocol):
    """Maintains tables in a separate driver, concurrently with commits. Thread-safe."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        spark: SparkConfig,
        services: SharedServices,
        metrics: IcebergMetrics,
    ) -> None:
        """Create a connector's maintenance. `spark` configures the coordinator's sessions."""

    def commit(self, table: str, *aggregates: str) -> AbstractContextManager[None]:
        """Return a context manager that prevents maintenance of these tables during a commit."""

    def watch(self, table: str, *, changed: bool = False) -> None:
        """Start maintaining one of the connector's tables. Inspect it soon if `changed` is true."""

    def stop(self) -> None:
        """Interrupt the current action, and end all threads and drivers permanently."""


def full_maintenance() -> type[FullMaintenance]:
    """Load the implementation of the complete maintenance policy.

    Raises:
        ConfigError: No package provides it.
    """
    entries = entry_points(group=MAINTENANCE)
    if not entries:
        raise ConfigError(
            f"{MAINTENANCE_PREFIX}enabled",
            f"true requires a package with an entry point in the group {MAINTENANCE}",
        )
    (entry,) = entries
    implementation: type[FullMaintenance] = entry.load()
    return implementation
