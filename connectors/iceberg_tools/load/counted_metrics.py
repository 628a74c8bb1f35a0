"""`CountedMetrics`: metrics whose values the recording process can read."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class CountedValue:
    """Value of a gauge or a counter."""

    value: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, value: float) -> None:
        self.value = value

    def increment(self, by: float = 1) -> None:
        with self._lock:
            self.value += by


class CountedMetrics:
    """Implements `connect_py.api.metrics.PluginMetrics`. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], CountedValue] = {}

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> CountedValue:
        return self._values.setdefault(
            (name, tuple(sorted((labels or {}).items()))), CountedValue()
        )

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> CountedValue:
        return self.gauge(name, doc, labels)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the values of one metric, summed over all other labels."""
        sums: dict[str, float] = {}
        for (each, labels), value in list(self._values.items()):
            if each == name:
                key = dict(labels).get(label, "")
                sums[key] = sums.get(key, 0.0) + value.value
        return sums
