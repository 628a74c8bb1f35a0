"""Compaction and expiration in the driver of the commits: exact under concurrent commits and at
every crash."""

from __future__ import annotations

import dataclasses
import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fixtures import iceberg_commit
from fixtures.iceberg_commit import BY_REGION, KEY, Lake, Sink, lake, order
from fixtures.refusing_catalog import refused_swaps
from short_form import short_form

from connectors.iceberg.catalog import file_rewrite
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.config.maintenance_policy import (
    CREATED_KEY,
    CREATED_PROPERTIES,
    MaintenancePolicy,
)
from connectors.iceberg.errors import CatalogUnavailableError
from connectors.iceberg.maintenance import compaction, expiration
from connectors.iceberg.maintenance.compaction import (
    CompactionOutcome,
    CompactionRequest,
    CompactionStatus,
)
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.protocol.own_refs import UNPUBLISHED_PREFIX
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.table.table import StagedKind, WriteMode

__all__ = ["lake"]

POLICY = MaintenancePolicy(small_files=4, delete_ratio=0.5)
OWN_EPOCH = Epoch(7, "a1")  # of the commits of `Sink`
CYCLES = 5


def created(
    lake: Lake, version: int = 3, spec: str | None = None, mode: WriteMode = WriteMode.MERGE
) -> Sink:
    """A table as the sink creates it."""
    return lake.make(version=version, spec=spec, mode=mode, **CREATED_PROPERTIES)


def small(lake: Lake, version: int = 3, spec: str | None = None) -> Sink:
    """A table with a small file per cycle, some of which have deletes."""
    sink = created(lake, version, spec)
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


def compact(lake: Lake, sink: Sink, **changes: Any) -> CompactionOutcome:
    request = CompactionRequest(POLICY, "connect-orders", OWN_EPOCH, KEY, cost_limit=1 << 30)
    return compaction.compact(lake.catalog, sink.name, dataclasses.replace(request, **changes))


def files(sink: Sink) -> list[str]:
    return [
        dict(row)["file_path"] for row in sink.lake.rows(f"{sink.name}.data_files", "file_path")
    ]


def own_files(sink: Sink) -> set[Path]:
    """Files of compactions, whether a snapshot refers to them or not."""
    folder = Path(sink.description().data_location.removeprefix("file://"))
    return {
        path
        for path in folder.rglob("*.parquet")
        if any("-compacted" in part for part in path.parts)
    }


