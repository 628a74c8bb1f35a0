"""Maintenance by policy on real tables: rows stay, files and snapshots get fewer, and the ledger
stays readable."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fixtures.command_line import command_app
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import BY_REGION, KEY, Lake, Sink, lake, order, s3, s3_lake
from fixtures.refusing_catalog import refused_swaps
from s3_server import BUCKET, S3Server
from short_form import short_form

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.config.maintenance_policy import DAYS, MaintenanceMode, MaintenancePolicy
from connectors.iceberg.errors import CatalogUnavailableError
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.protocol.own_refs import UNPUBLISHED_PREFIX
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.table.table import StagedKind, WriteMode
from connectors.iceberg_tools.commands.maintain import maintain as maintain_command
from connectors.iceberg_tools.maintenance import moved_files
from connectors.iceberg_tools.maintenance.cold_partitions import cold_location
from connectors.iceberg_tools.maintenance.maintenance_action import MaintenanceRequest, maintain
from connectors.iceberg_tools.maintenance.maintenance_plan import (
    MaintenanceAction,
    MaintenanceKind,
    due_actions,
)
from connectors.iceberg_tools.maintenance.maintenance_result import MaintenanceResult
from connectors.iceberg_tools.maintenance.operations_table import operations_of
from connectors.iceberg_tools.maintenance.table_state import measure

__all__ = ["lake", "s3", "s3_lake"]

APP = command_app(maintain_command)
APP.callback()(lambda: None)
POLICY = MaintenancePolicy(
    MaintenanceMode.TRUE,
    small_files=4,
    delete_files=2,
    snapshots=3,
    keep_snapshots=2,
    keep_ms=1,
    manifests=3,
)


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, which meets the Spark of this process."""
    return partial(table_commands(lake, monkeypatch, APP), "maintain")


CYCLES = 4


def busy(lake: Lake, version: int, spec: str | None = None) -> Sink:
    """A table whose cycles each insert a row, change the row before, and delete the one before
    that."""
    sink = lake.make(version=version, spec=spec)
    for cycle in range(CYCLES):
        upserts = sink.stage(
            [order(1, str(number), f"r{cycle}") for number in (cycle, cycle - 1) if number >= 0]
        )
        deletes = (
            sink.stage([{"shop": 1, "number": str(cycle - 2)}], StagedKind.DELETES)
            if cycle >= 2
            else []
        )
        sink.commit([*upserts, *deletes])
    return sink


def do(
    lake: Lake, sink: Sink, kind: MaintenanceKind, policy: MaintenancePolicy = POLICY
) -> MaintenanceResult:
    request = MaintenanceRequest(MaintenanceAction(kind, "a test"), policy, by="orders")
    return lake.catalog.run(sink.name, maintain, request)


@pytest.mark.parametrize(
    ("version", "spec"), short_form(itertools.product((2, 3), (None, BY_REGION)), [(3, BY_REGION)])
)
def test_compaction_and_expiry_keep_rows_and_the_ledger(
    lake: Lake, version: int, spec: str | None
) -> None:
    sink = busy(lake, version, spec)
    rows, before = sink.rows(), sink.load().view
    state = lake.catalog.run(sink.name, measure, "main", POLICY)
    assert (state.data_files, state.small_files, state.snapshots) == (
        state.small_files,
        state.data_files,
        CYCLES,
    )
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
    sink.commit(sink.stage([order(2, "new")]))  # the next cycle continues
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
    damaged = folder.parent / "metadata" / "00000-damaged.metadata.json"
    removed = [folder / "lost.parquet", folder / name(6, mine), damaged]
    of_table_inside = folder.parent / "other" / "data" / "part-0.parquet"
    of_table_inside.parent.mkdir(parents=True)
    kept = [folder / name(7, mine), folder / "named.parquet", of_table_inside]
    property_ = f"connect-py.open-pairs.{'x'}"
    lake.catalog.set_properties(sink.name, {property_: kept[1].as_uri()})
    for path in [*removed, *kept]:
        path.write_text("x")
        os.utime(path, (time.time() - 4 * 86_400,) * 2)
    (folder / "young.parquet").write_text("x")
    policy = dataclasses.replace(POLICY, orphan_age_ms=3 * DAYS, orphan_dry_run=dry_run)
    rows = sink.rows()
    result = do(lake, sink, MaintenanceKind.ORPHANS, policy)
    assert result.counts == {"orphan_files_found": 3, "orphan_files_removed": 0 if dry_run else 3}
    assert [path.exists() for path in removed] == [dry_run] * 3
    assert all(path.exists() for path in [*kept, folder / "young.parquet"])
    assert sink.rows() == rows
    calm = dataclasses.replace(policy, snapshots=0, small_files=0, delete_ratio=0, manifests=0)
    assert due_actions(result.after, calm, int(time.time() * 1000)) == []


