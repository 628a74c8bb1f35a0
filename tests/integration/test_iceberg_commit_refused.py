"""Catalogs that say that a commit failed which they made: what is in the table stays whole."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from fixtures.iceberg_commit import Lake, Sink, lake, order
from short_form import short_form

from connect_py.api.errors import RetriableError
from connectors.iceberg.audit.table_audit import Verdict, audit
from connectors.iceberg.protocol.commit_request import CommitStatus, EngineName
from connectors.iceberg.schema.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.schema.table import WriteMode
from connectors.iceberg.spark.prepared_commit import PreparedCommit

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


@contextmanager
def refused_swaps(lake: Lake) -> Iterator[None]:
    """The same for the engine's own swaps, and not for the statements before them."""
    swap = PreparedCommit.swap

    def refused(self: PreparedCommit, properties: Mapping[str, str]) -> None:
        with refusals_of_what_is_made(lake):
            swap(self, properties)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedCommit, "swap", refused)
        yield


def every_manifest_list_is_there(sink: Sink) -> bool:
    lists = [dict(row)["manifest_list"] for row in sink.lake.rows(f"{sink.name}.snapshots", "manifest_list")]
    return all(Path(path.removeprefix("file:")).exists() for path in lists)


def numbers(sink: Sink) -> list[object]:
    return [dict(row)["number"] for row in sink.rows("number")]


@pytest.mark.parametrize(
    ("engine", "retries"),
    short_form(
        itertools.product((EngineName.APPEND, EngineName.MERGE, EngineName.FULL_MERGE), ("4", "0")),
        [(EngineName.APPEND, "0"), (EngineName.MERGE, "4"), (EngineName.FULL_MERGE, "0")],
    ),
)
def test_commit_that_the_catalog_reports_as_failed_stays_readable(lake: Lake, engine: EngineName, retries: str) -> None:
    mode = WriteMode.APPEND if engine is EngineName.APPEND else WriteMode.MERGE
    sink = lake.make(mode=mode, **{"commit.retry.num-retries": retries})
    sink.commit(sink.stage([order(1, "a")]))
    request = sink.request(sink.stage([order(1, "b" if engine is EngineName.APPEND else "a")]))
    with refused_swaps(lake):
        outcome = sink.committer(engine).commit(request)
    assert outcome.status is CommitStatus.COMMITTED
    assert outcome.snapshot_id == sink.version().ledger_snapshot
    sink.commit(sink.stage([order(1, "c")]))
    assert numbers(sink) == (["a", "b", "c"] if engine is EngineName.APPEND else ["a", "c"])
    assert audit(lake.catalog.history(sink.name, "main")).verdict is Verdict.PROVEN
    assert every_manifest_list_is_there(sink)


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


@pytest.mark.parametrize("refused", ["ALTER TABLE", "MERGE INTO"])
@pytest.mark.parametrize(
    ("version", "mode"),
    short_form(
        [(2, "merge-on-read"), (3, "merge-on-read"), (2, "copy-on-write"), (1, "copy-on-write")],
        [(3, "merge-on-read")],
    ),
)
def test_branch_statement_reported_as_failed_leaves_the_table_readable(
    lake: Lake, version: int, mode: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=version, **{"write.merge.mode": mode})
    sink.commit(sink.stage([order(1, "a")]))
    sql = lake.catalog.spark.sql
    lies = [refusals_of_what_is_made(lake)]

    def refused_once(statement: str) -> Any:
        with lies.pop() if lies and statement.startswith(refused) else nullcontext():
            return sql(statement)

    monkeypatch.setattr(lake.catalog.spark, "sql", refused_once)
    request = sink.request(sink.stage([order(1, "a", "south"), order(1, "b")]))
    with suppress(RetriableError):  # Spark may see conflicts with itself, and remove what it wrote
        sink.committer().commit(request)
    assert not lies
    assert sink.committer().commit(request).status is CommitStatus.COMMITTED
    assert numbers(sink) == ["a", "b"]
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]
    assert every_manifest_list_is_there(sink)
