"""`PluginRegistry`: which plugins are installed, and how their names are looked up."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Self

from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.config.version_range import VersionRange, version_order
from connect_py.model import KAFKA_VERSION
from connect_py.plugins.plugin_location import import_from
from connect_py.plugins.plugin_path import plugin_locations, scan
from connect_py.plugins.plugin_table import GROUP, PluginTable, read_table

CONNECTORS = (PluginKind.SINK, PluginKind.SOURCE)
KAFKAS = "org.apache.kafka."

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


class PluginRegistry:
    """Looks plugins up by full name, simple name or alias. Immutable; safe on any thread.

    Making one imports the modules that entry points name and nothing else: classes are imported by
    `load`, in the process that uses them.
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
    def discover(cls, paths: Iterable[str] = ()) -> Self:
        """Read the tables of all installed distributions, and of those in the folders of
        `plugin.path`.

        One that cannot be read is logged and left out.
        """
        tables = []
        for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
            try:
                tables.append(read_table(entry, _version(entry)))
            except Exception:
                log.exception("plugins of %s (%s) cannot be used", entry.name, entry.value)
        locations = plugin_locations(paths)
        return cls([*tables, *(scan(locations) if locations else ())])

    @property
    def tables(self) -> Sequence[PluginTable]:
        """What this registry was made of; plain data, from which another process makes the same."""
        return self._tables

    def preload(self) -> Sequence[str]:
        """Modules that plugins want imported before task processes fork, in order, each once."""
        return list(dict.fromkeys(module for table in self._tables for module in table.preload))

    def available(self, *kinds: PluginKind) -> list[Plugin]:
        """The plugins of these kinds (all without any), sorted by name."""
        return sorted(
            (p for p in self._versions if not kinds or p.kind in kinds),
            key=lambda p: (p.name, p.python),
        )

    def version(self, plugin: Plugin) -> str | None:
        """The plugin's version, or its distribution's."""
        return self._versions.get(plugin) or plugin.version

    def fits(self, plugin: Plugin, wanted: VersionRange) -> bool:
        """Whether a plugin's version is in a range. Plugins under Kafka's names have Kafka's
        version beside ours."""
        return self.version(plugin) in wanted or (
            plugin.name.startswith(KAFKAS) and KAFKA_VERSION in wanted
        )

    def find(self, name: str, *kinds: PluginKind, versions: str | None = None) -> Plugin:
        """Return the plugin of one of these kinds (any without any) that has this name.

        An alias that Kafka's own plugin shares with others is Kafka's: configurations used it
        before the others came along with this worker. Of several versions it is the newest, or the
        newest in the range `versions`.

        Raises:
            UnknownPluginError: There is none.
            AmbiguousPluginError: The alias fits several classes.
            ConnectError: No version is in the range; ConfigError when that cannot be read.
        """
        found = [p for p in self._by_name.get(name, ()) if not kinds or p.kind in kinds]
        found = found or [p for p in self._by_alias.get(name, ()) if not kinds or p.kind in kinds]
        found = [p for p in found if p.name.startswith(KAFKAS)] or found
        names = sorted({p.name for p in found})
        if len(names) == 1:
            return self._newest(found, versions)
        if names:
            what = "connector" if set(kinds) <= set(CONNECTORS) else "plugin"
            raise AmbiguousPluginError(
                f"More than one {what} matches alias {name}. Please use full package and class "
                f"name instead. Classes found: {', '.join(names)}"
            )
        if kinds and set(kinds) <= set(CONNECTORS):
            listed = ", ".join(p.name for p in self.available(*CONNECTORS))
            raise UnknownPluginError(
                "Failed to find any class that implements Connector and which name matches "
                f"{name}, available connectors are: {listed}"
            )
        raise UnknownPluginError(f"Class {name} could not be found.")

    def _newest(self, found: Sequence[Plugin], versions: str | None) -> Plugin:
        """The newest in the range; those that are installed with the worker win over equals."""
        if versions is not None:
            wanted = VersionRange.parse(versions)
            fitting = [plugin for plugin in found if self.fits(plugin, wanted)]
            if not fitting:
                known = ", ".join(str(self.version(plugin)) for plugin in found)
                raise ConnectError(
                    f"Plugin {found[0].name} not found that matches the version range {wanted}, "
                    f"available versions: [{known}]"
                )
            found = fitting
        return max(found, key=lambda plugin: version_order(self.version(plugin) or ""))

    def find_connector(self, name: str, versions: str | None = None) -> Plugin:
        """`find` among sinks and sources: the look-up of `connector.class`."""
        return self.find(name, *CONNECTORS, versions=versions)

    def connector_of(self, config: Mapping[str, str | None]) -> Plugin:
        """The connector that a configuration names, in the version that it wants; errors as of
        `find`."""
        return self.find_connector(
            (config.get("connector.class") or "").strip(), config.get("connector.plugin.version")
        )

    def load(self, plugin: Plugin) -> type[Any]:
        """Import the plugin's class.

        Raises:
            ConnectError: The module does not import or has no such class.
        """
        return load_class(plugin.python, plugin.location)


def load_class(python: str, location: str | None = None) -> type[Any]:
    """Import `module:Class`, with a location from there; ConnectError when that fails."""
    module, _, name = python.partition(":")
    try:
        found: Any = import_from(module, location)
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


def _version(entry: EntryPoint) -> str | None:
    """The distribution's, or our own."""
    if entry.dist is not None:
        return entry.dist.version
    try:
        return version("connect-py")
    except PackageNotFoundError:
        return None
