"""Plugins of one distribution: the table in the module of its entry point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Final

from connect_py.api.errors import ConfigError
from connect_py.api.plugin import Plugin
from connect_py.plugins.plugin_location import import_from

GROUP: Final = "connect_py.plugins"  # group of entry points; each names a module with PLUGINS


@dataclass(frozen=True, slots=True)
class PluginTable:
    """Plugins of one entry point."""

    plugins: tuple[Plugin, ...]
    preload: tuple[
        str, ...
    ] = ()  # modules that are slow to import, to be preloaded by the fork server of tasks
    version: str | None = None  # version of the distribution


def read_table(entry: EntryPoint, version: str | None, location: str | None = None) -> PluginTable:
    """Import the module of an entry point, and nothing else of the plugin.

    Raises:
        ConfigError: Its PLUGINS contain something else.
        Exception: Any error of the module.
    """
    module = import_from(entry.module, location)
    plugins = tuple(getattr(module, "PLUGINS", ()))
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise ConfigError("PLUGINS", f"of {entry.value} contains {plugin!r}, expected a Plugin")
    if location is not None:
        plugins = tuple(
            replace(plugin, version=plugin.version or version, location=location)
            for plugin in plugins
        )
    return PluginTable(plugins, tuple(getattr(module, "PRELOAD", ())), version)
