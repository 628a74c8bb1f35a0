"""`Freshness`: how old tables are, measured also while nothing comes for them, and while their age
is not known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.source_progress import TableAge

MEASURE_MS = 1_000
STALE_MS = 90_000  # after which what was said last says nothing about now; it is said every 30 s


class Freshness:
    """Of one task 0, over all lives of its coordinator, which says what it knows; any thread."""

    def __init__(
        self, metrics: IcebergMetrics, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    ) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._tables: dict[
            str, tuple[int, bool, int]
        ] = {}  # until when, whether it is complete, when that was said
        self._measured_ms = 0

    def tell(self, ages: Mapping[str, TableAge]) -> None:
        """Take what is known of tables now; a table that says no time keeps the one before."""
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
        """Set the metrics, once a second at most: a table lags by nothing only as long as the
        coordinator says so."""
        with self._lock:
            now = self._now_ms()
            if now - self._measured_ms < MEASURE_MS:
                return
            self._measured_ms = now
            for name, (through_ms, complete, said_ms) in self._tables.items():
                lag_ms = 0 if complete and now - said_ms <= STALE_MS else max(0, now - through_ms)
                self._metrics.age(name, through_ms / 1000, lag_ms / 1000)
