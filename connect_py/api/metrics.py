"""Metrics of a plugin, which the worker serves with its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Gauge(Protocol):
    """A value that can increase and decrease."""

    def set(self, value: float) -> None:
        """Set the value. Thread-safe."""


class Counter(Protocol):
    """A value that only increases, starting at 0 with the task."""

    def increment(self, by: float = 1) -> None:
        """Increase the value. Thread-safe."""


class PluginMetrics(Protocol):
    """Creates metrics. Returns the same metric for the same name and labels.

    Metrics are served as `connect_py_<name>` with the labels `connector` and `task` in addition to
    their own, with a delay of some seconds, until the task ends. A name consists of lower-case
    alphanumeric characters and underscores and ends with its unit (`_seconds`, `_bytes`); the name
    of a counter ends with `_total`. Labels must have few values.
    """

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Gauge:
        """Return a gauge. ValueError if the name or a label is invalid."""

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Counter:
        """Return a counter. ValueError: see `gauge`."""
