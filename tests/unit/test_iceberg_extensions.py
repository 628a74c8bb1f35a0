"""Optional features of the Iceberg sink plug in by entry points, and errors name missing ones."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConfigError
from connect_py.testing import FakePluginMetrics, FakeSinkTaskContext
from connectors.iceberg.coordinator import outlet
from connectors.iceberg.coordinator.outlet import OUTLETS, open_outlets
from connectors.iceberg.maintenance import full_maintenance
from connectors.iceberg.maintenance.full_maintenance import MAINTENANCE
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg_tools.maintenance.maintenance_thread import MaintenanceThread
from connectors.iceberg_tools.outlets.noticed_metrics import NoticedMetrics

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def declared(group: str, name: str | None = None) -> list[EntryPoint]:
    """Return the entry points of a group as pyproject.toml declares them."""
    groups = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    return [
        EntryPoint(each, value, group)
        for each, value in groups[group].items()
        if name in (None, each)
    ]


def none_installed(**_: Any) -> list[EntryPoint]:
    return []


def test_maintenance_by_the_whole_policy_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_maintenance, "entry_points", declared)
    assert full_maintenance.full_maintenance() is MaintenanceThread
    assert [entry.group for entry in declared(MAINTENANCE)] == [MAINTENANCE]


def test_missing_package_for_maintenance_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_maintenance, "entry_points", none_installed)
    with pytest.raises(ConfigError, match=r"iceberg\.ext\.maintenance\.enabled: true requires"):
        full_maintenance.full_maintenance()


@pytest.mark.parametrize(
    ("props", "expected"),
    [
        ({}, False),
        ({"ext__maintenance__enabled": "true"}, True),
        ({"table__db__other__maintenance__enabled": "true"}, True),
        ({"table__db__other__maintenance__enabled": "false"}, False),
    ],
)
def test_only_tables_with_enabled_true_need_the_whole_policy(
    props: dict[str, str], expected: bool
) -> None:
    assert config(**props).has_full_maintenance is expected


def test_connector_without_outlets_looks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "entry_points", none_installed)
    metrics = IcebergMetrics(FakePluginMetrics())
    assert open_outlets(config(), FakeSinkTaskContext(), metrics) == []


def test_missing_package_for_an_outlet_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "entry_points", none_installed)
    metrics = IcebergMetrics(FakePluginMetrics())
    webhook = config(ext__notices__webhook="http://localhost:1/")
    with pytest.raises(ConfigError, match=rf"requires .* entry point notices in {OUTLETS}"):
        open_outlets(webhook, FakeSinkTaskContext(), metrics)


def test_notices_observe_the_metrics_of_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "entry_points", declared)
    metrics = IcebergMetrics(FakePluginMetrics())
    webhook = config(ext__notices__webhook="http://localhost:1/")
    (notices,) = open_outlets(webhook, FakeSinkTaskContext(), metrics)
    try:
        assert isinstance(notices.observe(metrics), NoticedMetrics)
    finally:
        notices.close(1.0)
