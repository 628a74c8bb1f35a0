"""What one distribution brings: the table of plugins in the module that its entry point names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Final

from connect_py.api.errors import ConfigError
from connect_py.api.plugin import Plugin
from connect_py.plugins.plugin_location import import_from

GROUP: Final = "connect_py.plugins"  # of entry points; each names a module with PLUGINS


@dataclass(frozen=True, slots=True)
class PluginTable:
    """What one entry point brings."""

    plugins: tuple[Plugin, ...]
    preload: tuple[
        str, ...
    ] = ()  # modules that are slow to import, for the server that tasks fork from
    version: str | None = None  # the distribution's


def read_table(entry: EntryPoint, version: str | None, location: str | None = None) -> PluginTable:
    """Import the module that an entry point names, and nothing else of the plugin.

    Raises:
        ConfigError: Its PLUGINS holds something else.
        Exception: Whatever the module raises.
    """
    module = import_from(entry.module, location)
    plugins = tuple(getattr(module, "PLUGINS", ()))
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise ConfigError("PLUGINS", f"of {entry.value} holds {plugin!r}, expected a Plugin")
    if location is not None:
        plugins = tuple(
            replace(plugin, version=plugin.version or version, location=location)
            for plugin in plugins
        )
    return PluginTable(plugins, tuple(getattr(module, "PRELOAD", ())), version)
