"""`TaskReport`: metrics that a task sends to its worker every few seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from connect_py.metrics.client_statistics import ClientReport
from connect_py.metrics.plugin_metrics import PluginValue


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Plain data. Empty until the task runs."""

    kind: Literal["sink", "source", ""] = ""
    # by Connect's names, of the task and its errors
    values: Mapping[str, float] = field(default_factory=dict)
    # classes and versions, by Connect's names
    attributes: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[
        tuple[str, str, str, str]
    ] = ()  # (`transform` or `predicate`, alias, class, version)
    clients: Sequence[tuple[str, ClientReport]] = ()  # `consumer` or `producer`, with its report
    plugin: Sequence[PluginValue] = ()