SHARED = [("", False), ("gzip", False), ("", True)]


@pytest.mark.parametrize(("codec", "staged"), short_form(SHARED, SHARED[1:2]))
def test_orphan_search_spares_a_renamed_table_in_the_same_folder(
    lake: Lake, run: Any, codec: str, staged: bool
) -> None:
    compressed = {"write.metadata.compression-codec": codec} if codec else {}
    old = lake.make(mode=WriteMode.APPEND, **compressed)
    lake.sql(f"INSERT INTO lake.{old.name} (shop, number) VALUES (1, 'a'), (2, 'b')")
    old.name, name = f"{old.name}_2025", old.name
    lake.sql(f"ALTER TABLE lake.{name} RENAME TO {old.name}")
    lake.sql(f"CREATE TABLE lake.{name} (shop INT) USING iceberg")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1)")
    renamed, metadata = (lake.catalog.table(each).metadata() for each in (old.name, name))
    assert metadata.location == renamed.location
    folder = Path(metadata.location.removeprefix("file://"))
    if staged:
        digits = table_digits(renamed.uuid)
        waiting = StagedFileName("orders", Epoch(1, "a1"), digits, 1, "orders-0", 0).encode()
        (folder / "data" / waiting).write_text("x")
    files = {path for path in folder.rglob("*") if path.is_file()}
    for path in files:
        # else: the search finds no metadata that is so young
        if not codec or not path.name.endswith(".metadata.json"):
            os.utime(path, (time.time() - 4 * 86_400,) * 2)
    policy = dataclasses.replace(POLICY, orphan_age_ms=3 * DAYS, operations_table=None)
    settings = ("--set", "orphan-age=3d", "--set", "operations-table=none")
    shown = run(name, "--dry-run", *settings).stdout
    assert "due: remove orphan files" in shown
    assert "the folder of the table has files of another table" in shown
    result = do(lake, Sink(lake, name, WriteMode.APPEND, ()), MaintenanceKind.ORPHANS, policy)
    assert ("connect-py-orders.1-a1" if staged else ".metadata.json") in result.skipped
    assert result.counts == {}
    assert files <= {path for path in folder.rglob("*") if path.is_file()}
    assert [dict(row)["number"] for row in old.rows("number")] == ["a", "b"]
    assert not [
        a
        for a in due_actions(result.after, policy, int(time.time() * 1000))
        if a.kind is MaintenanceKind.ORPHANS
    ]


@pytest.mark.long  # in every run: test_command_says_what_is_due_and_does_it
def test_each_action_is_a_row_of_the_operations_table(lake: Lake) -> None:
    sink = busy(lake, 3)
    do(lake, sink, MaintenanceKind.COMPACT)
    do(
        lake,
        sink,
        MaintenanceKind.EXPIRE,
        dataclasses.replace(POLICY, operations_table=f"{sink.name}_life"),
    )
    do(lake, sink, MaintenanceKind.MANIFESTS, dataclasses.replace(POLICY, operations_table=None))
    columns = "action, made_by, table_name, data_files_before, data_files_after, snapshots_after"
    [first] = lake.rows(f"{sink.name}_operations", columns)
    assert dict(first) == {
        "action": "compact data files",
        "made_by": "orders",
        "table_name": sink.name,
        "data_files_before": CYCLES,
        "data_files_after": 1,
        "snapshots_after": CYCLES + 1,
    }
    [second] = lake.rows(f"{sink.name}_life", "action, counts")
    assert dict(second)["action"] == "expire snapshots"
    assert dict(second)["counts"]["deleted_manifest_lists_count"] == CYCLES - 1


