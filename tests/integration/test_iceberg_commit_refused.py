"""Catalogs that report a successful commit as failed: the table remains intact."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from fixtures.iceberg_commit import Lake, Sink, lake, order
from fixtures.refusing_catalog import refusals_of_what_is_made, refused_swaps
from short_form import short_form

from connectors.iceberg.protocol.commit_request import CommitStatus, EngineName
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import WriteMode
from connectors.iceberg_tools.audit.table_audit import Verdict, audit

__all__ = ["lake"]


def every_manifest_list_is_there(sink: Sink) -> bool:
    lists = [
        dict(row)["manifest_list"]
        for row in sink.lake.rows(f"{sink.name}.snapshots", "manifest_list")
    ]
    return all(Path(path.removeprefix("file:")).exists() for path in lists)


def numbers(sink: Sink) -> list[object]:
    return [dict(row)["number"] for row in sink.rows("number")]


@pytest.mark.parametrize(
    ("engine", "retries"),
    short_form(
        itertools.product((EngineName.APPEND, EngineName.MERGE, EngineName.FULL_MERGE), ("4", "0")),
        [(EngineName.APPEND, "0"), (EngineName.MERGE, "4")],
    ),
)
def test_commit_that_the_catalog_reports_as_failed_stays_readable(
    lake: Lake, engine: EngineName, retries: str
) -> None:
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
