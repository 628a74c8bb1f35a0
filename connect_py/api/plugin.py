"""Declarations of the plugins in a distribution.

An entry point in the group `connect_py.plugins` refers to a module that defines `PLUGINS`, a
sequence of `Plugin` objects. Listing plugins does not import plugin code. Classes are loaded by
name in the process that uses them. The module may also define `PRELOAD`, a sequence of the names of
modules that are slow to import. The server that forks task processes imports these modules once.
They must not start threads or create clients when they are imported.

Distributions are installed in the worker's environment or in a folder on `plugin.path`, for example
with `pip install --target`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PluginKind(Enum):
    """Plugin type. `GET /connector-plugins` returns the values."""

    SINK = "sink"
    SOURCE = "source"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


@dataclass(frozen=True, slots=True)
class Plugin:
    """Declaration of a plugin under one name. `python` is its class, as `module:Class`.

    `name` is the fully qualified Java class name if users refer to the plugin by that name,
    otherwise the Python name. Several plugins may refer to the same class.
    """

    kind: PluginKind
    name: str
    python: str
    # for connectors: task class name that is written to task configurations
    task_class: str | None = None
    version: str | None = None  # None for the distribution's version
    # set by the worker: the folder on plugin.path that contains the plugin
    location: str | None = None
