"""`plugin.path`: plugins in its folders, and invalid files that must not stop the worker."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from plugin_folder import make_plugin

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.plugins.plugin_path import plugin_locations, scan
from connect_py.plugins.plugin_registry import PluginRegistry, load_class

NAME = "com.example.PathSinkConnector"


def test_plugin_path_is_one_plugin_or_a_folder_of_plugins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_plugin(tmp_path / "one", "1.0")
    two = make_plugin(tmp_path / "many" / "two", "1.0")
    (tmp_path / "many" / "jars").mkdir()
    (tmp_path / "many" / ".hidden").mkdir()
    with caplog.at_level(logging.INFO):
        found = plugin_locations(
            [
                str(one),
                str(tmp_path / "many"),
                str(one),
                "",
                "/no/such/folder",
                str(tmp_path / "many" / "jars"),
            ]
        )
    assert found == [one, two]
    assert "Could not get listing for plugin path: /no/such/folder. Ignoring." in caplog.text
    assert "jars does not contain Python plugins" in caplog.text


def test_versions_of_one_connector_are_listed_and_chosen_by_range(tmp_path: Path) -> None:
    make_plugin(tmp_path / "old", "1.2.0")
    make_plugin(tmp_path / "new", "1.10.0")
    registry = PluginRegistry.discover([str(tmp_path)])
    assert [registry.version(p) for p in registry.available() if p.name == NAME] == [
        "1.10.0",
        "1.2.0",
    ]
    assert registry.version(registry.find_connector("PathSink")) == "1.10.0"
    old = registry.connector_of({"connector.class": NAME, "connector.plugin.version": "[1.0,1.5)"})
    assert (registry.version(old), old.location) == ("1.2.0", str(tmp_path / "old"))
    with pytest.raises(
        ConnectError,
        match=r"not found that matches the version range \[2.0,\), available versions: \[1",
    ):
        registry.find_connector(NAME, "[2.0,)")
    with pytest.raises(ConfigError):
        registry.find_connector(NAME, "[2.0")
    assert "path_plugin" not in sys.modules  # nothing of it was imported here


def test_a_broken_plugin_is_named_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    locations = [
        make_plugin(tmp_path / "raises", "1.0", table="raise RuntimeError('broken on purpose')"),
        make_plugin(tmp_path / "leaves", "1.0", table="import os; os._exit(3)"),
        make_plugin(tmp_path / "shadowed", "1.0", package="httpx"),
        make_plugin(tmp_path / "good", "1.0"),
    ]
    with caplog.at_level(logging.WARNING):
        tables = scan(locations)
    assert [plugin.location for table in tables for plugin in table.plugins] == [
        str(tmp_path / "good")
    ]
    assert "RuntimeError: broken on purpose" in caplog.text
    assert f"failed to list plugins in {tmp_path / 'leaves'}: exit status 3" in caplog.text
    assert "cannot import module httpx from" in caplog.text


def test_class_is_loaded_from_its_own_folder_or_refused(tmp_path: Path) -> None:
    one = make_plugin(tmp_path / "one", "1.0", package="path_plugin_of_a_test")
    two = make_plugin(tmp_path / "two", "2.0", package="path_plugin_of_a_test")
    python = "path_plugin_of_a_test.connector:PathSinkConnector"
    assert load_class(python, str(one)).__name__ == "PathSinkConnector"
    with pytest.raises(
        ConnectError, match=r"this process imports it from .*one/path_plugin_of_a_test"
    ):
        load_class(python, str(two))
