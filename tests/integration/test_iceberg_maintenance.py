"""Maintenance by policy on real tables: rows stay, files and snapshots get fewer, and the ledger stays readable."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import BY_REGION, KEY, Lake, Sink, lake, order
from short_form import short_form

from connectors.iceberg.commands.maintain import maintain as maintain_command
from connectors.iceberg.config.maintenance_policy import DAYS, MaintenancePolicy
from connectors.iceberg.maintenance.maintenance_action import MaintenanceRequest, maintain
from connectors.iceberg.maintenance.maintenance_plan import MaintenanceAction, MaintenanceKind, due_actions
from connectors.iceberg.maintenance.maintenance_result import MaintenanceResult
from connectors.iceberg.maintenance.table_state import measure
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.schema.table import StagedKind
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits

__all__ = ["lake"]

APP = typer.Typer()
APP.command()(maintain_command)
APP.callback()(lambda: None)
POLICY = MaintenancePolicy(True, small_files=4, delete_files=2, snapshots=3, keep_snapshots=2, keep_ms=1, manifests=3)


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, which meets the Spark of this process."""
    return partial(table_commands(lake, monkeypatch, APP), "maintain")


CYCLES = 4


def busy(lake: Lake, version: int, spec: str | None = None) -> Sink:
    """A table whose cycles each insert a row, change the row before, and delete the one before that."""
    sink = lake.make(version=version, spec=spec)
    for cycle in range(CYCLES):
        upserts = sink.stage([order(1, str(number), f"r{cycle}") for number in (cycle, cycle - 1) if number >= 0])
        deletes = sink.stage([{"shop": 1, "number": str(cycle - 2)}], StagedKind.DELETES) if cycle >= 2 else []
        sink.commit([*upserts, *deletes])
    return sink


def do(lake: Lake, sink: Sink, kind: MaintenanceKind, policy: MaintenancePolicy = POLICY) -> MaintenanceResult:
    request = MaintenanceRequest(MaintenanceAction(kind, "a test"), policy, by="orders")
    return lake.catalog.run(sink.name, maintain, request)


@pytest.mark.parametrize(
    ("version", "spec"), short_form(itertools.product((2, 3), (None, BY_REGION)), [(3, BY_REGION)])
)
def test_compaction_and_expiry_keep_rows_and_the_ledger(lake: Lake, version: int, spec: str | None) -> None:
    sink = busy(lake, version, spec)
    rows, before = sink.rows(), sink.load().view
    state = lake.catalog.run(sink.name, measure, "main", POLICY)
    assert (state.data_files, state.small_files, state.snapshots) == (state.small_files, state.data_files, CYCLES)
    assert state.deleted_records > 0
    compacted = do(lake, sink, MaintenanceKind.COMPACT)
    assert compacted.after.data_files == 1  # both rows are in one partition
    if version == 2:
        do(lake, sink, MaintenanceKind.COMPACT_DELETES)
    clean = lake.catalog.run(sink.name, measure, "main", POLICY)
    assert (clean.deleted_records, clean.delete_files) == (0, 0)
    time.sleep(0.01)
    expired = do(lake, sink, MaintenanceKind.EXPIRE)
    assert expired.after.snapshots == 2
    assert expired.counts["deleted_manifest_lists_count"] == expired.before.snapshots - 2
    assert sink.rows() == rows
    after = look_up(sink.load().view)
    assert after.standing in (Standing.FOUND, Standing.EXPIRED)
    assert after.ledger == look_up(before).ledger
    sink.commit(sink.stage([order(2, "new")]))  # and the next cycle goes on
    assert len(sink.rows()) == len(rows) + 1


@pytest.mark.long  # in every run: test_compaction_and_expiry_keep_rows_and_the_ledger
def test_manifests_are_written_anew_in_fewer_of_them(lake: Lake) -> None:
    sink = busy(lake, 3)
    rows = sink.rows()
    result = do(lake, sink, MaintenanceKind.MANIFESTS)
    assert result.after.manifests < result.before.manifests
    assert sink.rows() == rows


