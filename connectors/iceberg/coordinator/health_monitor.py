"""`HealthMonitor`: warns about tables with too many snapshots or small files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from connect_py.plurals import pluralize
from connectors.iceberg.maintenance.compaction import TableHealth
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics

log = logging.getLogger(__name__)

SNAPSHOTS, SMALL_FILES = "snapshots", "small files"
LIMITS: Final = {SNAPSHOTS: 5_000, SMALL_FILES: 500}
_NAMES: Final = {SNAPSHOTS: "unexpired snapshot", SMALL_FILES: "small data file"}


class HealthMonitor:
    """Warns once when one of a connector's tables exceeds a limit.

    Calls for the same table must not overlap.
    """

    def __init__(self, metrics: IcebergMetrics, warns: Callable[[str, str | None], None]) -> None:
        """Create a monitor.

        `warns` is called with a subject and a warning for the task status, or with None to remove
        the warning.
        """
        self._metrics = metrics
        self._warns = warns
        self._excesses: set[tuple[str, str]] = set()

    def update(self, table: str, health: TableHealth) -> None:
        """Compare a table's counts with the limits, and update its metrics and warnings."""
        self._metrics.table_state(table, health.data_files, health.delete_files, health.snapshots)
        counts = {SNAPSHOTS: health.snapshots}
        if health.small_files is not None:
            self._metrics.small_files(table, health.small_files)
            counts[SMALL_FILES] = health.small_files
        elif health.data_files <= LIMITS[SMALL_FILES]:
            counts[SMALL_FILES] = 0
        for objects, count in counts.items():
            self._update(table, objects, count)

    def _update(self, table: str, objects: str, count: int) -> None:
        key, is_excessive = (table, objects), count > LIMITS[objects]
        if is_excessive == (key in self._excesses):
            return
        self._metrics.excessive(table, objects, is_excessive=is_excessive)
        subject = f"{objects} of table {table}"
        if not is_excessive:
            self._excesses.remove(key)
            self._warns(subject, None)
            log.info(
                "table %s: %s, no longer more than %d",
                table,
                pluralize(count, _NAMES[objects]),
                LIMITS[objects],
            )
            return
        self._excesses.add(key)
        warning = (
            f"table {table} has {pluralize(count, _NAMES[objects])}, more than {LIMITS[objects]}: "
            f"queries and commits are slow; run connect-py maintain {table}, or set "
            f"iceberg.table.{table}.maintenance.enabled=true"
        )
        self._warns(subject, warning)
        log.warning("%s", warning, extra={"action": "table_excessive", "table": table})
