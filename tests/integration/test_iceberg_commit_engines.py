"""Each engine on a real Spark and Iceberg: the resulting rows, and the snapshot's summary."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fixtures.iceberg_commit import BY_REGION, ENGINES, KEY, Lake, Sink, lake, order
from short_form import short_form

from connect_py.api.errors import CommitStateUnknownError
from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit import engine as engine_module
from connectors.iceberg.commit.engine import AFTER_ROWS
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    DuplicateKeyError,
    TableUnsuitableError,
)
from connectors.iceberg.protocol.commit_request import CommitStatus, EngineName
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.table.table import StagedKind, WriteMode

__all__ = ["lake"]


def keys(sink: Sink) -> list[tuple[object, ...]]:
    return [tuple(value for _, value in row) for row in sink.rows("shop, number")]


def test_appended_rows_are_visible_and_the_snapshot_carries_the_ledger(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND, version=2)
    outcome = sink.commit(sink.stage([order(1, "a"), order(1, "b")]))
    assert keys(sink) == [(1, "a"), (1, "b")]
    assert outcome.engine is EngineName.APPEND
    assert (outcome.counts.added_files, outcome.counts.added_rows) == (1, 2)
    looked = look_up(sink.load().view)
    assert looked.standing is Standing.FOUND
    assert looked.ledger is not None
    assert looked.ledger.cycle == 1
    assert looked.version.ledger_snapshot == looked.version.property_snapshot == outcome.snapshot_id


def test_commit_without_files_moves_the_ledger(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    outcome = sink.commit([])
    assert sink.version().ledger_snapshot == outcome.snapshot_id


def test_names_of_folders_are_taken_as_they_are(lake: Lake) -> None:
    sink = lake.make(**{"write.data.path": f"file://{lake.folder}/a%20b#c d"})
    (staged,) = sink.stage([order(1, "a")])
    rows = pq.read_table(staged.path.removeprefix("file://"), partitioning=None).drop(["notes"])
    uri, size = FileOutput(sink.description(), {}).write("connect-orders-7-by-a-task.parquet", rows)
    sink.commit([dataclasses.replace(staged, path=uri, size=size)])
    assert sink.commit(sink.stage([order(1, "a")]), EngineName.MERGE).counts.replaced_rows == 1
    assert keys(sink) == [(1, "a")]


def test_commit_without_files_needs_no_key(lake: Lake) -> None:
    """The key is that of the records, and this process has not seen a record yet."""
    sink = lake.make(key_columns=())
    outcome = sink.commit([], ordered=True)
    assert sink.version().ledger_snapshot == outcome.snapshot_id


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("version", "spec"), short_form(itertools.product((2, 3), (None, BY_REGION)), [(2, BY_REGION)])
)
def test_upserts_replace_rows_and_deletes_remove_rows_by_key(
    lake: Lake, engine: EngineName, version: int, spec: str | None
) -> None:
    sink = lake.make(spec=spec, version=version)
    sink.commit(
        sink.stage([order(1, "a"), order(1, "b", None), order(2, "a", "south"), order(3, "x")]),
        engine,
    )
    upserts = sink.stage([order(1, "a", "south", amount=None), order(9, "new", notes=None)])
    outcome = sink.commit(
        upserts
        + sink.stage(
            [{"shop": 1, "number": "b"}, {"shop": 77, "number": "no"}], StagedKind.DELETES
        ),
        engine,
    )
    assert outcome.engine is engine
    assert keys(sink) == [(1, "a"), (2, "a"), (3, "x"), (9, "new")]
    assert dict(sink.rows()[0])["region"] == "south"
    assert "amount" not in dict(sink.rows()[0])  # null
    assert look_up(sink.load().view).version.property_snapshot == outcome.snapshot_id


@pytest.mark.parametrize("engine", ENGINES)
def test_second_committer_on_the_same_version_is_refused(lake: Lake, engine: EngineName) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    stale = sink.request(sink.stage([order(1, "a", amount=None), order(2, "zombie")]))
    sink.commit(sink.stage([order(3, "leader")]), engine)
    outcome = sink.committer(engine).commit(stale)
    assert outcome.status is CommitStatus.CONFLICT
    assert keys(sink) == [(1, "a"), (3, "leader")]


@pytest.mark.parametrize("engine", ENGINES)
def test_request_made_again_after_it_landed_is_committed_once(
    lake: Lake, engine: EngineName
) -> None:
    sink = lake.make()
    request = sink.request(sink.stage([order(1, "a")]))
    first = sink.committer(engine).commit(request)
    sink.commit(sink.stage([order(2, "b")]))
    again = sink.committer(engine).commit(request)
    assert (again.status, again.snapshot_id) == (CommitStatus.COMMITTED, first.snapshot_id)
    assert keys(sink) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_branch_begins_at_main_and_takes_the_commits(
    lake: Lake, engine: EngineName
) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a"), order(2, "b")]))
    branch = Sink(lake, sink.name, sink.mode, sink.key_columns, ref="audit")
    first = branch.commit(branch.stage([order(3, "c")]), engine)
    branch.commit(branch.stage([order(4, "d")]), engine)
    assert keys(branch) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert keys(sink) == [(1, "a"), (2, "b")]
    assert first.snapshot_id is not None
    assert branch.load().view.property is not None
    assert KEY in branch.request([]).summary


def test_rows_of_a_branch_counted_as_empty_are_replaced(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]))
    lake.catalog.table(sink.name).java_table.newFastAppend().toBranch(
        "audit"
    ).commit()  # another writer created the branch
    branch = Sink(lake, sink.name, sink.mode, sink.key_columns, ref="audit", cycle=sink.cycle)
    head = lake.catalog.table(sink.name).metadata().head("audit")
    assert head is not None
    assert head["summary"]["total-data-files"] == "0"
    branch.commit(branch.stage([order(1, "a", "south")]))
    assert branch.rows("number, region") == [
        (("number", "a"), ("region", "south")),
        (("number", "b"), ("region", "north")),
    ]


def test_first_commit_to_a_branch_counts_the_files_of_main(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    branch = Sink(lake, sink.name, sink.mode, sink.key_columns, ref="audit", cycle=sink.cycle)
    branch.commit(branch.stage([order(1, "b")]))
    head = lake.catalog.table(sink.name).metadata().head("audit")
    assert head is not None
    assert (head["summary"]["total-data-files"], head["summary"]["total-records"]) == ("2", "2")


def test_dropped_unpublished_branch_is_detected_after_its_snapshots_expired(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    for number in (1, 2):
        lake.sql(
            f"INSERT INTO lake.{sink.name} (shop, number) VALUES ({number}, 'of somebody else')"
        )
    sink.ref = "audit"
    sink.commit(sink.stage([order(1, "a")]))
    lake.sql(f"ALTER TABLE lake.{sink.name} DROP BRANCH audit")
    assert look_up(sink.load().view).standing is Standing.BRANCH_LOST
    older_than = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    lake.sql(f"CALL lake.system.expire_snapshots(table => '{sink.name}', {older_than})")
    assert look_up(sink.load().view).standing is Standing.BRANCH_LOST


def test_tagged_commit_on_an_expired_main_counts_as_expired(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    sink.commit(sink.stage([order(1, "a")]))
    lake.sql(f"ALTER TABLE lake.{sink.name} CREATE TAG kept")
    for number in (1, 2):
        lake.sql(
            f"INSERT INTO lake.{sink.name} (shop, number) VALUES ({number}, 'of somebody else')"
        )
    older_than = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    lake.sql(f"CALL lake.system.expire_snapshots(table => '{sink.name}', {older_than})")
    assert look_up(sink.load().view).standing is Standing.EXPIRED


def test_rollback_below_expired_snapshots_counts_as_lost(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    first = sink.commit(sink.stage([order(1, "a")])).snapshot_id
    lake.sql(f"INSERT INTO lake.{sink.name} (shop, number) VALUES (2, 'of somebody else')")
    head = sink.load().view.ancestors[0].id
    sink.commit(sink.stage([order(3, "b")]))
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{sink.name}', snapshot_ids => ARRAY({first}))"
    )
    lake.sql(f"CALL lake.system.set_current_snapshot('{sink.name}', {head})")
    assert look_up(sink.load().view).standing is Standing.LOST


@pytest.mark.parametrize("engine", ENGINES)
def test_patch_takes_unavailable_values_from_the_row_in_the_table(
    lake: Lake, engine: EngineName
) -> None:
    sink = lake.make(spec=BY_REGION)
    sink.commit(
        sink.stage([order(1, "a", notes=["kept"]), order(1, "b", notes=["old"]), order(1, "c")]),
        engine,
    )
    patches = [order(1, "a", "south", notes=None), order(5, "unknown", notes=None)]
    files = sink.stage(patches, StagedKind.CHANGES, ["notes"]) + sink.stage(
        [order(1, "b", notes=["new"])]
    )
    outcome = sink.commit(files, engine)
    found = {row[1][1]: (dict(row)["region"], dict(row).get("notes")) for row in sink.rows()}
    assert found == {
        "a": ("south", ["kept"]),
        "b": ("north", ["new"]),
        "c": ("north", ["a", None]),
        "unknown": ("north", None),
    }
    if engine is EngineName.MERGE:
        assert outcome.counts.unmatched_patches == 1
        files_of = {dict(row)["number"]: dict(row)["_file"] for row in sink.rows("number, _file")}
        folder = f"/data/{sink.request([]).file_prefix}"
        assert folder in files_of["a"], "completed rows lie where clean-up looks for them"


@pytest.mark.parametrize("engine", ENGINES)
def test_key_staged_twice_is_an_error_that_names_it(lake: Lake, engine: EngineName) -> None:
    sink = lake.make()
    files = sink.stage([order(1, "a"), order(1, "b")]) + sink.stage([order(1, "b", amount=None)])
    with pytest.raises(DuplicateKeyError, match=r"\(1\): \(1, 'b'\) in partition"):
        sink.committer(engine).commit(sink.request(files))
    assert keys(sink) == []


def test_first_rows_of_an_empty_merge_table_are_appended(lake: Lake) -> None:
    sink = lake.make()
    assert sink.commit(sink.stage([order(1, "a")])).engine is EngineName.APPEND
    assert sink.commit(sink.stage([order(1, "a")])).engine is EngineName.MERGE


def test_merge_without_matching_keys_is_an_append_snapshot(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    outcome = sink.commit(sink.stage([order(1, "b"), order(2, "a")]))
    assert (outcome.engine, outcome.counts.replaced_rows) == (EngineName.MERGE, 0)
    assert [dict(row)["operation"] for row in lake.rows(f"{sink.name}.snapshots", "operation")] == [
        "append"
    ] * 2


def test_copy_on_write_table_is_merged_without_any_delete_files(lake: Lake) -> None:
    sink = lake.make(**{"write.merge.mode": "copy-on-write"})
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]))
    outcome = sink.commit(sink.stage([order(1, "a", "south")]))
    assert outcome.engine is EngineName.FULL_MERGE
    assert keys(sink) == [(1, "a"), (1, "b")]
    assert lake.rows(f"{sink.name}.delete_files", "file_path") == []


@pytest.mark.parametrize("spec", short_form([None, BY_REGION], [BY_REGION]))
def test_table_of_format_1_is_merged_by_sql(lake: Lake, spec: str | None) -> None:
    sink = lake.make(version=1, spec=spec)
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]))
    stale = sink.request(sink.stage([order(1, "zombie")]))
    outcome = sink.commit(
        [
            *sink.stage([order(1, "a", "south"), order(1, "c")]),
            *sink.stage([{"shop": 1, "number": "b"}], StagedKind.DELETES),
            *sink.stage([order(9, "new", None)], StagedKind.CHANGES, ["region"]),
        ]
    )
    assert outcome.engine is EngineName.FULL_MERGE
    assert keys(sink) == [(1, "a"), (1, "c"), (9, "new")]
    looked = look_up(sink.load().view)
    assert looked.version.ledger_snapshot == looked.version.property_snapshot == outcome.snapshot_id
    assert sink.committer().commit(stale).status is CommitStatus.CONFLICT


@pytest.mark.parametrize("spec", short_form([None, BY_REGION], [BY_REGION]))
def test_merge_leaves_no_branch_and_no_staged_snapshot_behind(lake: Lake, spec: str | None) -> None:
    sink = lake.make(spec=spec)
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]), EngineName.FULL_MERGE)
    rows = sink.stage([order(1, "a", "south")]) + sink.stage(
        [{"shop": 1, "number": "b"}], StagedKind.DELETES
    )
    stale = sink.request(rows)
    sink.commit(rows, EngineName.FULL_MERGE)
    assert sink.committer(EngineName.FULL_MERGE).commit(stale).status is CommitStatus.CONFLICT
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]
    assert len(lake.rows(f"{sink.name}.snapshots", "snapshot_id")) == 2
    manifests = {
        dict(row)["path"].rpartition("/")[2]
        for row in lake.rows(f"{sink.name}.all_manifests", "path")
    }
    folder = lake.folder / "warehouse" / sink.name.replace(".", "/") / "metadata"
    assert {path.name for path in folder.glob("*-m*.avro")} == manifests


def metadata_files(lake: Lake, sink: Sink) -> set[str]:
    """Return the existing manifests and manifest lists."""
    folder = lake.folder / "warehouse" / sink.name.replace(".", "/") / "metadata"
    return {path.name for path in folder.glob("*.avro")}


def test_staged_file_with_a_wrong_row_count_is_refused(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    there = metadata_files(lake, sink)
    (whole,) = sink.stage([order(1, "b", "south")])
    with pytest.raises(TableUnsuitableError, match="has 1 row, but its task reported 2"):
        sink.commit([dataclasses.replace(whole, rows=2)])
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]
    assert metadata_files(lake, sink) == there


@pytest.mark.long  # in every run: test_compaction_during_a_commit_makes_it_start_over
@pytest.mark.parametrize("engine", ENGINES)
def test_compaction_between_cycles_is_no_conflict(lake: Lake, engine: EngineName) -> None:
    sink = lake.make(version=2)
    for number in "abc":
        sink.commit(sink.stage([order(1, number), order(2, number)]), engine)
    before = sink.version()
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('rewrite-all', 'true'))"
    )
    assert sink.version() == before
    sink.commit(sink.stage([order(1, "b", amount=None)]), engine)
    assert keys(sink) == [(shop, number) for shop in (1, 2) for number in "abc"]


@pytest.mark.parametrize("engine", ENGINES)
def test_compaction_during_a_commit_makes_it_start_over(
    lake: Lake, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]), engine)
    sink.commit(sink.stage([order(1, "c")]), engine)
    compact = (
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('rewrite-all', 'true'))"
    )
    hold_before_commit(lake, monkeypatch, lambda: lake.sql(compact))
    outcome = sink.commit(sink.stage([order(1, "a", amount=None)]), engine)
    assert outcome.counts.foreign_conflicts >= 1
    assert keys(sink) == [(1, "a"), (1, "b"), (1, "c")]


@pytest.mark.parametrize("engine", ENGINES)
def test_commit_starts_over_if_expiration_removes_files_that_its_merge_reads(
    lake: Lake, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make()
    ours = sink.commit(sink.stage([order(1, "a"), order(1, "b")]), engine).snapshot_id
    lake.sql(f"INSERT INTO lake.{sink.name} (shop, number) VALUES (1, 'c')")
    head = sink.load().view.ancestors[0].id
    acts = ["roll back and expire"]

    def remove_the_files_of_the_head(name: str) -> None:
        if name == AFTER_ROWS and acts:
            acts.pop()
            lake.sql(f"CALL lake.system.rollback_to_snapshot('{sink.name}', {ours})")
            lake.sql(
                f"CALL lake.system.expire_snapshots(table => '{sink.name}', snapshot_ids => "
                f"ARRAY({head}))"
            )

    monkeypatch.setattr(engine_module, "fault_point", remove_the_files_of_the_head)
    outcome = sink.commit(sink.stage([order(1, "a", amount=None)]), engine)
    assert outcome.counts.foreign_conflicts == 1
    assert keys(sink) == [(1, "a"), (1, "b")]


def test_commit_writes_one_metadata_file_and_no_branch(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]))
    folder = lake.folder / "warehouse" / sink.name.replace(".", "/") / "metadata"
    before = set(folder.glob("*.metadata.json"))
    outcome = sink.commit(sink.stage([order(1, "a", "south")]))
    (metadata_file,) = set(folder.glob("*.metadata.json")) - before
    assert (outcome.engine, outcome.counts.replaced_rows) == (EngineName.MERGE, 1)
    metadata = json.loads(metadata_file.read_text())
    assert list(metadata["refs"]) == ["main"]
    assert len(metadata["snapshots"]) == 2


@pytest.mark.parametrize("keys_exist", [True, False])
def test_merge_names_keys_that_are_staged_twice(lake: Lake, keys_exist: bool) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a" if keys_exist else "z"), order(1, "b")]))
    files = sink.stage([order(1, "a"), order(1, "b")]) + sink.stage([order(1, "a", amount=None)])
    with pytest.raises(DuplicateKeyError, match=r"\(1\): \(1, 'a'\) in partition"):
        sink.committer().commit(sink.request(files))
    data = lake.folder / "warehouse" / sink.name.replace(".", "/") / "data"
    assert [path.name for path in data.rglob("*.puffin")] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_leader_that_commits_during_a_commit_wins(
    lake: Lake, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]), engine)
    files, others = sink.stage([order(1, "zombie")]), sink.stage([order(1, "leader")])
    request = sink.request(files)
    hold_before_commit(lake, monkeypatch, lambda: sink.commit(others, EngineName.APPEND))
    assert sink.committer(engine).commit(request).status is CommitStatus.CONFLICT
    assert keys(sink) == [(1, "a"), (1, "leader")]


@pytest.mark.parametrize("engine", ENGINES)
def test_commit_that_landed_before_the_answer_was_lost_is_found(
    lake: Lake, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]), engine)
    swap = TableUpdate.swap

    def lose_the_answer(self: TableUpdate, properties: Mapping[str, str]) -> None:
        swap(self, properties)
        raise CommitStateUnknownError("the answer was lost")

    monkeypatch.setattr(TableUpdate, "swap", lose_the_answer)
    assert (
        sink.commit(sink.stage([order(1, "b")]), engine).snapshot_id
        == sink.version().ledger_snapshot
    )
    assert keys(sink) == [(1, "a"), (1, "b")]


def test_follow_up_work_runs_if_the_response_of_the_swap_was_lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, the commit deletes the files of a scratch snapshot that its swap removed (rule 40)."""
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    branch, table = "connect-work-1", lake.catalog.table(sink.name)
    lake.sql(f"ALTER TABLE lake.{sink.name} CREATE BRANCH `{branch}`")
    rows = lake.catalog.spark.table(f"lake.{sink.name}")
    writer = rows.writeTo(f"lake.{sink.name}.`branch_{branch}`")
    writer.option("snapshot-property.connect-py.scratch", branch).append()
    scratch = table.refresh().refs[branch]
    (scratch_file,) = table.files_added_by(table.java_table.snapshot(scratch))
    swap = TableUpdate.swap

    def lose_the_response(self: TableUpdate, properties: Mapping[str, str]) -> None:
        swap(self, properties)
        raise CommitStateUnknownError("the response was lost")

    monkeypatch.setattr(TableUpdate, "swap", lose_the_response)
    sink.commit(sink.stage([order(1, "b")]))
    metadata = table.refresh()
    assert branch not in metadata.refs
    assert scratch not in metadata.snapshots
    assert not Path(scratch_file.removeprefix("file:")).exists()
    assert keys(sink) == [(1, "a"), (1, "b")]