@pytest.mark.parametrize("dry_run", short_form([True, False], [False]))
def test_orphans_are_removed_but_staged_and_named_files_stay(lake: Lake, dry_run: bool) -> None:
    sink = busy(lake, 3)
    metadata = lake.catalog.table(sink.name).metadata()
    folder = Path(metadata.data_location.removeprefix("file://"))

    def name(epoch: int, digits: str) -> str:
        return StagedFileName("orders", Epoch(epoch, "a1"), digits, 1, "orders-0", 0).encode()

    mine = table_digits(metadata.uuid)
    removed = [folder / "lost.parquet", folder / name(6, mine)]
    kept = [folder / name(7, mine), folder / name(6, "0" * 12), folder / "named.parquet"]
    property_ = f"connect-py.open-pairs.{'x'}"
    lake.catalog.set_properties(sink.name, {property_: kept[2].as_uri()})
    for path in [*removed, *kept]:
        path.write_text("x")
        os.utime(path, (time.time() - 4 * 86_400,) * 2)
    (folder / "young.parquet").write_text("x")
    policy = dataclasses.replace(POLICY, orphan_age_ms=3 * DAYS, orphan_dry_run=dry_run)
    rows = sink.rows()
    result = do(lake, sink, MaintenanceKind.ORPHANS, policy)
    assert result.counts == {"orphan_files_found": 2, "orphan_files_removed": 0 if dry_run else 2}
    assert [path.exists() for path in removed] == [dry_run] * 2
    assert all(path.exists() for path in [*kept, folder / "young.parquet"])
    assert sink.rows() == rows
    calm = dataclasses.replace(policy, snapshots=0, small_files=0, delete_ratio=0, manifests=0)
    assert due_actions(result.after, calm, int(time.time() * 1000)) == []


@pytest.mark.long  # in every run: test_command_says_what_is_due_and_does_it
def test_each_action_is_a_row_of_the_operations_table(lake: Lake) -> None:
    sink = busy(lake, 3)
    do(lake, sink, MaintenanceKind.COMPACT)
    do(lake, sink, MaintenanceKind.EXPIRE, dataclasses.replace(POLICY, operations_table=f"{sink.name}_life"))
    do(lake, sink, MaintenanceKind.MANIFESTS, dataclasses.replace(POLICY, operations_table=None))
    columns = "action, made_by, table_name, data_files_before, data_files_after, snapshots_after"
    [first] = lake.rows(f"{sink.name}_operations", columns)
    assert dict(first) == {
        "action": "compact data files", "made_by": "orders", "table_name": sink.name, "data_files_before": CYCLES,
        "data_files_after": 1, "snapshots_after": CYCLES + 1,
    }  # fmt: skip
    [second] = lake.rows(f"{sink.name}_life", "action, counts")
    assert dict(second)["action"] == "expire snapshots"
    assert dict(second)["counts"]["deleted_manifest_lists_count"] == CYCLES - 1


@pytest.mark.long  # in every run: what is due, in tests/unit/test_iceberg_maintenance_plan.py
def test_tables_that_say_so_lose_no_snapshots(lake: Lake) -> None:
    sink = busy(lake, 3)
    lake.catalog.set_properties(sink.name, {"gc.enabled": "false"})
    result = do(lake, sink, MaintenanceKind.EXPIRE)
    assert "gc.enabled" in result.skipped
    assert result.after.snapshots == result.before.snapshots == CYCLES


def test_command_says_what_is_due_and_does_it(lake: Lake, run: Any) -> None:
    sink = busy(lake, 3)
    settings = [word for text in ("small-files=3", "keep-snapshots=2", "snapshots=3", "keep=1m")
                for word in ("--set", text)]  # fmt: skip
    shown = run(sink.name, "--dry-run", *settings)
    assert shown.exit_code == 0, shown.stderr
    assert "due: compact data files (" in shown.stdout
    assert lake.catalog.run(sink.name, measure, "main", POLICY).snapshots == CYCLES
    done = json.loads(run(sink.name, "--now", "--json", *settings).stdout)
    assert [each["action"] for each in done["done"]] == ["compact data files"]
    assert done["failed"] == {}
    [row] = lake.rows(f"{sink.name}_operations", "action, made_by")
    assert dict(row) == {"action": "compact data files", "made_by": "connect-py maintain"}
    again = run(sink.name, "--now", *settings, "--set", "operations-table=none")
    assert again.stdout.splitlines()[-1] == "nothing is due"
    assert run(sink.name).exit_code == 2
    assert run(sink.name, "--now", "--set", "keeps=1d").exit_code == 2
    assert run("shop.missing", "--dry-run").exit_code == 2


@pytest.mark.long  # in every run: test_compaction_and_expiry_keep_rows_and_the_ledger
def test_branches_are_compacted_where_the_connector_commits(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "main")]))
    sink.ref = "audit"
    for number in range(4):
        sink.commit(sink.stage([order(1, str(number))]))
    rows = sink.rows()
    request = MaintenanceRequest(MaintenanceAction(MaintenanceKind.COMPACT, "a test"), POLICY, "audit")
    result = lake.catalog.run(sink.name, maintain, request)
    assert (result.before.data_files, result.after.data_files) == (5, 1)
    assert sink.rows() == rows
    skipped = lake.catalog.run(
        sink.name, maintain, dataclasses.replace(request, action=MaintenanceAction(MaintenanceKind.MANIFESTS, "a test"))
    )
    assert "main only" in skipped.skipped
    assert look_up(lake.catalog.table(sink.name).metadata().view("audit", KEY)).standing is Standing.FOUND
