"""`TableUpdate` and its fake change refs and properties alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_table_update import FakeTableUpdate, table_document
from fixtures.iceberg_commit import Lake, lake, order

from connectors.iceberg.catalog.table_update import TableChange
from connectors.iceberg.protocol.table_metadata import TableMetadata

__all__ = ["lake"]

Update = Any  # TableUpdate or its fake
MakeUpdate = Callable[[], tuple[Update, Callable[[], TableMetadata]]]


@pytest.fixture(params=["real", "fake"])
def make_update(request: pytest.FixtureRequest) -> MakeUpdate:
    """Create an update that adds a snapshot to main, of a table whose first snapshot has the tag
    `old` and whose property `stage` is `draft`; and a function that loads the swapped metadata."""
    if request.param == "fake":
        document = table_document({1: 1_000}, {"main": 1}, {"old": 1})
        document["properties"] = {"stage": "draft"}

        def fake() -> tuple[Update, Callable[[], TableMetadata]]:
            update = FakeTableUpdate(document, 2, "main")
            return update, lambda: TableMetadata(update.after)

        return fake

    def real() -> tuple[Update, Callable[[], TableMetadata]]:
        spark_lake: Lake = request.getfixturevalue("lake")
        sink = spark_lake.make(stage="draft")
        sink.commit(sink.stage([order(1, "a")]))
        spark_lake.sql(f"ALTER TABLE lake.{sink.name} CREATE TAG old")
        update = spark_lake.catalog.table(sink.name).new_update()
        update.add(TableChange(), "main", {})
        return update, lambda: spark_lake.catalog.table(sink.name).metadata()

    return real


def test_refs_and_properties_change_with_the_swap(make_update: MakeUpdate) -> None:
    update, load = make_update()
    before = update.base()
    first = before.refs["main"]
    assert (before.tags, before.properties["stage"]) == ({"old"}, "draft")
    update.set_tag("first", first, None)
    update.set_tag("newest", update.snapshot_id, 60_000)
    update.remove_ref("old")
    update.set_properties({"owner": "team", "level": "1"})
    update.drop_properties(["stage"])
    assert update.base().refs == before.refs
    update.swap({"level": "2"})
    after = load()
    assert after.refs == {
        "main": update.snapshot_id,
        "first": first,
        "newest": update.snapshot_id,
    }
    assert after.tags == {"first", "newest"}
    assert after.properties["owner"] == "team"
    assert after.properties["level"] == "2"
    assert "stage" not in after.properties


def test_removing_a_missing_ref_changes_nothing(make_update: MakeUpdate) -> None:
    update, load = make_update()
    update.remove_ref("missing")
    update.swap({})
    assert load().tags == {"old"}
