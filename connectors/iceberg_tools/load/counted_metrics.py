"""`CountedMetrics`: measurements that can be read where they were made."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class CountedValue:
    """A gauge or a counter."""

    value: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, value: float) -> None:
        self.value = value

    def increment(self, by: float = 1) -> None:
        with self._lock:
            self.value += by


class CountedMetrics:
    """Satisfies `connect_py.api.metrics.PluginMetrics`. Any thread."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, tuple[tuple[str, str], ...]], CountedValue] = {}

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> CountedValue:
        return self._made.setdefault((name, tuple(sorted((labels or {}).items()))), CountedValue())

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> CountedValue:
        return self.gauge(name, doc, labels)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The values of one measurement, summed over all other labels."""
        found: dict[str, float] = {}
        for (each, labels), value in list(self._made.items()):
            if each == name:
                key = dict(labels).get(label, "")
                found[key] = found.get(key, 0.0) + value.value
        return found
