"""Metric values of a worker, with Connect's groups and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Sample:
    """A numeric metric. `group` is the MBean's type in Java, such as `connect-worker-metrics`."""

    group: str
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)
    domain: str = "kafka.connect"


@dataclass(frozen=True, slots=True)
class TextSample:
    """A string metric, exported as a label on a time series with the constant value 1."""

    group: str
    name: str
    text: str
    tags: Mapping[str, str] = field(default_factory=dict)
    domain: str = "kafka.connect"


@dataclass(frozen=True, slots=True)
class OwnSample:
    """A metric that Connect does not have. `name` is the full name, including `connect_py_`."""

    name: str
    doc: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)


AnySample: TypeAlias = Sample | TextSample | OwnSample
