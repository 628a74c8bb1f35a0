"""`TaskPluginMetrics`: measurements that a task's plugin makes itself."""

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
    """One measurement."""

    name: str  # without our prefix
    doc: str
    labels: Labels
    value: float


class Measurement:
    """Satisfies `Gauge` and `Counter`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0.0

    def set(self, value: float) -> None:
        """See there."""
        self.value = float(value)

    def increment(self, by: float = 1) -> None:
        """See there."""
        with self._lock:
            self.value += by


class TaskPluginMetrics:
    """Satisfies `connect_py.api.metrics.PluginMetrics`. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[str, Labels], tuple[str, Measurement]] = {}

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Measurement:
        """See there."""
        return self._make(name, doc, labels or {})

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Measurement:
        """See there."""
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter ends with _total: {name}")
        return self._make(name, doc, labels or {})

    def _make(self, name: str, doc: str, labels: Mapping[str, str]) -> Measurement:
        for text in (name, *labels):
            if not _NAME.fullmatch(text) or text in _RESERVED:
                raise ValueError(f"{text!r} is not acceptable as a name of a measurement or label")
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            return self._made.setdefault(key, (doc, Measurement()))[1]

    def values(self) -> Sequence[PluginValue]:
        """All of them, now."""
        with self._lock:
            made = list(self._made.items())
        return [PluginValue(name, doc, labels, m.value) for (name, labels), (doc, m) in made]
