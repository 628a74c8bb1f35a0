"""Metric values of a worker: Connect's groups and names, tags, and a number or a string."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Sample:
    """A number. `group` is the type of Java's MBean, such as `connect-worker-metrics`."""

    group: str
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)
    domain: str = "kafka.connect"


@dataclass(frozen=True, slots=True)
class TextSample:
    """A string, which becomes the label of a series with the constant value 1."""

    group: str
    name: str
    text: str
    tags: Mapping[str, str] = field(default_factory=dict)
    domain: str = "kafka.connect"


@dataclass(frozen=True, slots=True)
class OwnSample:
    """A metric that Connect does not have. `name` is complete: `connect_py_...`."""

    name: str
    doc: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)


AnySample: TypeAlias = Sample | TextSample | OwnSample
