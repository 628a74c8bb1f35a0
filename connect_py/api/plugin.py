"""How a distribution tells the worker which plugins it brings.

An entry point of the group `connect_py.plugins` names a module; the module's `PLUGINS` is a
sequence of `Plugin`. Listing plugins thus imports no plugin code: classes are loaded by name, in
the process that uses them. The module may also have `PRELOAD`, names of modules that are slow to
import: the server that task processes fork from imports them once. They must start no thread and no
client when imported.

Distributions are installed beside the worker, or lie in a folder of `plugin.path`, as `pip install
--target` puts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PluginKind(Enum):
    """The kinds of plugins; the values are what `GET /connector-plugins` shows."""

    SINK = "sink"
    SOURCE = "source"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One name under which one class is known.

    `name` is the full Java class name where users know one (several plugins may name the same
    class), otherwise the Python one. `python` is `module:Class`.
    """

    kind: PluginKind
    name: str
    python: str
    # connectors: the task's class name, as task configurations carry it
    task_class: str | None = None
    version: str | None = None  # None: the distribution's version
    # the worker's to set: the folder of plugin.path that it was found in
    location: str | None = None
