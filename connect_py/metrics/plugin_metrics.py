"""`TaskPluginMetrics`: metrics that a task's plugin defines."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED: Final = frozenset({"connector", "task"})
Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PluginValue:
    """Current value of one metric."""

    name: str  # without the prefix `connect_py_`
    doc: str
    labels: Labels
    value: float


class Measurement:
    """Implements `Gauge` and `Counter`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0.0

    def set(self, value: float) -> None:
        """Set the value. See `Gauge`."""
        self.value = float(value)

    def increment(self, by: float = 1) -> None:
        """Increase the value. See `Counter`."""
        with self._lock:
            self.value += by


class TaskPluginMetrics:
    """Implements `connect_py.api.metrics.PluginMetrics`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[tuple[str, Labels], tuple[str, Measurement]] = {}

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Measurement:
        """Return a gauge. See `PluginMetrics`."""
        return self._metric(name, doc, labels or {})

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Measurement:
        """Return a counter. See `PluginMetrics`."""
        if not name.endswith("_total"):
            raise ValueError(
                f"invalid counter name {name!r}: expected a name that ends with _total"
            )
        return self._metric(name, doc, labels or {})

    def _metric(self, name: str, doc: str, labels: Mapping[str, str]) -> Measurement:
        for each in (name, *labels):
            if not _NAME.fullmatch(each) or each in _RESERVED:
                raise ValueError(f"invalid name of a metric or label: {each!r}")
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            return self._metrics.setdefault(key, (doc, Measurement()))[1]

    def values(self) -> Sequence[PluginValue]:
        """Return the current values of all metrics."""
        with self._lock:
            metrics = list(self._metrics.items())
        return [PluginValue(name, doc, labels, m.value) for (name, labels), (doc, m) in metrics]
