"""Catalogs that say that a commit failed which they made: what is in the table stays whole."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from fixtures.iceberg_commit import Lake, Sink, lake, order

from connectors.iceberg.audit.table_audit import Verdict, audit
from connectors.iceberg.audit.table_history import TableHistory
from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.committer import CommitStatus, EngineName
from connectors.iceberg.spark.errors import TableUnsuitableError

__all__ = ["lake"]


@contextmanager
def refusals_of_what_is_made(lake: Lake) -> Iterator[None]:
    """Every change of a table's metadata is made, and its maker hears that there was nothing to change.

    So it is when a pool of connections loses one after the statement and repeats it: then the catalog's table has moved
    on. Here it is a view whose trigger changes the rows behind it, which SQLite does not count.
    """
    with closing(sqlite3.connect(lake.folder / "catalog.db", timeout=30)) as catalog:
        catalog.executescript(
            """
            ALTER TABLE iceberg_tables RENAME TO behind;
            CREATE VIEW iceberg_tables AS SELECT * FROM behind;
            CREATE TRIGGER refusal INSTEAD OF UPDATE ON iceberg_tables BEGIN
                UPDATE behind SET metadata_location = NEW.metadata_location,
                    previous_metadata_location = NEW.previous_metadata_location
                WHERE table_namespace = OLD.table_namespace AND table_name = OLD.table_name;
            END;
            """
        )
        try:
            yield
        finally:
            catalog.executescript("DROP VIEW iceberg_tables; ALTER TABLE behind RENAME TO iceberg_tables;")


def numbers(sink: Sink) -> list[object]:
    return [dict(row)["number"] for row in sink.rows("number")]


@pytest.mark.parametrize("retries", ["4", "0"])
@pytest.mark.parametrize("engine", [EngineName.APPEND, EngineName.DELTA])
def test_commit_that_was_made_and_refused_is_in_the_table_and_can_be_read(
    lake: Lake, engine: EngineName, retries: str
) -> None:
    sink = lake.make(**{"commit.retry.num-retries": retries})
    sink.commit(sink.stage([order(1, "a")]))
    request = sink.request(sink.stage([order(1, "b" if engine is EngineName.APPEND else "a")]))
    with refusals_of_what_is_made(lake):
        outcome = sink.committer(engine).commit(request)
    assert outcome.status is CommitStatus.COMMITTED
    assert outcome.snapshot_id == sink.version().ledger_snapshot
    sink.commit(sink.stage([order(1, "c")]), EngineName.DELTA)
    assert numbers(sink) == ["a", "b", "c"] if engine is EngineName.APPEND else ["a", "c"]
    assert audit(TableHistory.read(lake.driver, sink.name, "main")).verdict is Verdict.PROVEN


def test_evolution_that_was_made_and_refused_is_made_once(lake: Lake) -> None:
    sink = lake.make()
    changes = [
        SchemaChange(ChangeKind.ADD, ("status",), '"string"'),
        SchemaChange(ChangeKind.RENAME, ("region",), name="area"),
    ]
    with refusals_of_what_is_made(lake):
        lake.catalog.evolve(sink.name, changes)
    description = sink.description()
    names = [column["name"] for column in json.loads(description.schema)["fields"]]
    assert names == ["shop", "number", "area", "amount", "placed", "notes", "status"]
    assert "region" in description.properties["connect-py.columns"]


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_merge_that_was_made_on_its_branch_and_refused_leaves_nothing_that_cannot_be_read(
    lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(**{"write.merge.mode": mode})
    sink.commit(sink.stage([order(1, "a")]))
    sql = lake.driver.sql
    lies = [refusals_of_what_is_made(lake)]

    def refused_once(*arguments: Any) -> None:
        with lies.pop() if lies else nullcontext():
            sql(*arguments)

    monkeypatch.setattr(lake.driver, "sql", refused_once)
    request = sink.request(sink.stage([order(1, "a", "south"), order(1, "b")]))
    with suppress(TableUnsuitableError):  # Spark sees conflicts with itself, and removes what it wrote
        sink.committer(EngineName.MERGE).commit(request)
    assert sink.committer(EngineName.MERGE).commit(request).status is CommitStatus.COMMITTED
    assert numbers(sink) == ["a", "b"]
    lists = [dict(row)["manifest_list"] for row in lake.rows(f"{sink.name}.snapshots", "manifest_list")]
    assert all(Path(path.removeprefix("file:")).exists() for path in lists)


def test_dropping_a_work_branch_at_the_head_of_a_damaged_main_leaves_main(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    lake.sql(f"ALTER TABLE lake.{sink.name} CREATE BRANCH `connect-c-1-abcw`")  # as it is before anything is merged
    (at,) = [dict(row)["manifest_list"] for row in lake.rows(f"{sink.name}.snapshots", "manifest_list")]
    manifests = Path(at.removeprefix("file:"))
    away = manifests.rename(manifests.with_suffix(".away"))
    lake.catalog.drop_branches(sink.name, "connect-c-", 5)
    away.rename(manifests)
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]
    assert numbers(sink) == ["a"]
