"""What roll-backs and changes of branches mean for connectors, and names and ages of scheduled
tags; without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fixtures.iceberg_history import (
    CYCLE_1,
    CYCLE_2,
    CYCLE_4,
    EXPIRED,
    P0,
    P1,
    WHOLE,
    snapshot,
    table,
)

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.tag_schedule import TagPeriod, TagRule, parse_duration, parse_tags
from connectors.iceberg_tools.history.table_point import NotInHistoryError
from connectors.iceberg_tools.operations.refs import refusal
from connectors.iceberg_tools.operations.rollback import preview_of
from connectors.iceberg_tools.refs.ledger_check import ReadAgain, effects

DAY = 86_400_000
GROUP = "connect-orders"


def test_roll_back_names_the_offsets_that_are_read_again() -> None:
    [effect] = effects(WHOLE, "main", 1)
    assert (effect.group, effect.refused) == (GROUP, "")
    assert effect.again == (ReadAgain(P0, 10, 31), ReadAgain(P1, 5, 9))
    [effect] = effects(WHOLE, "main", 3)  # a compaction above the second commit
    assert effect.again == (ReadAgain(P0, 20, 31),)


def test_roll_back_behind_the_first_commit_reads_from_the_opening() -> None:
    metadata = table(
        snapshot(1, None, None),
        snapshot(2, CYCLE_2, 1),
        opened=5,
        property_of=(CYCLE_2, 2),
    )
    [effect] = effects(metadata, "main", 1)
    assert effect.again == (ReadAgain(P0, 5, 20), ReadAgain(P1, 5, 9))


def test_roll_back_that_a_connector_would_not_notice_is_refused() -> None:
    [effect] = effects(EXPIRED, "main", 3)  # the commit below it was expired
    assert "expired" in effect.refused
    assert preview_of("t", EXPIRED, "main", "3", None).refused.startswith(
        f"connector group {GROUP}: "
    )


def test_branches_without_commits_of_a_connector_concern_none() -> None:
    refs = {
        "main": {"snapshot-id": 4, "type": "branch"},
        "audit": {"snapshot-id": 2, "type": "branch"},
    }
    metadata = table(
        snapshot(1, CYCLE_1, None),
        snapshot(2, CYCLE_2, 1),
        snapshot(4, CYCLE_4, 2),
        property_of=(CYCLE_4, 4),
        refs=refs,
    )
    assert effects(metadata, "audit", 1) == []
    assert effects(metadata, "audit", None) == []
    assert effects(metadata, "main", 4, {GROUP: "audit"}) == []


def test_branch_of_a_connectors_last_commit_is_not_removed() -> None:
    refs = {
        "main": {"snapshot-id": 1, "type": "branch"},
        "audit": {"snapshot-id": 4, "type": "branch"},
    }
    metadata = table(
        snapshot(1, CYCLE_1, None),
        snapshot(2, CYCLE_2, 1),
        snapshot(4, CYCLE_4, 2),
        property_of=(CYCLE_4, 4),
        refs=refs,
    )
    assert effects(metadata, "main", 1) == []
    [effect] = effects(metadata, "audit", None)  # it would continue from main
    assert effect.again[0] == ReadAgain(P0, 10, 31)
    assert refusal("branch", metadata, "audit", [effect], move=False, delete=True).startswith(
        f"connector group {GROUP} "
    )
    alone = table(
        snapshot(1, None, None), snapshot(4, CYCLE_4, 1), property_of=(CYCLE_4, 4), refs=refs
    )
    [effect] = effects(alone, "audit", None)
    assert "branch would be missing" in effect.refused


def test_preview_lists_leaving_snapshots_and_refuses_other_lines() -> None:
    preview = preview_of("shop.orders", WHOLE, "main", "2", None)
    assert [entry.id for entry in preview.leaving] == [4, 3]
    assert not preview.refused
    side = table(
        snapshot(1, CYCLE_1, None),
        snapshot(9, None, 1),
        snapshot(2, CYCLE_2, 1),
        property_of=(CYCLE_2, 2),
    )
    assert (
        "not in the history of main" in preview_of("shop.orders", side, "main", "9", None).refused
    )
    with pytest.raises(NotInHistoryError):
        preview_of("shop.orders", WHOLE, "mian", "2", None)


@pytest.mark.parametrize(
    ("period", "at", "start", "name"),
    [
        ("hourly", "2026-11-24T17:59:59", "2026-11-24T17:00", "hourly-2026-11-24T16"),
        ("hourly", "2026-11-24T00:00:00", "2026-11-24T00:00", "hourly-2026-11-23T23"),
        ("daily", "2026-03-01T00:00:00", "2026-03-01T00:00", "daily-2026-02-28"),
        ("weekly", "2026-01-04T12:00:00", "2025-12-29T00:00", "weekly-2025-W52"),
        ("monthly", "2026-01-31T12:00:00", "2026-01-01T00:00", "monthly-2025-12"),
    ],
)
def test_tag_is_named_after_the_period_that_ended(
    period: str, at: str, start: str, name: str
) -> None:
    found = TagPeriod(period)
    began = found.start(_ms(at))
    assert began == _ms(start)
    assert found.name_before(began, "main") == name
    assert found.name_before(began, "audit") == f"audit-{name}"
    assert found.is_name(name, "main")
    assert not found.is_name(name, "audit")
    assert not found.is_name(f"{name}-mine", "main")


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_schedule_of_tags_is_read_with_ages_per_period() -> None:
    assert parse_tags("daily:keep 14d, monthly") == (
        TagRule(TagPeriod.DAILY, 14 * DAY),
        TagRule(TagPeriod.MONTHLY),
    )
    assert parse_tags(" ") == ()
    assert [parse_duration(text) for text in ("30m", "36h", "14 d", "4w")] == [
        1_800_000,
        129_600_000,
        14 * DAY,
        28 * DAY,
    ]


@pytest.mark.parametrize(
    "text",
    ["daily:keep", "yearly", "daily:keep 14", "daily, daily:keep 1d", "daily:14d", "daily:keep 0d"],
)
def test_a_schedule_of_tags_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"daily|yearly|14|0d"):
        parse_tags(text)


def test_a_table_has_its_own_tags_or_the_connectors() -> None:
    props = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "name": "orders",
        "topics": "orders",
        "iceberg.catalog.type": "hadoop",
        "iceberg.tables": "shop.a,shop.b",
        "iceberg.ext.tags": "daily:keep 14d",
        "iceberg.table.shop.b.tags": "hourly",
    }
    config = IcebergSinkConfig.parse(props)
    assert config.table("shop.a").tags == (TagRule(TagPeriod.DAILY, 14 * DAY),)
    assert config.table("shop.b").tags == (TagRule(TagPeriod.HOURLY),)
    assert not config.warnings
    with pytest.raises(ConfigError) as raised:
        IcebergSinkConfig.parse({**props, "iceberg.ext.tags": "yearly"})
    assert raised.value.key == "iceberg.ext.tags"


@pytest.mark.parametrize("name", ["", "first", "last", "4838139597401900746"])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    assert "invalid name" in refusal("tag", WHOLE, name, [], move=False, delete=False)
    assert "does not exist" in refusal("tag", WHOLE, name, [], move=False, delete=True)
