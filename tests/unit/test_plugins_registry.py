from __future__ import annotations

import subprocess
import sys

import pytest

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.plugins.plugin_registry import (
    AmbiguousPluginError,
    PluginRegistry,
    PluginTable,
    UnknownPluginError,
)

SINK = Plugin(
    PluginKind.SINK, "com.a.OrdersSinkConnector", "collections:OrderedDict", version="2.0"
)
TWIN = Plugin(PluginKind.SOURCE, "com.b.TwinConnector", "collections:OrderedDict")
OTHER_TWIN = Plugin(PluginKind.SINK, "com.c.TwinConnector", "collections:OrderedDict")
JSON = Plugin(PluginKind.CONVERTER, "org.x.JsonConverter", "collections:Counter")
JSON_HEADERS = Plugin(PluginKind.HEADER_CONVERTER, "org.x.JsonConverter", "collections:Counter")
SIMPLE = Plugin(PluginKind.HEADER_CONVERTER, "org.x.SimpleHeaderConverter", "collections:Counter")
INSERT = Plugin(PluginKind.TRANSFORMATION, "org.x.InsertField$Value", "collections:Counter")


@pytest.fixture
def registry() -> PluginRegistry:
    table = PluginTable(
        (SINK, TWIN, OTHER_TWIN, JSON, JSON_HEADERS, SIMPLE, INSERT), ("b", "a"), "1.0"
    )
    return PluginRegistry([table, PluginTable((), ("a", "c"))])


@pytest.mark.parametrize("name", ["com.a.OrdersSinkConnector", "OrdersSinkConnector", "OrdersSink"])
def test_a_connector_is_found_by_full_simple_and_pruned_name(
    registry: PluginRegistry, name: str
) -> None:
    assert registry.find_connector(name) is SINK


def test_plugin_names_are_matched_with_their_exact_case(registry: PluginRegistry) -> None:
    with pytest.raises(UnknownPluginError):
        registry.find_connector("orderssink")


def test_name_of_two_kinds_resolves_to_the_requested_kind(registry: PluginRegistry) -> None:
    assert registry.find("Json", PluginKind.CONVERTER) is JSON
    assert registry.find("Json", PluginKind.HEADER_CONVERTER) is JSON_HEADERS
    assert registry.find("Simple", PluginKind.HEADER_CONVERTER) is SIMPLE


def test_an_inner_class_is_found_by_its_short_name(registry: PluginRegistry) -> None:
    assert registry.find("InsertField$Value", PluginKind.TRANSFORMATION) is INSERT
    with pytest.raises(UnknownPluginError, match=r"Class InsertField could not be found\."):
        registry.find("InsertField", PluginKind.TRANSFORMATION)


def test_an_unknown_connector_lists_those_that_exist(registry: PluginRegistry) -> None:
    with pytest.raises(UnknownPluginError) as unknown:
        registry.find_connector("Nope")
    assert str(unknown.value) == (
        "Failed to find any class that implements Connector and which name matches Nope, available "
        "connectors are: "
        "com.a.OrdersSinkConnector, com.b.TwinConnector, com.c.TwinConnector"
    )


def test_an_alias_that_kafka_has_too_is_kafkas() -> None:
    names = ("io.debezium.transforms.Filter", "org.apache.kafka.connect.transforms.Filter")
    plugins = tuple(Plugin(PluginKind.TRANSFORMATION, name, f"m:{name}") for name in names)
    registry = PluginRegistry([PluginTable(plugins)])
    assert registry.find("Filter", PluginKind.TRANSFORMATION).name == names[1]
    assert registry.find(names[0]).name == names[0]


def test_an_ambiguous_alias_names_all_candidates(registry: PluginRegistry) -> None:
    with pytest.raises(AmbiguousPluginError) as ambiguous:
        registry.find_connector("Twin")
    assert str(ambiguous.value) == (
        "More than one connector matches alias Twin. Please use full package and class name "
        "instead. Classes found: com.b.TwinConnector, com.c.TwinConnector"
    )


def test_versions_are_the_plugins_or_the_distributions(registry: PluginRegistry) -> None:
    assert registry.version(SINK) == "2.0"
    assert registry.version(TWIN) == "1.0"


def test_preloaded_modules_come_once_in_order(registry: PluginRegistry) -> None:
    assert registry.preload() == ["b", "a", "c"]


def test_class_that_does_not_load_is_named_in_the_error(registry: PluginRegistry) -> None:
    assert registry.load(JSON).__name__ == "Counter"
    with pytest.raises(ConnectError, match="failed to load plugin class no_such_module:X"):
        registry.load(Plugin(PluginKind.SINK, "x", "no_such_module:X"))


def test_installed_plugins_are_listed_without_importing_them() -> None:
    program = (
        "import sys\n"
        "from connect_py.plugins.plugin_registry import PluginRegistry\n"
        "registry = PluginRegistry.discover()\n"
        "print(registry.find_connector('FileStreamSink').name)\n"
        "print([m for m in ('pyarrow', 'pyspark', 'connectors.file_stream.file_stream_sink')"
        " if m in sys.modules])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert answer.stdout.split("\n")[:2] == [
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "[]",
    ]


def test_plugins_under_kafkas_names_have_kafkas_version_beside_their_own() -> None:
    kafkas = Plugin(
        PluginKind.SINK,
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "collections:Counter",
    )
    registry = PluginRegistry([PluginTable((kafkas, SINK), (), "0.1.0")])
    for versions in ("4.1.1", "[4.0,5)", "0.1.0", "latest"):
        assert registry.find_connector("FileStreamSink", versions) is kafkas
    with pytest.raises(ConnectError, match="not found that matches the version range"):
        registry.find_connector("FileStreamSink", "99")
    with pytest.raises(ConnectError, match="not found that matches the version range"):
        registry.find_connector("OrdersSink", "4.1.1")  # nobody else has Kafka's version
