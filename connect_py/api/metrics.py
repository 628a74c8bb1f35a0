"""Measurements of a plugin's own, served with the worker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Gauge(Protocol):
    """A value that goes up and down."""

    def set(self, value: float) -> None:
        """Replace the value. Any thread."""


class Counter(Protocol):
    """A value that only grows, from 0 at the start of the task."""

    def increment(self, by: float = 1) -> None:
        """Add to the value. Any thread."""


class PluginMetrics(Protocol):
    """Makes measurements; asked again for the same name and labels it returns the same one.

    They appear as `connect_py_<name>` with the labels `connector` and `task` besides those given,
    some seconds late, and vanish with the task. A name consists of lower-case letters, digits and
    underscores and ends with its unit (`_seconds`, `_bytes`); a counter's ends with `_total`.
    Labels must have few values.
    """

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Gauge:
        """Make a gauge. ValueError: the name, or a label's, is not acceptable."""

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> Counter:
        """Make a counter. ValueError as for `gauge`."""