@pytest.mark.long  # in every run: test_command_says_what_is_due_and_does_it
def test_action_counts_as_done_without_its_row_of_operations(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    sink = busy(lake, 3)
    other = lake.make(mode=WriteMode.APPEND)  # a table without columns for operations
    result = do(
        lake,
        sink,
        MaintenanceKind.COMPACT,
        dataclasses.replace(POLICY, operations_table=other.name),
    )
    assert (result.after.data_files, result.failure, other.rows()) == (1, "", [])
    [warned] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert f"{sink.name}: cannot record compact data files: " in warned
    assert f"{other.name}" in warned


@pytest.fixture
def far_away(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of the driver process and of its Spark session, hours behind UTC."""
    zone, key = "America/Los_Angeles", "spark.sql.session.timeZone"
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        lake.catalog.spark.conf.set(key, zone)
        yield
        lake.catalog.spark.conf.set(key, "UTC")
    time.tzset()


@pytest.mark.long  # in every run: ages, in tests/unit/test_iceberg_maintenance_plan.py
@pytest.mark.usefixtures("far_away")
def test_ages_and_times_are_right_in_other_time_zones(lake: Lake) -> None:
    sink, started = busy(lake, 3), dt.datetime.now(dt.UTC)
    young = dataclasses.replace(POLICY, keep_ms=3_600_000)  # an hour
    assert do(lake, sink, MaintenanceKind.EXPIRE, young).after.snapshots == CYCLES
    [operation] = operations_of(lake.catalog, f"{sink.name}_operations", sink.name, 9)
    assert operation["started"].endswith("Z")
    assert abs(dt.datetime.fromisoformat(operation["started"]) - started) < dt.timedelta(minutes=5)


def test_action_is_left_out_if_a_commit_was_held_meanwhile(lake: Lake) -> None:
    """The due actions were listed before the commit: a compaction would move main, and the branch
    could not follow.
    """
    sink = busy(lake, 3)
    branch = f"{UNPUBLISHED_PREFIX}0123456789ab"
    lake.sql(f"ALTER TABLE lake.{sink.name} CREATE BRANCH `{branch}`")
    lake.sql(f"INSERT INTO lake.{sink.name}.`branch_{branch}` (shop, number) VALUES (1, 'held')")
    result = do(lake, sink, MaintenanceKind.COMPACT)
    assert "await approval" in result.skipped
    assert result.after == result.before
    metadata = lake.catalog.table(sink.name).metadata()
    assert metadata.refs["main"] in [
        each["snapshot-id"] for each in metadata.ancestors(metadata.head(branch))
    ]


@pytest.mark.long  # in every run: the plan, in tests/unit/test_iceberg_maintenance_plan.py
def test_tables_that_say_so_lose_no_snapshots(lake: Lake) -> None:
    sink = busy(lake, 3)
    lake.catalog.set_properties(sink.name, {"gc.enabled": "false"})
    result = do(lake, sink, MaintenanceKind.EXPIRE)
    assert "gc.enabled" in result.skipped
    assert result.after.snapshots == result.before.snapshots == CYCLES


def test_command_says_what_is_due_and_does_it(lake: Lake, run: Any) -> None:
    sink = busy(lake, 3)
    settings = [
        word
        for text in ("small-files=3", "keep-snapshots=2", "snapshots=3", "keep=1m")
        for word in ("--set", text)
    ]
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


@pytest.mark.long  # in every run: test_compaction_that_could_not_rewrite_files_counts_as_failed
def test_command_fails_while_a_file_to_compact_is_gone(lake: Lake, run: Any) -> None:
    """Iceberg's procedure ends well although it could not read a file."""
    sink = lake.make()
    staged = [sink.stage([order(1, str(number))]) for number in range(CYCLES)]
    for files in staged:
        sink.commit(files)
    rows = sink.rows()
    file = Path(staged[0][0].path.removeprefix("file://"))
    aside = file.rename(file.with_suffix(".aside"))
    now = ("--now", "--json", "--set", f"small-files={CYCLES}")
    failed = run(sink.name, *now)
    assert failed.exit_code == 1
    document = json.loads(failed.stdout)
    assert "could not be rewritten" in document["failed"]["compact data files"]
    assert [each["failure"] for each in document["done"]] == [
        document["failed"]["compact data files"]
    ]
    aside.rename(file)
    mended = run(sink.name, *now)
    assert mended.exit_code == 0, mended.stderr
    assert json.loads(mended.stdout)["done"][0]["after"]["data_files"] == 1
    assert sink.rows() == rows


@pytest.mark.long  # in every run: test_compaction_and_expiry_keep_rows_and_the_ledger
def test_branches_are_compacted_where_the_connector_commits(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "main")]))
    sink.ref = "audit"
    for number in range(4):
        sink.commit(sink.stage([order(1, str(number))]))
    rows = sink.rows()
    request = MaintenanceRequest(
        MaintenanceAction(MaintenanceKind.COMPACT, "a test"), POLICY, "audit"
    )
    result = lake.catalog.run(sink.name, maintain, request)
    assert (result.before.data_files, result.after.data_files) == (5, 1)
    assert sink.rows() == rows
    skipped = lake.catalog.run(
        sink.name,
        maintain,
        dataclasses.replace(request, action=MaintenanceAction(MaintenanceKind.MANIFESTS, "a test")),
    )
    assert "only for main" in skipped.skipped
    assert (
        look_up(lake.catalog.table(sink.name).metadata().view("audit", KEY)).standing
        is Standing.FOUND
    )


