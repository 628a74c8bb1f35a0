"""`PluginRegistry`: which plugins are installed, and how their names are looked up."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Self

from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.plugin import Plugin, PluginKind

GROUP = "connect_py.plugins"  # of entry points; each names a module with PLUGINS
CONNECTORS = (PluginKind.SINK, PluginKind.SOURCE)

# Longest first: "SimpleHeaderConverter" is "Simple" as a header converter.
_SUFFIXES: Mapping[PluginKind, tuple[str, ...]] = {
    PluginKind.SINK: ("Connector",),
    PluginKind.SOURCE: ("Connector",),
    PluginKind.CONVERTER: ("Converter",),
    PluginKind.HEADER_CONVERTER: ("HeaderConverter", "Converter"),
    PluginKind.TRANSFORMATION: ("Transformation",),
    PluginKind.PREDICATE: ("Predicate",),
}

log = logging.getLogger(__name__)


class UnknownPluginError(NotFoundError):
    """No installed plugin has this name; the text is Connect's."""


class AmbiguousPluginError(ConnectError):
    """Several plugins have this alias; the text is Connect's and lists their full names."""


@dataclass(frozen=True, slots=True)
class PluginTable:
    """What one entry point brings."""

    plugins: tuple[Plugin, ...]
    preload: tuple[str, ...] = ()  # modules that are slow to import, for the server that tasks fork from
    version: str | None = None  # the distribution's


class PluginRegistry:
    """Looks plugins up by full name, simple name or alias. Immutable; safe on any thread.

    Making one imports the modules that entry points name and nothing else: classes are imported by `load`, in the
    process that uses them.
    """

    def __init__(self, tables: Iterable[PluginTable]) -> None:
        self._tables = tuple(tables)
        self._versions: dict[Plugin, str | None] = {}
        self._by_name: dict[str, list[Plugin]] = {}
        self._by_alias: dict[str, list[Plugin]] = {}
        for table in self._tables:
            for plugin in table.plugins:
                self._versions[plugin] = plugin.version or table.version
                self._by_name.setdefault(plugin.name, []).append(plugin)
        for plugin in self._versions:
            for alias in _aliases(plugin):
                self._by_alias.setdefault(alias, []).append(plugin)

    @classmethod
    def discover(cls) -> Self:
        """Read the tables of all installed distributions; one that does not import is logged and left out."""
        tables = []
        for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
            try:
                tables.append(_table(entry))
            except Exception:
                log.exception("plugins of %s (%s) cannot be used", entry.name, entry.value)
        return cls(tables)

    @property
    def tables(self) -> Sequence[PluginTable]:
        """What this registry was made of; plain data, from which another process makes the same."""
        return self._tables

    def preload(self) -> Sequence[str]:
        """Modules that plugins want imported before task processes fork, in order, each once."""
        return list(dict.fromkeys(module for table in self._tables for module in table.preload))

    def available(self, *kinds: PluginKind) -> list[Plugin]:
        """The plugins of these kinds (all without any), sorted by name."""
        return sorted((p for p in self._versions if not kinds or p.kind in kinds), key=lambda p: (p.name, p.python))

    def version(self, plugin: Plugin) -> str | None:
        """The plugin's version, or its distribution's."""
        return self._versions.get(plugin) or plugin.version

    def find(self, name: str, *kinds: PluginKind) -> Plugin:
        """Return the plugin of one of these kinds (any without any) that has this name.

        Raises:
            UnknownPluginError: There is none.
            AmbiguousPluginError: The alias fits several classes.
        """
        exact = [p for p in self._by_name.get(name, ()) if not kinds or p.kind in kinds]
        if exact:
            return exact[0]
        found = [p for p in self._by_alias.get(name, ()) if not kinds or p.kind in kinds]
        names = sorted({p.name for p in found})
        if len(names) == 1:
            return found[0]
        if names:
            what = "connector" if set(kinds) <= set(CONNECTORS) else "plugin"
            raise AmbiguousPluginError(
                f"More than one {what} matches alias {name}. Please use full package and class name instead. "
                f"Classes found: {', '.join(names)}"
            )
        if kinds and set(kinds) <= set(CONNECTORS):
            listed = ", ".join(p.name for p in self.available(*CONNECTORS))
            raise UnknownPluginError(
                "Failed to find any class that implements Connector and which name matches "
                f"{name}, available connectors are: {listed}"
            )
        raise UnknownPluginError(f"Class {name} could not be found.")

    def find_connector(self, name: str) -> Plugin:
        """`find` among sinks and sources: the look-up of `connector.class`."""
        return self.find(name, *CONNECTORS)

    def load(self, plugin: Plugin) -> type[Any]:
        """Import the plugin's class.

        Raises:
            ConnectError: The module does not import or has no such class.
        """
        return load_class(plugin.python)


def load_class(python: str) -> type[Any]:
    """Import `module:Class`; ConnectError when that fails."""
    module, _, name = python.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConnectError(f"plugin class {python} cannot be loaded: {error}") from error
    if not isinstance(found, type):
        raise ConnectError(f"{python} is no class")
    return found


def _aliases(plugin: Plugin) -> list[str]:
    simple = plugin.name.rpartition(".")[2]
    aliases = [simple]
    for suffix in _SUFFIXES[plugin.kind]:
        if simple.endswith(suffix) and simple != suffix:
            aliases.append(simple.removesuffix(suffix))
            break
    return aliases


def _table(entry: EntryPoint) -> PluginTable:
    module = importlib.import_module(entry.module)
    plugins = tuple(getattr(module, "PLUGINS", ()))
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise ConfigError("PLUGINS", f"of {entry.value} holds {plugin!r}, expected a Plugin")
    own = None if entry.dist is None else entry.dist.version
    if own is None:
        try:
            own = version("connect-py")
        except PackageNotFoundError:
            own = None
    return PluginTable(plugins, tuple(getattr(module, "PRELOAD", ())), own)
