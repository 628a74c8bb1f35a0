"""Metrics that a plugin adds to the worker's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Gauge(Protocol):
    """A value that can increase and decrease."""

    def set(self, value: float) -> None:
        """Set the value. Thread-safe."""


class Counter(Protocol):
    """A value that only increases. It starts at 0 when the task starts."""

    def increment(self, by: float = 1) -> None:
        """Increase the value. Thread-safe."""


class PluginMetrics(Protocol):
    """Creates metrics. Calls with the same name and labels always return the same metric.

    Metrics are exposed as `connect_py_<name>` until the task ends. Updates appear within seconds.
    The labels `connector` and `task` are added to each metric. A name consists of lowercase
    alphanumeric characters and underscores and ends with its unit (`_seconds`, `_bytes`). The name
    of a counter ends with `_total`. Labels must have few distinct values.
    """

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Gauge:
        """Return a gauge. Raises ValueError if the name or a label is invalid."""

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Counter:
        """Return a counter. Raises ValueError if the name or a label is invalid."""
