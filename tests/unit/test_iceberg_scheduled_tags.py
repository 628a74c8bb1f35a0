"""`ScheduledTags`: which tags a commit sets, moves, and removes."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from fake_table_update import FakeTableUpdate, table_document

from connectors.iceberg.commit.rules.scheduled_tags import ScheduledTags
from connectors.iceberg.config.tag_schedule import TagPeriod, parse_tags
from connectors.iceberg.protocol.table_metadata import TableMetadata

DAY_MS = 86_400_000
OLD, HEAD, NEW = 1, 2, 3  # snapshot IDs
TODAY_MS = TagPeriod.DAILY.start(int(time.time() * 1000))
YESTERDAY = TagPeriod.DAILY.name_before(TODAY_MS, "main")
EXPIRED = TagPeriod.DAILY.name_before(TODAY_MS - 9 * DAY_MS, "main")


def amend(tags: str, head_ms: int, existing: dict[str, int], **request: Any) -> TableMetadata:
    """Return the metadata after a commit whose head has this time; `OLD` is ten days old."""
    document = table_document(
        {OLD: TODAY_MS - 10 * DAY_MS, HEAD: head_ms}, {"main": HEAD}, existing
    )
    update: Any = FakeTableUpdate(document, NEW, "main")
    fields = {
        "table": "db.orders",
        "ref": "main",
        "tags": parse_tags(tags),
        "ledger_tag": None,
        "keep_ledger_tag": False,
        "unpublished_branch": None,
        **request,
    }
    attempt: Any = SimpleNamespace(request=SimpleNamespace(**fields), target_ref="main")
    ScheduledTags().amend(attempt, update)
    update.swap({})
    return TableMetadata(update.after)


def test_head_of_yesterday_is_tagged() -> None:
    after = amend("daily", TODAY_MS - 1, {})
    assert after.refs == {"main": NEW, YESTERDAY: HEAD}


def test_head_of_today_is_not_tagged() -> None:
    assert amend("daily", TODAY_MS, {}).tags == frozenset()


def test_existing_tag_is_not_moved() -> None:
    assert amend("daily", TODAY_MS - 1, {YESTERDAY: OLD}).refs[YESTERDAY] == OLD


def test_tags_of_the_period_whose_snapshots_are_too_old_are_removed() -> None:
    existing = {EXPIRED: OLD, "release": OLD}
    after = amend("daily:keep 5d", TODAY_MS, existing)
    assert after.tags == {"release"}


def test_commit_that_readers_do_not_see_changes_no_scheduled_tag() -> None:
    after = amend("daily:keep 5d", TODAY_MS - 1, {EXPIRED: OLD}, unpublished_branch="main")
    assert after.tags == {EXPIRED}


def test_ledger_tag_moves_to_the_commit_or_is_removed() -> None:
    ledger = {"ledger_tag": "connect-py-ledger", "keep_ledger_tag": True}
    assert (
        amend("", TODAY_MS, {"connect-py-ledger": OLD}, **ledger).refs["connect-py-ledger"] == NEW
    )
    ledger["keep_ledger_tag"] = False
    assert amend("", TODAY_MS, {"connect-py-ledger": OLD}, **ledger).tags == frozenset()
