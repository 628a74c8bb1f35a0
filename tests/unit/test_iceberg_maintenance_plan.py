"""What maintenance is due, by state and policy, and how policies are written; without Spark."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from fixtures.iceberg_history import CYCLE_1, CYCLE_2, CYCLE_4, MINUTE, snapshot, table

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.maintenance_policy import (
    DAYS,
    SETTINGS,
    HourWindow,
    MaintenanceMode,
    MaintenancePolicy,
)
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg_tools.maintenance.maintenance_plan import (
    MaintenanceKind,
    due_actions,
    may_be_due,
)
from connectors.iceberg_tools.maintenance.table_state import TableState, expirable

NOW = 100 * DAYS
CALM = TableState(
    3, 1, 1000, 0, 10, 10 << 20, 2, 2, 0, 3, 5, 0, orphans_checked_ms=NOW - 1, sequence=5
)
POLICY = MaintenancePolicy(MaintenanceMode.TRUE)
PROPS = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "name": "orders",
    "topics": "orders",
    "iceberg.catalog.type": "hadoop",
    "iceberg.tables": "shop.a,shop.b",
}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"most_small_files": 10, "small_files": 10}, [MaintenanceKind.COMPACT]),
        ({"small_files": 60, "most_small_files": 9}, []),  # a few in each of many partitions
        ({"deleted_records": 100}, [MaintenanceKind.COMPACT]),
        ({"deleted_records": 99}, []),
        ({"delete_files": 50}, []),  # vectors, one for each data file
        ({"delete_files": 50, "format_version": 2}, [MaintenanceKind.COMPACT_DELETES]),
        (
            {"delete_files": 1, "format_version": 2, "deleted_records": 100},
            [MaintenanceKind.COMPACT, MaintenanceKind.COMPACT_DELETES],
        ),
        ({"snapshots": 101}, []),  # all of them young
        ({"snapshots": 101, "expirable": 1}, [MaintenanceKind.EXPIRE]),
        ({"manifests": 100}, [MaintenanceKind.MANIFESTS]),
        ({"manifests": 150, "data_files": 90_000}, []),  # so many are needed
        (
            {"snapshots": 101, "expirable": 9, "deleted_records": 900},
            [MaintenanceKind.EXPIRE, MaintenanceKind.COMPACT],
        ),
        ({"snapshot": None, "most_small_files": 99}, []),
    ],
)
def test_actions_are_due_when_their_trigger_fires(
    changes: dict[str, int], kinds: list[MaintenanceKind]
) -> None:
    found = due_actions(dataclasses.replace(CALM, **changes), POLICY, NOW)
    assert [action.kind for action in found] == kinds
    assert all(action.reason for action in found)


def test_zero_switches_off_each_trigger_of_a_policy() -> None:
    busy = dataclasses.replace(
        CALM,
        format_version=2,
        most_small_files=9999,
        deleted_records=999,
        delete_files=999,
        manifests=9999,
        snapshots=9999,
        expirable=999,
    )
    assert len(due_actions(busy, POLICY, NOW)) == 4
    off = MaintenancePolicy(
        MaintenanceMode.TRUE,
        small_files=0,
        delete_ratio=0,
        delete_files=0,
        snapshots=0,
        manifests=0,
    )
    assert due_actions(busy, off, NOW) == []


def test_orphan_files_are_looked_for_once_a_day() -> None:
    policy = dataclasses.replace(POLICY, orphan_age_ms=3 * DAYS)
    assert due_actions(CALM, policy, NOW) == []
    [action] = due_actions(CALM, policy, NOW + DAYS)
    assert action.kind is MaintenanceKind.ORPHANS


def test_files_are_counted_when_enough_of_them_came() -> None:
    light = dataclasses.replace(CALM, small_files=0, most_small_files=0, manifests=0)
    assert not may_be_due(light, CALM, POLICY, NOW)
    assert not may_be_due(dataclasses.replace(light, data_files=17), CALM, POLICY, NOW)
    # 2 small ones before
    assert may_be_due(dataclasses.replace(light, data_files=18), CALM, POLICY, NOW)
    assert may_be_due(dataclasses.replace(light, data_files=10), None, POLICY, NOW)
    # 3 manifests before
    assert may_be_due(dataclasses.replace(light, sequence=102), CALM, POLICY, NOW)
    assert may_be_due(dataclasses.replace(light, deleted_records=500), CALM, POLICY, NOW)


def test_snapshots_behind_refs_and_newest_ones_are_not_expirable() -> None:
    refs = {
        "main": {"snapshot-id": 4, "type": "branch"},
        "audit": {"snapshot-id": 5, "type": "branch"},
        "monthly-1970-01": {"snapshot-id": 2, "type": "tag"},
    }
    metadata = table(
        snapshot(1, CYCLE_1, None),
        snapshot(2, CYCLE_2, 1),
        snapshot(3, None, 2),
        snapshot(4, CYCLE_4, 3),
        snapshot(5, None, 1),
        snapshot(6, None, 1),
        refs=refs,
    )
    policy = dataclasses.replace(POLICY, keep_ms=MINUTE, keep_snapshots=1)
    # 1, 3 and the one that was rolled back, 6
    assert expirable(metadata, policy, 100 * MINUTE) == 3
    assert expirable(metadata, dataclasses.replace(policy, keep_snapshots=2), 100 * MINUTE) == 1
    assert expirable(metadata, policy, 3 * MINUTE) == 1  # only the first is older than a minute


def test_tables_have_their_own_policy_or_the_connectors() -> None:
    config = IcebergSinkConfig.parse(
        {
            **PROPS,
            "iceberg.ext.maintenance.enabled": "true",
            "iceberg.ext.maintenance.window": "22:00-06:00",
            "iceberg.table.shop.b.maintenance.enabled": "false",
            "iceberg.table.b.maintenance.keep": "1d",
        }
    )
    assert config.table("shop.a").maintenance == MaintenancePolicy(
        MaintenanceMode.TRUE, HourWindow(22 * 60, 6 * 60)
    )
    assert config.table("shop.b").maintenance == MaintenancePolicy(
        MaintenanceMode.FALSE, HourWindow(22 * 60, 6 * 60), keep_ms=DAYS
    )
    assert [
        warning for warning in config.warnings if "not known" in warning or "no effect" in warning
    ] == []
    assert IcebergSinkConfig.parse(PROPS).table("shop.a").maintenance == MaintenancePolicy()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enabled", "yes"),
        ("window", "22-06"),
        ("window", "22:00-22:00"),
        ("budget", "10"),
        ("small-files", "-1"),
        ("delete-ratio", "10 %"),
        ("delete-ratio", "1.5"),
        ("keep", "0d"),
        ("keep-snapshots", "0"),
        ("orphan-age", "23h"),
        ("target-file-size-bytes", "0"),
    ],
)
def test_setting_that_makes_no_sense_is_refused_by_name(name: str, text: str) -> None:
    for key in (f"iceberg.ext.maintenance.{name}", f"iceberg.table.shop.a.maintenance.{name}"):
        with pytest.raises(ConfigError) as raised:
            IcebergSinkConfig.parse({**PROPS, key: text})
        assert raised.value.key == key


@pytest.mark.parametrize("mode", MaintenanceMode)
def test_mode_of_the_connector_and_of_a_table(mode: MaintenanceMode) -> None:
    assert IcebergSinkConfig.parse(PROPS).table("shop.a").maintenance.mode is MaintenanceMode.AUTO
    key = "iceberg.ext.maintenance.enabled"
    config = IcebergSinkConfig.parse(
        {**PROPS, key: mode.value, "iceberg.table.shop.b.maintenance.enabled": "auto"}
    )
    assert config.table("shop.a").maintenance.mode is mode
    assert config.table("shop.b").maintenance.mode is MaintenanceMode.AUTO


@pytest.mark.parametrize(
    ("settings", "ignored"),
    [
        (
            {
                "iceberg.ext.maintenance.orphan-age": "3d",
                "iceberg.ext.maintenance.keep": "3d",
                "iceberg.table.shop.a.maintenance.manifests": "50",
            },
            "iceberg.ext.maintenance.orphan-age, iceberg.table.shop.a.maintenance.manifests",
        ),
        (
            {
                "iceberg.ext.maintenance.tiering-age": "90d",
                "iceberg.table.shop.a.maintenance.enabled": "true",
                "iceberg.table.a.maintenance.manifests": "50",
                "iceberg.table.shop.b.maintenance.delete-files": "5",
            },
            "iceberg.table.shop.b.maintenance.delete-files",
        ),
        (
            {
                "iceberg.ext.maintenance.enabled": "true",
                "iceberg.ext.maintenance.budget": "5m",
                "iceberg.table.shop.a.maintenance.interval": "5m",
            },
            "",
        ),
        ({"iceberg.ext.maintenance.enabled": "auto"}, ""),
    ],
)
def test_settings_that_auto_ignores_are_named_in_one_warning(
    settings: dict[str, str], ignored: str
) -> None:
    warnings = IcebergSinkConfig.parse({**PROPS, **settings}).warnings
    about_auto = [
        each.partition(": only")[0]
        for each in warnings
        if each.startswith("iceberg.ext.maintenance.enabled=auto ignores")
    ]
    expected = [f"iceberg.ext.maintenance.enabled=auto ignores {ignored}"] if ignored else []
    assert about_auto == expected


def test_limit_of_snapshots_depends_on_the_mode_unless_it_is_set() -> None:
    default, explicit = MaintenancePolicy(), MaintenancePolicy(snapshots=7)
    assert (default.auto_snapshots, default.full_snapshots) == (1000, 100)
    assert (explicit.auto_snapshots, explicit.full_snapshots) == (7, 7)


def test_misspelt_settings_of_a_table_are_named_in_warnings() -> None:
    [warning] = IcebergSinkConfig.parse(
        {**PROPS, "iceberg.table.shop.a.maintenance.keeps": "1d"}
    ).warnings
    assert "did you mean iceberg.table.shop.a.maintenance.keep?" in warning


def test_window_of_hours_may_run_over_midnight() -> None:
    def at(hour: int) -> int:
        return int(datetime(2026, 11, 24, hour, 30, tzinfo=UTC).timestamp() * 1000)

    night, day = HourWindow(22 * 60, 6 * 60), HourWindow(6 * 60, 22 * 60)
    assert [hour for hour in range(24) if night.holds(at(hour))] == [0, 1, 2, 3, 4, 5, 22, 23]
    assert all(night.holds(at(hour)) is not day.holds(at(hour)) for hour in range(24))


def test_defaults_as_written_are_those_of_the_policy() -> None:
    assert (
        MaintenancePolicy(**{each.member: each.parse(each.default) for each in SETTINGS})
        == MaintenancePolicy()
    )
