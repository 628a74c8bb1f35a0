"""Declaration of the plugins in a distribution.

An entry point of the group `connect_py.plugins` refers to a module whose `PLUGINS` is a sequence of
`Plugin`. Listing plugins does not import plugin code: classes are loaded by name, in the process
that uses them. The module may also define `PRELOAD`, the names of modules that are slow to import:
the server that forks task processes imports them once. They must not start threads or clients when
they are imported.

Distributions are installed with the worker or in a folder of `plugin.path`, for example by `pip
install --target`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PluginKind(Enum):
    """Kinds of plugins. `GET /connector-plugins` shows the values."""

    SINK = "sink"
    SOURCE = "source"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A name of a class. `python` is `module:Class`.

    `name` is the full Java class name if users know the plugin by it (several plugins may refer to
    the same class), otherwise the Python name.
    """

    kind: PluginKind
    name: str
    python: str
    # of a connector: class name of its tasks in task configurations
    task_class: str | None = None
    version: str | None = None  # None: the distribution's version
    # set by the worker: the folder of plugin.path that contains the plugin
    location: str | None = None
