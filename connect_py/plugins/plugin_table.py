"""`PluginTable`: the plugins that one entry point of a distribution declares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Final

from connect_py.api.errors import ConfigError
from connect_py.api.plugin import Plugin
from connect_py.plugins.plugin_location import import_from

GROUP: Final = "connect_py.plugins"  # entry point group; each entry names a module with PLUGINS


@dataclass(frozen=True, slots=True)
class PluginTable:
    """Plugins that one entry point declares."""

    plugins: tuple[Plugin, ...]
    # slow modules that the fork server imports before it forks task processes
    preload: tuple[str, ...] = ()
    version: str | None = None  # version of the distribution


def read_table(entry: EntryPoint, version: str | None, location: str | None = None) -> PluginTable:
    """Return the plugins that an entry point declares. Imports only the entry point's module.

    Raises:
        ConfigError: PLUGINS contains an object that is not a `Plugin`.
        Exception: Any error that importing the module raises.
    """
    module = import_from(entry.module, location)
    plugins = tuple(getattr(module, "PLUGINS", ()))
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise ConfigError("PLUGINS", f"{entry.value} contains {plugin!r}, expected a Plugin")
    if location is not None:
        plugins = tuple(
            replace(plugin, version=plugin.version or version, location=location)
            for plugin in plugins
        )
    return PluginTable(plugins, tuple(getattr(module, "PRELOAD", ())), version)
