"""Merged tables rebuilt from their change logs: both are derived from the same events by the tasks'
stagers.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import Result
from fixtures.command_line import command_app
from fixtures.iceberg_changes import BY_REGION, SCHEMA, Source
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import KEY, Lake, Sink, lake
from iceberg_staging_rows import BASE, config

from connect_py.api.batch import Batch
from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.commit_request import SNAPSHOT_ID, CommitStatus
from connectors.iceberg.protocol.ledger import Ledger, LedgerEntry, LedgerProperty, TopicLedger
from connectors.iceberg.protocol.own_refs import BEFORE_TAG, REBUILT_BRANCH
from connectors.iceberg.protocol.positions import Epoch, Position
from connectors.iceberg.staging.changelog import changelog_schema
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.table import StagedFile, WriteMode
from connectors.iceberg_tools.commands.rebuild import rebuild
from connectors.iceberg_tools.history.changelog_rebuild import RebuildRequest
from connectors.iceberg_tools.history.changelog_rebuild import rebuild as rebuild_table
from connectors.iceberg_tools.history.table_diff import RowChange

__all__ = ["lake"]

SETTINGS = {
    "tables__upsert_mode_enabled": "true",
    "ext__envelope": "debezium",
    "ext__truncate_events": "apply",
    "ext__changelog_suffix": "_changes",
    "tables__default_id_columns": "id",
}


class Mirrored:
    """A table and its change log, of which each may stay behind."""

    def __init__(self, lake: Lake, version: int, partitions: int = 1, opened: int = 0) -> None:
        mirror = lake.make(SCHEMA, BY_REGION, version, ("id",))
        name, schema = f"{mirror.name}_changes", json.dumps(changelog_schema(json.loads(SCHEMA)))
        lake.catalog.create(name, schema, None, {"format-version": "2"})
        self.mirror, self.log = mirror, Sink(lake, name, WriteMode.APPEND, ())
        self.source = Source(partitions, by_key=True)
        self.read = {sink.name: [0] * partitions for sink in (self.mirror, self.log)}
        self.opened = {mirror.name: 0, name: opened}

    def take(self, *sinks: Sink) -> int:
        """Have sinks commit all events that there are; returns the last snapshot."""
        snapshot = 0
        for sink in sinks or (self.mirror, self.log):
            stager = TableStager(
                sink.description(), config(**SETTINGS), Epoch(7, "a1"), "0", MemoryBudget(1 << 30)
            )
            files: list[StagedFile] = []
            for number, events in enumerate(self.source.log):
                for batch in Batch.of(events[self.read[sink.name][number] :]):
                    stager.add(stager.prepare(batch))
                files += stager.close_cycle(sink.cycle + 1, TopicPartition("shop", number))
            snapshot = self._commit(sink, files)
        return snapshot

    def _commit(self, sink: Sink, files: Sequence[StagedFile]) -> int:
        request = sink.request(files)
        ends = [len(events) for events in self.source.log]
        entries = {n: LedgerEntry(0, self.read[sink.name][n], end) for n, end in enumerate(ends)}
        made = Ledger.from_json(request.summary[KEY])
        ledger = dataclasses.replace(made, topics={"shop": TopicLedger("topic-id", entries)})
        opened = {TopicPartition("shop", n): Position(0, self.opened[sink.name]) for n in entries}
        template = LedgerProperty.template(ledger, opened, SNAPSHOT_ID)
        outcome = sink.committer().commit(
            dataclasses.replace(
                request, summary={KEY: ledger.to_json()}, property_template=template
            )
        )
        assert outcome.status is CommitStatus.COMMITTED
        self.read[sink.name] = ends
        assert outcome.snapshot_id is not None
        return outcome.snapshot_id

    def request(self, snapshot: int | None) -> RebuildRequest:
        return RebuildRequest(self.log.name, "main", KEY, ("id",), "main", snapshot, truncates=True)

    def command(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> Callable[..., Result]:
        """Runs `rebuild` with the connector's JSON."""
        given = {
            f"iceberg.{k.replace('__', '.').replace('_', '-')}": v for k, v in SETTINGS.items()
        }
        settings = {
            **BASE,
            "topics": "shop",
            "iceberg.tables": self.mirror.name,
            **given,
            "name": "orders",
        }
        settings |= {"iceberg.catalog": "lake", "iceberg.catalog.uri": "jdbc:sqlite::memory:"}
        path = folder / "orders.json"
        path.write_text(json.dumps(settings))
        app = command_app(rebuild)
        return table_commands(lake, monkeypatch, app, ["--config", str(path)])


