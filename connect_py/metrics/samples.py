"""Measurements as a worker has them: Connect's groups and names, tags, a number or a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Sample:
    """A number. `group` is the type of Java's MBean, `connect-worker-metrics`."""

    group: str
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)
    domain: str = "kafka.connect"


@dataclass(frozen=True, slots=True)
class TextSample:
    """A text, which becomes a label of a series that is always 1."""

    group: str
    name: str
    text: str
    tags: Mapping[str, str] = field(default_factory=dict)
    domain: str = "kafka.connect"


@dataclass(frozen=True, slots=True)
class OwnSample:
    """A measurement that Connect does not have; `name` is complete, `connect_py_...`."""

    name: str
    doc: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)


AnySample: TypeAlias = Sample | TextSample | OwnSample
