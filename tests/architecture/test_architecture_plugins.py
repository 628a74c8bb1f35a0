"""Every plugin that we ship loads under its name, is of its kind, and documents its keys."""

from __future__ import annotations

import re

import pytest

from connect_py.api.config import ConfigDef
from connect_py.api.connector import SinkConnector, SourceConnector
from connect_py.api.converter import Converter, HeaderConverter
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.predicate import Predicate
from connect_py.api.task import SinkTask, SourceTask
from connect_py.api.transformation import Transformation
from connect_py.plugins.plugin_registry import PluginRegistry

BASES: dict[PluginKind, type] = {
    PluginKind.SINK: SinkConnector,
    PluginKind.SOURCE: SourceConnector,
    PluginKind.CONVERTER: Converter,
    PluginKind.HEADER_CONVERTER: HeaderConverter,
    PluginKind.TRANSFORMATION: Transformation,
    PluginKind.PREDICATE: Predicate,
}
REGISTRY = PluginRegistry.discover()
PLUGINS = REGISTRY.available()


def _name(plugin: Plugin) -> str:
    return f"{plugin.kind.value}-{plugin.name}"


def test_all_four_packages_bring_their_plugins() -> None:
    packages = {plugin.python.partition(":")[0].rpartition(".")[0] for plugin in PLUGINS}
    roots = {package.partition(".")[0] for package in packages}
    assert roots == {"connect_py", "connectors", "transforms"}
    assert {"connectors.file_stream", "connectors.iceberg", "connect_py.converters"} <= packages


@pytest.mark.parametrize("plugin", PLUGINS, ids=_name)
def test_a_plugin_loads_and_is_of_its_kind(plugin: Plugin) -> None:
    loaded = REGISTRY.load(plugin)
    assert issubclass(loaded, BASES[plugin.kind])
    assert not getattr(loaded, "__abstractmethods__", None)


@pytest.mark.parametrize("plugin", PLUGINS, ids=_name)
def test_every_plugin_documents_each_configuration_key_in_words(plugin: Plugin) -> None:
    definition = REGISTRY.load(plugin).config_def
    assert isinstance(definition, ConfigDef)
    wordless = [key.name for key in definition if not re.search(r"\w+ \w+", key.doc)]
    assert wordless == []


@pytest.mark.parametrize(
    "plugin", [p for p in PLUGINS if p.kind in (PluginKind.SINK, PluginKind.SOURCE)], ids=_name
)
def test_a_connector_names_its_task_as_java_does(plugin: Plugin) -> None:
    task = REGISTRY.load(plugin).task_class
    assert issubclass(task, SinkTask if plugin.kind is PluginKind.SINK else SourceTask)
    assert plugin.task_class == plugin.name.removesuffix("Connector") + "Task"


@pytest.mark.parametrize("plugin", PLUGINS, ids=_name)
def test_every_plugin_that_we_ship_has_a_version(plugin: Plugin) -> None:
    assert REGISTRY.version(plugin)