@pytest.mark.parametrize("engine", ENGINES)
def test_swap_that_meets_its_own_commit_has_landed(
    lake: Lake, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog reports that a commit failed although it succeeded: the next attempt is
    refused.
    """
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]), engine)
    request = sink.request(sink.stage([order(1, "b")]))
    hold_before_commit(lake, monkeypatch, lambda: sink.committer(engine).commit(request))
    assert sink.committer(engine).commit(request).status is CommitStatus.COMMITTED
    assert keys(sink) == [(1, "a"), (1, "b")]


def test_commit_that_did_not_land_stays_unknown_until_asked_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make()
    request = sink.request(sink.stage([order(1, "a")]))
    with monkeypatch.context() as patch:
        load, loads = JavaCatalog.load, []

        def refuse(self: TableUpdate, properties: Mapping[str, str]) -> None:
            loads.append("none from now on")
            raise CommitStateUnknownError("the catalog is away")

        def load_before(self: JavaCatalog, name: str) -> JavaTable:
            if loads:
                raise CatalogUnavailableError("the catalog is away")
            return load(self, name)

        patch.setattr(TableUpdate, "swap", refuse)
        patch.setattr(JavaCatalog, "load", load_before)
        assert sink.committer().commit(request).status is CommitStatus.UNKNOWN
    assert sink.committer().commit(request).status is CommitStatus.COMMITTED
    assert keys(sink) == [(1, "a")]


def test_rollback_to_the_expected_ledger_is_detected_by_the_property(lake: Lake) -> None:
    sink = lake.make()
    first = sink.commit(sink.stage([order(1, "a")]))
    late = sink.request(sink.stage([order(1, "late")]))
    sink.commit(sink.stage([order(1, "b")]))
    lake.sql(f"CALL lake.system.rollback_to_snapshot('{sink.name}', {first.snapshot_id})")
    assert look_up(sink.load().view).standing is Standing.ROLLED_BACK
    assert sink.committer().commit(late).status is CommitStatus.CONFLICT
    assert keys(sink) == [(1, "a")]


def test_replaced_table_is_distinguished_from_a_table_emptied_again(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    first = sink.commit(sink.stage([order(1, "a")]))
    table = f"lake.{sink.name}"
    lake.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT * FROM {table}")
    assert look_up(sink.load().view).standing is Standing.REPLACED
    lake.sql(f"CALL lake.system.set_current_snapshot('{sink.name}', {first.snapshot_id})")
    assert look_up(sink.load().view).standing is Standing.FOUND
    lake.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT * FROM {table} WHERE false")
    assert look_up(sink.load().view).standing is Standing.ROLLED_BACK


@pytest.mark.parametrize("version", short_form([2, 3], [3]))
def test_commit_starts_over_without_orphan_files_after_a_rollback(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=version)
    first = sink.commit(sink.stage([order(1, "a")]))
    lake.sql(f"INSERT INTO lake.{sink.name} (shop, number) VALUES (1, 'b')")
    staged = sink.stage([order(1, "a"), order(1, "c")])
    data = lake.folder / "warehouse" / sink.name.replace(".", "/") / "data"
    there = set(data.rglob("*.*"))
    hold_before_commit(
        lake,
        monkeypatch,
        lambda: lake.sql(
            f"CALL lake.system.rollback_to_snapshot('{sink.name}', {first.snapshot_id})"
        ),
    )
    sink.commit(staged)
    assert keys(sink) == [(1, "a"), (1, "c")]
    deletes = {
        dict(row)["file_path"].rpartition("/")[2]
        for row in lake.rows(f"{sink.name}.delete_files", "file_path")
    }
    assert {path.name for path in set(data.rglob("*.*")) - there} == deletes


@pytest.mark.parametrize("empty", [False, True])
def test_foreign_rows_are_refused_on_request(
    lake: Lake, empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make()
    if not empty:
        sink.commit(sink.stage([order(1, "b")]))
    insert = f"INSERT INTO lake.{sink.name} (shop, number) VALUES (1, 'b')"
    hold_before_commit(lake, monkeypatch, lambda: lake.sql(insert))
    outcome = sink.committer(refuse_foreign_rows=True).commit(
        sink.request(sink.stage([order(1, "b")]))
    )
    assert outcome.status is CommitStatus.COMMITTED
    assert outcome.counts.foreign_conflicts >= 1
    assert keys(sink) == [(1, "b")]


def hold_before_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> None:
    """Let `act` happen once, after the next commit was prepared and right before it is swapped
    in."""
    swap = TableUpdate.swap
    acts = [act]

    def act_first(self: TableUpdate, properties: Mapping[str, str]) -> None:
        if acts:
            acts.pop()()
        swap(self, properties)

    monkeypatch.setattr(TableUpdate, "swap", act_first)
