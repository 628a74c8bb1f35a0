"""`Freshness`: updates the metrics for table freshness, even if no records arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.source_progress import TableAge

MEASURE_MS = 1_000
EXPIRY_MS = 90_000  # validity of an update; updates arrive every 30 s


class Freshness:
    """Tracks table freshness across all runs of a coordinator. Thread-safe."""

    def __init__(
        self, metrics: IcebergMetrics, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    ) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._lock = threading.Lock()
        # table -> time through which it is complete, True if it is current, time of the update
        self._tables: dict[str, tuple[int, bool, int]] = {}
        self._measured_ms = 0

    def update(self, ages: Mapping[str, TableAge]) -> None:
        """Update the times through which tables are complete.

        A table whose time is unknown retains its previous time.
        """
        with self._lock:
            now = self._now_ms()
            for name, age in ages.items():
                through = age.through_ms
                if through is None and name in self._tables:
                    through, *_ = self._tables[name]
                if through is not None:
                    self._tables[name] = through, age.complete, now
            self._measured_ms = 0
        self.measure()

    def measure(self) -> None:
        """Set the metrics, at most once per second.

        The lag of a table is 0 only while the coordinator confirms that the table is current.
        """
        with self._lock:
            now = self._now_ms()
            if now - self._measured_ms < MEASURE_MS:
                return
            self._measured_ms = now
            for name, (through_ms, is_current, updated_ms) in self._tables.items():
                is_confirmed = is_current and now - updated_ms <= EXPIRY_MS
                lag_ms = 0 if is_confirmed else max(0, now - through_ms)
                self._metrics.age(name, through_ms / 1000, lag_ms / 1000)
