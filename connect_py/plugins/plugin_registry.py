"""`PluginRegistry`: looks up installed plugins by name."""

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

# The longest suffix is first, so the alias of "SimpleHeaderConverter" is "Simple", not
# "SimpleHeader".
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
    """No installed plugin has this name. The message is Kafka Connect's."""


class AmbiguousPluginError(ConnectError):
    """Several plugins have this alias. The message is Kafka Connect's and lists their names."""


class PluginRegistry:
    """Looks up plugins by full name, simple name, or alias. Immutable and thread-safe.

    Creating a registry imports only the modules that the entry points name. `load` imports a plugin
    class in the process that uses it.
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
        """Create a registry of the plugins in installed distributions and in `plugin.path` folders.

        A distribution whose plugin table cannot be read is logged and skipped.
        """
        tables = []
        for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
            try:
                tables.append(read_table(entry, _version(entry)))
            except Exception:
                log.exception("failed to load plugins from %s (%s)", entry.name, entry.value)
        locations = plugin_locations(paths)
        return cls([*tables, *(scan(locations) if locations else ())])

    @property
    def tables(self) -> Sequence[PluginTable]:
        """Plugin tables as plain data, from which another process can create the same registry."""
        return self._tables

    def preload(self) -> Sequence[str]:
        """Return the modules to import before task processes are forked, in order."""
        return list(dict.fromkeys(module for table in self._tables for module in table.preload))

    def available(self, *kinds: PluginKind) -> list[Plugin]:
        """Return the plugins of these kinds (all by default), sorted by name."""
        return sorted(
            (p for p in self._versions if not kinds or p.kind in kinds),
            key=lambda p: (p.name, p.python),
        )

    def version(self, plugin: Plugin) -> str | None:
        """Return the plugin's version, which defaults to the version of its distribution."""
        return self._versions.get(plugin) or plugin.version

    def fits(self, plugin: Plugin, version_range: VersionRange) -> bool:
        """Return True if a plugin's version is in a range.

        A plugin with the class name of a Kafka plugin also matches if Kafka's version is in the
        range.
        """
        return self.version(plugin) in version_range or (
            plugin.name.startswith(KAFKAS) and KAFKA_VERSION in version_range
        )

    def find(self, name: str, *kinds: PluginKind, versions: str | None = None) -> Plugin:
        """Return the plugin with this name and kind (any kind by default).

        If several plugins share an alias, Kafka's own plugin takes precedence, because a
        configuration may have been written before the other plugins were installed. If several
        versions are installed, the newest version in the range `versions` is returned. By default,
        any version matches.

        Raises:
            UnknownPluginError: No plugin matches.
            AmbiguousPluginError: The alias matches several classes.
            ConnectError: No version is in the range; ConfigError if the range is invalid.
        """
        matches = [p for p in self._by_name.get(name, ()) if not kinds or p.kind in kinds]
        matches = matches or [
            p for p in self._by_alias.get(name, ()) if not kinds or p.kind in kinds
        ]
        matches = [p for p in matches if p.name.startswith(KAFKAS)] or matches
        names = sorted({p.name for p in matches})
        if len(names) == 1:
            return self._newest(matches, versions)
        if names:
            label = "connector" if set(kinds) <= set(CONNECTORS) else "plugin"
            raise AmbiguousPluginError(
                f"More than one {label} matches alias {name}. Please use full package and class "
                f"name instead. Classes found: {', '.join(names)}"
            )
        if kinds and set(kinds) <= set(CONNECTORS):
            available = ", ".join(p.name for p in self.available(*CONNECTORS))
            raise UnknownPluginError(
                "Failed to find any class that implements Connector and which name matches "
                f"{name}, available connectors are: {available}"
            )
        raise UnknownPluginError(f"Class {name} could not be found.")

    def _newest(self, plugins: Sequence[Plugin], versions: str | None) -> Plugin:
        """Return the plugin with the newest version in the range.

        If two plugins have the same version, an installed plugin takes precedence over a plugin in
        a `plugin.path` folder.
        """
        if versions is not None:
            version_range = VersionRange.parse(versions)
            fitting = [plugin for plugin in plugins if self.fits(plugin, version_range)]
            if not fitting:
                available_versions = ", ".join(str(self.version(plugin)) for plugin in plugins)
                raise ConnectError(
                    f"Plugin {plugins[0].name} not found that matches the version range "
                    f"{version_range}, available versions: [{available_versions}]"
                )
            plugins = fitting
        return max(plugins, key=lambda plugin: version_order(self.version(plugin) or ""))

    def find_connector(self, name: str, versions: str | None = None) -> Plugin:
        """Return the sink or source connector with this name, as used in `connector.class`."""
        return self.find(name, *CONNECTORS, versions=versions)

    def connector_of(self, config: Mapping[str, str | None]) -> Plugin:
        """Return the plugin with the connector class and version that a configuration requests.

        Raises the same errors as `find`.
        """
        return self.find_connector(
            (config.get("connector.class") or "").strip(), config.get("connector.plugin.version")
        )

    def load(self, plugin: Plugin) -> type[Any]:
        """Import the plugin's class.

        Raises:
            ConnectError: The module cannot be imported or does not contain the class.
        """
        return load_class(plugin.python, plugin.location)


def load_class(python: str, location: str | None = None) -> type[Any]:
    """Import the class `module:Class`, from the folder `location` if it is not None.

    Raises:
        ConnectError: The module cannot be imported or does not contain the class.
    """
    module, _, name = python.partition(":")
    try:
        loaded: Any = import_from(module, location)
        for part in name.split("."):
            loaded = getattr(loaded, part)
    except (ImportError, AttributeError) as error:
        raise ConnectError(f"failed to load plugin class {python}: {error}") from error
    if not isinstance(loaded, type):
        raise ConnectError(f"{python} is not a class")
    return loaded


def _aliases(plugin: Plugin) -> list[str]:
    simple = plugin.name.rpartition(".")[2]
    aliases = [simple]
    for suffix in _SUFFIXES[plugin.kind]:
        if simple.endswith(suffix) and simple != suffix:
            aliases.append(simple.removesuffix(suffix))
            break
    return aliases


def _version(entry: EntryPoint) -> str | None:
    """Return the version of the entry point's distribution, or of connect-py if it has none."""
    if entry.dist is not None:
        return entry.dist.version
    try:
        return version("connect-py")
    except PackageNotFoundError:
        return None