BY_DAY = json.dumps(
    {
        "spec-id": 0,
        "fields": [
            {"name": "placed_day", "transform": "day", "source-id": 5, "field-id": 1000},
        ],
    }
)
TODAY = dt.datetime.now(dt.UTC).replace(hour=1)
TIERED = MaintenancePolicy(
    MaintenanceMode.TRUE, small_files=2, operations_table=None, tiering_age_ms=30 * DAYS
)


def places(lake: Lake, sink: Sink, cold: str) -> dict[bool, set[str]]:
    """Days of the data files in the cold place, and of the others."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for row in lake.rows(f"{sink.name}.data_files", "file_path, partition.placed_day AS day"):
        file = dict(row)
        found[file["file_path"].replace(":///", ":/").startswith(cold.replace(":///", ":/"))].add(
            file["day"]
        )
    return found


# in every run: test_move_spares_files_of_an_expired_snapshot, and moves that meet others
@pytest.mark.long
@pytest.mark.parametrize(("version", "elsewhere"), [(1, False), (2, True), (3, False), (3, True)])
def test_old_partitions_move_with_their_deletes_and_read_the_same(
    lake: Lake, tmp_path: Path, version: int, elsewhere: bool
) -> None:
    policy = dataclasses.replace(TIERED, tiering_location=tmp_path.as_uri() if elsewhere else "")
    mode = WriteMode.APPEND if version == 1 else WriteMode.MERGE
    sink = lake.make(version=version, mode=mode, spec=None)
    lake.sql(f"ALTER TABLE lake.{sink.name} ADD PARTITION FIELD day(placed)")
    lake.sql(f"ALTER TABLE lake.{sink.name} WRITE ORDERED BY number")
    days = {"a": 0, "b": 29, "c": 40, "d": 41}
    rows = [
        order(1, name, placed=TODAY - dt.timedelta(days=days[name[0]]))
        for name in ("a", "b", "c", "c2", "d")
    ]
    lake.sql(f"INSERT INTO lake.{sink.name} VALUES {', '.join(map(sql_row, rows))}")
    if version > 1:
        lake.sql(f"DELETE FROM lake.{sink.name} WHERE number = 'c2'")
    metadata = lake.catalog.table(sink.name).metadata()
    cold = cold_location(metadata, policy, sink.name)
    assert cold == (
        f"{tmp_path.as_uri()}/{sink.name.replace('.', '/')}-{metadata.uuid[:8]}"
        if elsewhere
        else f"{metadata.location}/cold"
    )
    before = sink.rows("number, placed" + (", _row_id" if version == 3 else ""))
    state = measure(lake.catalog, sink.name, "main", policy)
    assert [a.kind for a in due_actions(state, policy, 0) if a.kind is MaintenanceKind.MOVE] == [
        MaintenanceKind.MOVE
    ]
    moved = do(lake, sink, MaintenanceKind.MOVE, policy)
    assert (moved.counts["moved_partitions"], moved.after.movable, moved.after.cold_files) == (
        2,
        0,
        2,
    ), moved
    assert "cold files 0 -> 2" in moved.line()
    assert sink.rows("number, placed" + (", _row_id" if version == 3 else "")) == before
    day = {name: str((TODAY - dt.timedelta(days=age)).date()) for name, age in days.items()}
    assert places(lake, sink, cold) == {True: {day["c"], day["d"]}, False: {day["a"], day["b"]}}
    assert not do(lake, sink, MaintenanceKind.MOVE, policy).helped
    for late in ("e", "f"):  # late rows wait for each other
        lake.sql(f"INSERT INTO lake.{sink.name} VALUES {sql_row({**rows[2], 'number': late})}")
        due = measure(lake.catalog, sink.name, "main", policy).movable
        assert due == (late == "f")
    do(lake, sink, MaintenanceKind.MOVE, policy)
    assert places(lake, sink, cold)[True] == {day["c"], day["d"]}
    assert [dict(row)["number"] for row in sink.rows("number")] == sorted(
        "abcdef" if version > 1 else ["c2", *"abcdef"]
    )


def sql_row(row: dict[str, Any]) -> str:
    return (
        f"({row['shop']}, '{row['number']}', NULL, 1.0, TIMESTAMP "
        f"'{row['placed']:%Y-%m-%d %H:%M:%S}Z', NULL)"
    )


@pytest.mark.parametrize(
    "transform", short_form(["hours(at)", "months(at)", "years(at)", "day"], [])
)
def test_partitions_of_any_time_move_once_they_are_old_enough(lake: Lake, transform: str) -> None:
    name = f"shop.t{uuid.uuid4().hex[:10]}"
    lake.sql(
        f"CREATE TABLE lake.{name} (n INT, day DATE, at TIMESTAMP_NTZ) USING iceberg PARTITIONED "
        f"BY ({transform})"
    )
    past = TODAY - dt.timedelta(days=800)
    for number, moment in enumerate((past, TODAY)):
        lake.sql(
            f"INSERT INTO lake.{name} VALUES ({number}, DATE '{moment:%Y-%m-%d}', "
            f"TIMESTAMP_NTZ '{moment:%Y-%m-%d %H:%M:%S}')"
        )
    request = MaintenanceRequest(MaintenanceAction(MaintenanceKind.MOVE, "a test"), TIERED)
    result = lake.catalog.run(name, maintain, request)
    assert (result.counts, result.after.cold_files) == (
        {"moved_partitions": 1, "moved_files": 1, "written_files": 1},
        1,
    )
    files = [dict(row)["file_path"] for row in lake.rows(f"{name}.data_files", "file_path")]
    assert sorted("/cold/" in file for file in files) == [False, True]
    assert len(lake.rows(name)) == 2


@pytest.mark.long
def test_moved_files_have_the_storage_class_that_was_named(s3_lake: Lake, s3: S3Server) -> None:
    sink = s3_lake.make(spec=BY_DAY)
    for age in (0, 50):
        row = order(1, str(age), placed=TODAY - dt.timedelta(days=age))
        s3_lake.sql(f"INSERT INTO lake.{sink.name} VALUES {sql_row(row)}")
    policy = dataclasses.replace(
        TIERED, tiering_location=f"s3://{BUCKET}/archive/", tiering_storage_class="GLACIER_IR"
    )
    assert do(s3_lake, sink, MaintenanceKind.MOVE, policy).after.cold_files == 1
    files = {
        path.split("/")[1]: s3.storage_class(path)
        for path in s3.files("")
        if path.endswith(".parquet")
    }
    assert files == {"archive": "GLACIER_IR", "warehouse": "STANDARD"}
    assert len(sink.rows()) == 2


def test_move_that_loses_to_a_delete_leaves_no_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=2, spec=BY_DAY)
    old = order(1, "a", placed=TODAY - dt.timedelta(days=50))
    lake.sql(
        f"INSERT INTO lake.{sink.name} VALUES {sql_row(old)}, {sql_row({**old, 'number': 'b'})}"
    )
    real = moved_files.write_tasks

    def written(*arguments: Any) -> Any:
        found = real(*arguments)
        lake.sql(f"DELETE FROM lake.{sink.name} WHERE number = 'a'")
        return found

    monkeypatch.setattr(moved_files, "write_tasks", written)
    with pytest.raises(CatalogUnavailableError):
        do(lake, sink, MaintenanceKind.MOVE, TIERED)
    assert [dict(row)["number"] for row in sink.rows("number")] == ["b"]
    cold = Path(lake.catalog.table(sink.name).metadata().location.removeprefix("file://")) / "cold"
    assert not [*cold.rglob("*.parquet")]


def old_and_new(lake: Lake) -> Sink:
    """Create a table with a partition that is old enough to be moved, and a newer one."""
    sink = lake.make(version=2, spec=BY_DAY)
    for age in (0, 50):
        row = order(1, str(age), placed=TODAY - dt.timedelta(days=age))
        lake.sql(f"INSERT INTO lake.{sink.name} VALUES {sql_row(row)}")
    return sink


def cold_files(lake: Lake, sink: Sink) -> list[Path]:
    """Data files in the cold place, whether the table has them or not."""
    folder = Path(lake.catalog.table(sink.name).metadata().location.removeprefix("file://"))
    return [*(folder / "cold").rglob("*.parquet")]


@pytest.mark.parametrize("fault", short_form(["refused", "no answer", "overtaken"], ["no answer"]))
def test_move_whose_commit_landed_keeps_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The catalog's response is wrong or lost, or another commit was first and the move was
    repeated.
    """
    sink, swap, swaps = old_and_new(lake), TableUpdate.swap, []

    def disturbed(self: TableUpdate, properties: Mapping[str, str]) -> None:
        swaps.append(self)
        if fault == "overtaken" and len(swaps) == 1:
            row = order(1, "1", placed=TODAY)
            lake.sql(f"INSERT INTO lake.{sink.name} VALUES {sql_row(row)}")
        swap(self, properties)
        if fault == "no answer":
            raise CatalogUnavailableError("no answer")

    monkeypatch.setattr(TableUpdate, "swap", disturbed)
    with refused_swaps(lake) if fault == "refused" else nullcontext():
        moved = do(lake, sink, MaintenanceKind.MOVE, TIERED)
    assert (moved.counts["moved_partitions"], moved.after.cold_files, moved.after.movable) == (
        1,
        1,
        0,
    )
    assert len(swaps) == (2 if fault == "overtaken" else 1)
    assert len(cold_files(lake, sink)) == 1
    assert [dict(row)["number"] for row in sink.rows("number")] == [
        "0",
        *["1"] * (fault == "overtaken"),
        "50",
    ]


