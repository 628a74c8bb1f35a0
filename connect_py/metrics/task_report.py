"""`TaskReport`: metrics that a task sends to its worker every few seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from connect_py.metrics.client_statistics import ClientReport
from connect_py.metrics.plugin_metrics import PluginValue


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Metrics of one task as plain data. The report is empty until the task runs."""

    kind: Literal["sink", "source", ""] = ""
    # metrics of the task and its error handler, keyed by Connect's metric names
    values: Mapping[str, float] = field(default_factory=dict)
    # plugin classes and versions, keyed by Connect's metric names
    attributes: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[
        tuple[str, str, str, str]
    ] = ()  # kind (`transform` or `predicate`), alias, class, and version of each
    clients: Sequence[tuple[str, ClientReport]] = ()  # kind (`consumer` or `producer`) and report
    plugin: Sequence[PluginValue] = ()