def between(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> list[str]:
    """Call `act` once, when a compaction passes this step for the first time; returns the steps
    that it passed."""
    acts, passed = [act], []

    def point(name: str) -> None:
        passed.append(name)
        if name == step and acts:
            acts.pop()()

    for module in (compaction, file_rewrite, expiration):
        monkeypatch.setattr(module, "fault_point", point)
    return passed


@pytest.mark.parametrize(
    ("version", "spec"),
    short_form(itertools.product((2, 3), (None, BY_REGION)), [(3, None)]),
)
def test_compaction_keeps_rows_row_ids_and_the_ledger(
    lake: Lake, version: int, spec: str | None
) -> None:
    sink = small(lake, version, spec)
    columns = "number, region" + (", _row_id" if version == 3 else "")
    rows, ledger = sink.rows(columns), look_up(sink.load().view).ledger
    outcome = compact(lake, sink, policy=dataclasses.replace(POLICY, small_files=2 if spec else 4))
    assert outcome.status is CompactionStatus.COMMITTED, outcome
    assert outcome.replaced_files >= 4
    assert sink.rows(columns) == rows
    head = lake.catalog.table(sink.name).metadata().head("main")
    assert head is not None
    assert (head["summary"]["operation"], head["summary"]["connect-py.compaction"]) == (
        "replace",
        "connect-orders",
    )
    after = look_up(sink.load().view)
    assert (after.standing, after.ledger) == (Standing.FOUND, ledger)
    assert len(files(sink)) == outcome.health.data_files < CYCLES
    assert outcome.health.small_files == outcome.health.data_files
    if spec is None:
        assert (outcome.health.deleted_records, outcome.health.delete_files) == (0, 0)
    sink.commit(sink.stage([order(1, "4", "again"), order(2, "new")]))
    assert len(sink.rows()) == len(rows) + 1


def test_new_files_have_the_prefix_of_the_epoch(lake: Lake) -> None:
    sink = small(lake)
    compact(lake, sink)
    prefix = StagedFileName.epoch_prefix("connect-orders", OWN_EPOCH, sink.description().uuid[-12:])
    assert [f"/{prefix}" in path and "-compacted/" in path for path in files(sink)] == [True]


def test_branch_of_the_commits_is_compacted_and_main_is_not(lake: Lake) -> None:
    sink = created(lake)
    sink.commit(sink.stage([order(1, "main")]))
    sink.ref = "work"
    for number in range(5):
        sink.commit(sink.stage([order(1, str(number))]))
    rows = sink.rows("number")
    missing = compact(lake, sink, ref="none")
    assert missing.health.maintained is False
    outcome = compact(lake, sink, ref="work")
    assert (outcome.status, outcome.replaced_files) == (CompactionStatus.COMMITTED, 6)
    assert sink.rows("number") == rows
    assert len(lake.rows(sink.name)) == 1
    head = lake.catalog.table(sink.name).metadata().head("main")
    assert head is not None
    assert head["summary"]["operation"] == "append"


def test_tables_of_others_are_measured_only(lake: Lake) -> None:
    sink = lake.make()
    for number in range(5):
        sink.commit(sink.stage([order(1, str(number))]))
    outcome = compact(lake, sink)
    assert (outcome.status, outcome.health.maintained) == (CompactionStatus.NOT_DUE, False)
    assert (outcome.health.data_files, outcome.health.small_files) == (5, None)
    refused = expiration.expire(lake.catalog, sink.name, POLICY)
    assert refused.reason == f"the table does not have the property {CREATED_KEY}"


def test_files_with_many_deletes_are_rewritten_or_dropped(lake: Lake) -> None:
    sink = created(lake)
    sink.commit(sink.stage([order(1, str(number)) for number in range(4)]))
    sink.commit(sink.stage([order(2, str(number)) for number in range(4)]))
    gone = [{"shop": 1, "number": str(number)} for number in range(4)] + [
        {"shop": 2, "number": "0"}
    ]
    sink.commit(sink.stage(gone, StagedKind.DELETES))
    rows = sink.rows("shop, number")
    outcome = compact(lake, sink, policy=dataclasses.replace(POLICY, delete_ratio=0.6))
    assert (outcome.status, outcome.replaced_files, outcome.new_files) == (
        CompactionStatus.COMMITTED,
        1,
        0,
    )
    assert outcome.reason == "62% of the rows in data files are deleted, at least 60%"
    assert outcome.health.deleted_records == 1
    assert sink.rows("shop, number") == rows


# --- concurrent commits


def own_upsert(sink: Sink) -> None:
    sink.commit(sink.stage([order(1, "4", "concurrent")]))


def own_insert(sink: Sink) -> None:
    sink.commit(sink.stage([order(9, "concurrent")]))


def foreign_delete(sink: Sink) -> None:
    sink.lake.sql(f"DELETE FROM lake.{sink.name} WHERE number = '4'")


def foreign_insert(sink: Sink) -> None:
    sink.lake.sql(
        f"INSERT INTO lake.{sink.name} (shop, number, region) VALUES (8, 'foreign', 'north')"
    )


def foreign_compaction(sink: Sink) -> None:
    options = "options => map('rewrite-all', 'true')"
    sink.lake.sql(f"CALL lake.system.rewrite_data_files(table => '{sink.name}', {options})")


STEPS = (compaction.BEFORE_WRITE, compaction.AFTER_WRITE, file_rewrite.BEFORE_SWAP)
ACTS = (own_upsert, own_insert, foreign_delete, foreign_insert, foreign_compaction)
CONFLICTS = (own_upsert, foreign_delete, foreign_compaction)
CASES = [(version, act, step) for version in (2, 3) for act in ACTS for step in STEPS]
IN_SHORT = [(3, foreign_delete, file_rewrite.BEFORE_SWAP)]


@pytest.mark.parametrize(("version", "act", "step"), short_form(CASES, IN_SHORT))
def test_concurrent_commits_are_kept(
    lake: Lake,
    version: int,
    act: Callable[[Sink], None],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a commit that touches no rewritten row, the compaction is rebuilt; after deletes, it
    gives up.
    """
    sink, other = small(lake, version), small(lake, version)
    act(other)  # on a table that is not compacted
    with monkeypatch.context() as patch:
        between(patch, step, lambda: act(sink))
        outcome = compact(lake, sink)
    assert sink.rows("shop, number, region") == other.rows("shop, number, region")
    conflicts = act in CONFLICTS
    assert outcome.status is (
        CompactionStatus.REFUSED if conflicts else CompactionStatus.COMMITTED
    ), outcome
    if conflicts:
        assert own_files(sink) == set()
    again = compact(lake, sink, policy=dataclasses.replace(POLICY, small_files=2))
    assert again.status is not CompactionStatus.REFUSED
    assert sink.rows("shop, number, region") == other.rows("shop, number, region")
    every_referenced_file_exists(sink)


def every_referenced_file_exists(sink: Sink) -> None:
    for name, column in (
        ("all_files", "file_path"),
        ("snapshots", "manifest_list"),
        ("all_manifests", "path"),
    ):
        for row in sink.lake.rows(f"{sink.name}.{name}", column):
            path = str(dict(row)[column])
            assert Path(path.removeprefix("file:").replace("///", "/")).exists(), path


def test_compaction_of_an_overtaken_epoch_gives_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer coordinator commits, and removes files of older epochs, including this
    compaction's.
    """
    sink = small(lake)
    rows = sink.rows("shop, number")

    def overtaken() -> None:
        monkeypatch.setattr(iceberg_commit, "Epoch", lambda *_: Epoch(8, "b1"))
        sink.commit(sink.stage([order(9, "new")]))
        prefix = StagedFileName.prefix("connect-orders")
        assert lake.catalog.remove_files(sink.name, sink.description().uuid, prefix, 8) == 1

    passed = between(monkeypatch, file_rewrite.BEFORE_SWAP, overtaken)
    outcome = compact(lake, sink)  # the swap loses, and the next base has the newer epoch
    assert outcome.status is CompactionStatus.REFUSED
    assert "epoch 8" in outcome.reason
    assert passed.count(file_rewrite.BEFORE_SWAP) == 1
    assert len(sink.rows("shop, number")) == len(rows) + 1
    every_referenced_file_exists(sink)


def test_unpublished_commits_stop_a_compaction(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = small(lake)

    def unpublished() -> None:
        branch = f"{UNPUBLISHED_PREFIX}{uuid.uuid4().hex[:12]}"
        lake.sql(f"ALTER TABLE lake.{sink.name} CREATE BRANCH `{branch}`")
        lake.sql(
            f"INSERT INTO lake.{sink.name}.`branch_{branch}` (shop, number) VALUES (7, 'held')"
        )

    between(monkeypatch, compaction.AFTER_WRITE, unpublished)
    outcome = compact(lake, sink)
    assert (outcome.status, outcome.reason) == (CompactionStatus.REFUSED, "commits await approval")
    assert own_files(sink) == set()
    assert compact(lake, sink).health.maintained is False


# --- lost answers, crashes, cancellation


@pytest.mark.parametrize("fault", short_form(["refused", "no answer"], ["no answer"]))
def test_commit_that_landed_without_an_answer_counts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    sink, swap = small(lake), TableUpdate.swap
    rows = sink.rows()

    def unanswered(self: TableUpdate, properties: Mapping[str, str]) -> None:
        swap(self, properties)
        if fault == "no answer":
            raise CatalogUnavailableError("no answer")

    monkeypatch.setattr(TableUpdate, "swap", unanswered)
    with refused_swaps(lake) if fault == "refused" else nullcontext():
        outcome = compact(lake, sink)
    assert outcome.status is CompactionStatus.COMMITTED
    assert sink.rows() == rows
    every_referenced_file_exists(sink)


@pytest.mark.long  # in every run: test_commit_that_landed_without_an_answer_counts
def test_files_of_an_unknown_outcome_are_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, swap, late = small(lake), TableUpdate.swap, []
    rows = sink.rows()

    def unanswered(self: TableUpdate, properties: Mapping[str, str]) -> None:
        late.append(lambda: swap(self, properties))
        raise CatalogUnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(TableUpdate, "swap", unanswered)
        with pytest.raises(CatalogUnavailableError, match="no answer"):
            compact(lake, sink)
    late[0]()  # the request arrives at last
    assert sink.rows() == rows
    assert len(files(sink)) == 1
    every_referenced_file_exists(sink)


class Crash(BaseException):
    """The process ends: no handler runs."""


AT_EACH_STEP = (*STEPS, file_rewrite.AFTER_SWAP)


@pytest.mark.parametrize("step", short_form(AT_EACH_STEP, [compaction.AFTER_WRITE]))
def test_crash_at_each_step_leaves_rows_and_files_that_the_next_epoch_removes(
    lake: Lake, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = small(lake)
    rows = sink.rows("shop, number, region")

    def crash() -> None:
        raise Crash

    with monkeypatch.context() as patch:
        between(patch, step, crash)
        with pytest.raises(Crash):
            compact(lake, sink)
    assert sink.rows("shop, number, region") == rows
    landed = step == file_rewrite.AFTER_SWAP
    assert len(own_files(sink)) == (0 if step == compaction.BEFORE_WRITE else 1)
    sink.commit(sink.stage([order(9, "next")]))
    removed = lake.catalog.remove_files(
        sink.name, sink.description().uuid, StagedFileName.prefix("connect-orders"), 8
    )
    assert (len(own_files(sink)), len(files(sink))) == ((1, 2) if landed else (0, CYCLES + 1))
    assert removed is not None
    every_referenced_file_exists(sink)
    assert len(sink.rows("shop, number, region")) == len(rows) + 1


def test_compaction_that_overruns_is_canceled(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = small(lake)
    rows = sink.rows()
    real = compaction.write_tasks

    def slow(spark: Any, *arguments: Any, **named: Any) -> Any:
        spark.range(10**14).selectExpr("sum(id % 7)").collect()
        return real(spark, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "write_tasks", slow)
        outcome = compact(lake, sink, seconds=1.0)
    assert outcome.status is CompactionStatus.CANCELED, outcome
    assert 1.0 <= outcome.seconds < 30.0
    assert outcome.reason == "it did not finish within 1.0 s"
    assert sink.rows() == rows
    assert (len(files(sink)), own_files(sink)) == (CYCLES, set())
    assert compact(lake, sink).status is CompactionStatus.COMMITTED


def test_file_that_another_program_expired_ends_the_attempt(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = small(lake)
    rows = sink.rows()

    def expired() -> None:
        foreign_compaction(sink)
        lake.sql(f"CALL lake.system.expire_snapshots('{sink.name}', TIMESTAMP '2100-01-01', 1)")

    between(monkeypatch, compaction.BEFORE_WRITE, expired)
    outcome = compact(lake, sink)
    assert (outcome.status, "is missing" in outcome.reason) == (CompactionStatus.CANCELED, True), (
        outcome
    )
    assert sink.rows() == rows


# --- limits


def test_cost_limit_bounds_a_compaction(lake: Lake) -> None:
    sink = small(lake)
    policy = dataclasses.replace(POLICY, delete_ratio=0)
    tight = compact(lake, sink, cost_limit=2 * compaction.OPEN_FILE_BYTES, policy=policy)
    assert tight.status is CompactionStatus.TOO_LARGE
    assert 2 * compaction.OPEN_FILE_BYTES < tight.cost < 3 * compaction.OPEN_FILE_BYTES
    some = compact(lake, sink, cost_limit=tight.cost, policy=policy)
    assert (some.status, some.replaced_files) == (CompactionStatus.COMMITTED, 2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mode", short_form([WriteMode.APPEND, WriteMode.MERGE], [WriteMode.APPEND])
)
def test_small_files_stay_bounded_over_many_commits(lake: Lake, mode: WriteMode) -> None:
    sink = created(lake, mode=mode)
    policy = MaintenancePolicy()
    commits = 60 if mode is WriteMode.MERGE else 25
    most = compactions = 0
    for cycle in range(commits):
        numbers = {cycle, max(cycle - 1, 0)} if mode is WriteMode.MERGE else {cycle}
        sink.commit(
            sink.stage([order(1, f"{number:02}", f"r{cycle}") for number in sorted(numbers)])
        )
        outcome = compact(lake, sink, policy=policy)
        compactions += outcome.status is CompactionStatus.COMMITTED
        most = max(most, outcome.health.small_files or 0)
    assert most < policy.small_files
    assert compactions >= commits // 12
    last = [
        min(number + 1, commits - 1) if mode is WriteMode.MERGE else number
        for number in range(commits)
    ]
    assert [dict(row)["region"] for row in sink.rows("number, region")] == [
        f"r{cycle}" for cycle in last
    ]
    every_referenced_file_exists(sink)


# --- expiration


def test_expiration_keeps_what_readers_and_ledgers_need(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = small(lake)
    compact(lake, sink)
    oldest = min(lake.catalog.table(sink.name).metadata().snapshots.values(), key=time_of)
    lake.sql(f"ALTER TABLE lake.{sink.name} CREATE TAG old AS OF VERSION {oldest['snapshot-id']}")
    policy = dataclasses.replace(POLICY, snapshots=3, keep_snapshots=1)
    # all are younger than an hour
    assert expiration.expire(lake.catalog, sink.name, policy).expired == 0
    monkeypatch.setattr(expiration, "_YOUNG_MS", -1)
    rows, before = sink.rows(), look_up(sink.load().view)
    outcome = expiration.expire(lake.catalog, sink.name, policy)
    # the tag, and the newest three with the ledger's
    assert (outcome.expired, outcome.remaining) == (2, 4)
    assert sink.rows() == rows
    every_referenced_file_exists(sink)
    tight = dataclasses.replace(policy, snapshots=1)
    # the head, the ledger's, and the tag's
    assert expiration.expire(lake.catalog, sink.name, tight).remaining == 3
    after = look_up(sink.load().view)
    assert (after.standing, after.ledger) == (Standing.FOUND, before.ledger)
    old = lake.catalog.spark.sql(f"SELECT * FROM lake.{sink.name} VERSION AS OF 'old'")
    assert old.count() == 1
    every_referenced_file_exists(sink)
    sink.commit(sink.stage([order(2, "next")]))
    assert len(sink.rows()) == len(rows) + 1


def time_of(snapshot: Mapping[str, Any]) -> int:
    return int(snapshot["timestamp-ms"])


def test_expiration_deletes_files_and_none_that_a_snapshot_needs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = small(lake)
    compact(lake, sink)
    sink.commit(sink.stage([order(5, "later")]))
    monkeypatch.setattr(expiration, "_YOUNG_MS", -1)
    policy = dataclasses.replace(POLICY, snapshots=1, keep_snapshots=1)
    folder = Path(sink.description().data_location.removeprefix("file://"))
    before = len([*folder.rglob("*.parquet")])
    assert expiration.expire(lake.catalog, sink.name, policy).expired > 0
    assert len([*folder.rglob("*.parquet")]) < before
    every_referenced_file_exists(sink)


def test_expiration_of_a_crashed_process_is_made_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = small(lake)
    monkeypatch.setattr(expiration, "_YOUNG_MS", -1)
    policy = dataclasses.replace(POLICY, snapshots=2, keep_snapshots=1)
    time.sleep(0.01)

    def crash() -> None:
        raise Crash

    with monkeypatch.context() as patch:
        between(patch, expiration.BEFORE_EXPIRATION, crash)
        with pytest.raises(Crash):
            expiration.expire(lake.catalog, sink.name, policy)
    assert expiration.expire(lake.catalog, sink.name, policy).remaining == 2
    every_referenced_file_exists(sink)