def test_move_of_unknown_outcome_leaves_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog may still commit."""
    sink, swap, late = old_and_new(lake), TableUpdate.swap, []

    def unanswered(self: TableUpdate, properties: Mapping[str, str]) -> None:
        late.append(partial(swap, self, properties))
        raise CatalogUnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(TableUpdate, "swap", unanswered)
        with pytest.raises(CatalogUnavailableError, match="no answer"):
            do(lake, sink, MaintenanceKind.MOVE, TIERED)
    assert len(cold_files(lake, sink)) == 1
    late[0]()
    assert [dict(row)["number"] for row in sink.rows("number")] == ["0", "50"]
    assert measure(lake.catalog, sink.name, "main", TIERED).cold_files == 1


def test_move_spares_files_of_an_expired_snapshot(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit landed without an answer. By the next look its snapshot had expired, and a later
    one has its files."""
    sink, swap = old_and_new(lake), TableUpdate.swap

    def buried(self: TableUpdate, properties: Mapping[str, str]) -> None:
        swap(self, properties)
        lake.sql(f"INSERT INTO lake.{sink.name} VALUES {sql_row(order(1, '1', placed=TODAY))}")
        lake.sql(f"CALL lake.system.expire_snapshots('{sink.name}', TIMESTAMP '2100-01-01', 1)")
        raise CatalogUnavailableError("no answer")

    monkeypatch.setattr(TableUpdate, "swap", buried)
    with pytest.raises(CatalogUnavailableError, match="concurrent commit changed rows"):
        do(lake, sink, MaintenanceKind.MOVE, TIERED)
    assert [dict(row)["number"] for row in sink.rows("number")] == ["0", "1", "50"]


@pytest.mark.long
def test_table_without_time_partitions_says_so(lake: Lake, run: Any) -> None:
    sink = lake.make(spec=BY_REGION)
    sink.commit(sink.stage([order(1, "a")]))
    shown = run(sink.name, "--dry-run", "--set", "tiering-age=1d")
    assert shown.exit_code == 0, shown.output
    assert "tiering: the table has no time partition field" in shown.output