def play(made: Mirrored, chance: random.Random, steps: int, *, truncates: bool = True) -> None:
    kinds = ["write"] * 6 + ["move"] * 2 + ["delete"] * 2 + ["truncate"] * truncates
    for _ in range(steps):
        kind = chance.choice(kinds)
        if kind == "write":
            region = chance.choice(["north", "south", None])
            made.source.apply(("write", chance.randint(1, 9), region, chance.random() < 0.5))
        elif kind == "move":
            made.source.apply(("move", chance.randint(1, 9), chance.randint(1, 9)))
        else:
            made.source.apply((kind, chance.randint(1, 9))[: 2 if kind == "delete" else 1])


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
def test_every_row_of_a_mirror_comes_from_its_log(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    made = Mirrored(lake, chance.choice((2, 3)))
    snapshots = []
    for _ in range(3):
        play(made, chance, 12)
        snapshots.append(made.take(made.mirror))
    made.take(made.log)
    held = {
        dict(row)["id"]: {"region": None, "big": None, **dict(row)} for row in made.mirror.rows()
    }
    assert held == made.source.expected()
    for snapshot in (snapshots[-1], chance.choice(snapshots)):
        found = lake.catalog.run(made.mirror.name, rebuild_table, made.request(snapshot))
        assert found.difference is not None
        assert (dict(found.difference.counts), found.several_partitions) == ({}, 0)
    assert found.rows == len(lake.rows(made.mirror.name, ref=REBUILT_BRANCH))


@pytest.mark.long
def test_damaged_rows_are_shown_and_then_put_right(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mirrored(lake, 2)
    for id_ in (1, 2, 3):
        made.source.apply(("write", id_, "north", True))
    made.source.apply(("write", 1, "south", False))  # its large values are not sent
    made.take()
    name = made.mirror.name
    lake.sql(f"UPDATE lake.{name} SET big = 'damaged' WHERE id = 1")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 2")
    command = made.command(lake, monkeypatch, tmp_path)
    shown = command(name)
    assert (shown.exit_code, shown.stderr) == (1, ""), shown.output
    lines = shown.stdout.splitlines()
    assert lines[0] == f"{name}: 3 rows from {made.log.name}"
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["1", "inserted"],
        ["1", "updated"],
        ["0", "deleted"],
    ]
    assert "updated id=1: big: damaged -> big 1" in shown.stdout
    assert len(lake.rows(name)) == 2
    mended = command(name, "--publish", "--json")
    assert mended.exit_code == 0, mended.output
    assert json.loads(mended.stdout)["published"] is True
    assert {dict(row)["id"]: dict(row) for row in made.mirror.rows()} == made.source.expected()
    assert set(lake.catalog.table(name).metadata().refs) == {"main", BEFORE_TAG}
    lake.sql(f"INSERT INTO lake.{name} (id, region, n) VALUES (9, 'by hand', 1)")
    refused = command(name, "--publish")
    assert (refused.exit_code, len(lake.rows(name))) == (1, 4), refused.output
    assert "not published: 1 row of the table would be missing; --allow-missing" in refused.stdout
    assert command(name, "--publish", "--allow-missing").exit_code == 0
    assert {dict(row)["id"]: dict(row) for row in made.mirror.rows()} == made.source.expected()
    made.source.apply(("write", 2, "west", True))
    made.take()
    again = command(name)
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (
        0,
        "equal: every row can be rebuilt from the change log",
    )


@pytest.mark.long
def test_log_that_lacks_changes_is_refused_or_named(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mirrored(lake, 3, opened=5)
    made.source.apply(("write", 1, "north", True))
    made.take()
    made.source.apply(("write", 2, "north", True))
    made.take(made.mirror)
    command, name = made.command(lake, monkeypatch, tmp_path), made.mirror.name
    behind = command(name)
    assert behind.exit_code == 2
    assert "ends before the table in shop-0" in behind.stderr
    earlier = command(name, "--at", "first")
    assert earlier.exit_code == 0, earlier.output
    assert (
        "warning: shop-0: the changelog begins at offset 5, but the table begins at 0"
        in earlier.stdout
    )
    no_log = command(name, "--changelog", made.mirror.name, "--at", "first")
    assert (
        no_log.exit_code,
        "has no column __op and is therefore not a changelog" in no_log.stderr,
    ) == (
        2,
        True,
    )
    both = command(name, "--create", "--publish")
    assert (both.exit_code, "cannot be combined with --publish" in both.stderr) == (2, True)
    exists = command(name, "--create")
    assert exists.exit_code == 2, exists.output


@pytest.mark.long
def test_new_mirror_is_made_of_a_log_without_one(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mirrored(lake, 2)
    made.source.apply(("write", 1, "north", True))
    made.source.apply(("move", 1, 2))  # the values of the moved row are in no event of the new key
    made.take(made.log)
    command, name = made.command(lake, monkeypatch, tmp_path), f"{made.mirror.name}_new"
    created = command(name, "--changelog", made.log.name, "--create", "--key", "id")
    assert created.exit_code == 0, created.output
    assert "warning: 1 value of big is not in the change log; it is null" in created.stdout
    assert [dict(row) for row in lake.rows(name, "id, region, n")] == [
        {"id": 2, "region": "north", "n": 1}
    ]


@pytest.mark.long
def test_keys_of_several_partitions_follow_the_time_of_their_source(lake: Lake) -> None:
    made = Mirrored(lake, 2, partitions=2)
    made.source.apply(("write", 2, "north", True))
    made.source.apply(("write", 3, "north", True))
    made.take()
    columns = "id, region, n, __op, __image, __topic, __partition, __offset, __source_time"
    for partition, offset, second, region in ((1, 0, 20, "late"), (0, 0, 10, "early")):
        lake.sql(
            f"INSERT INTO lake.{made.log.name} ({columns}) VALUES (8, '{region}', 1, 'u', "
            f"'after', 'shop', {partition}, {offset}, TIMESTAMP '2026-01-01 00:00:{second}Z')"
        )
    head = lake.catalog.table(made.mirror.name).metadata().refs["main"]
    found = lake.catalog.run(made.mirror.name, rebuild_table, made.request(head))
    assert found.difference is not None
    assert (dict(found.difference.counts), found.several_partitions) == ({RowChange.INSERTED: 1}, 1)
    assert [row["after"]["region"] for row in found.difference.rows] == ["late"]
