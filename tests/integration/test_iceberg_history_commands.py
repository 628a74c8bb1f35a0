"""The commands about a table's history on a real table: what people, machines and scripts get."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.command_line import command_app
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import Lake, Sink, lake, lake_config, order

from connectors.iceberg.table.table import StagedKind
from connectors.iceberg_tools.commands.diff import diff
from connectors.iceberg_tools.commands.history import at, history

__all__ = ["lake"]

NO_WORKER = "http://127.0.0.1:9"
APP = command_app(at, diff, history)


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command that meets the Spark of this process."""
    return table_commands(lake, monkeypatch, APP)


def filled(lake: Lake) -> tuple[Sink, list[int]]:
    """Identifier fields are the key here: offsets 0 to 9 bring a and b, 10 to 19 change a and
    delete b."""
    sink = lake.make()
    lake.sql(f"ALTER TABLE lake.{sink.name} SET IDENTIFIER FIELDS shop, number")
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]))
    deletes = sink.stage([{"shop": 1, "number": "b"}], StagedKind.DELETES)
    sink.commit([*sink.stage([order(1, "a", "south"), order(1, "c")]), *deletes])
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('rewrite-all','true'))"
    )
    return sink, [
        s["snapshot-id"] for s in lake.catalog.table(sink.name).metadata().snapshots.values()
    ]


def test_history_lists_commits_and_at_finds_them(lake: Lake, run: Any) -> None:
    sink, (first, second, third) = filled(lake)
    told = json.loads(run("history", sink.name, "--json").stdout)["snapshots"]
    assert [each["snapshot"] for each in told] == [third, second, first]
    assert [(each["rows_in"], each["rows_out"]) for each in told] == [(0, 0), (2, 2), (2, 0)]
    assert [each["writer"]["kind"] for each in told] == ["other", "connector", "connector"]
    assert told[1]["source_offsets"] == {"orders": {"0": 20}}
    assert told[0]["refs"] == ["main"]
    text = run("history", sink.name, "--limit", "2").stdout
    assert f"{sink.name} (main): 3 snapshots, 2 shown" in text
    assert max(map(len, text.splitlines())) <= 80
    for number in (second, third):
        assert str(number) in text
    assert "orders 0:20" in text

    def snapshot(*words: str) -> int:
        return int(json.loads(run("at", sink.name, *words, "--json").stdout)["snapshot"])

    assert [snapshot("--offset", f"orders:0:{offset}") for offset in (0, 9, 10)] == [
        first,
        first,
        second,
    ]
    assert snapshot("--ref", "main") == snapshot("--snapshot", "last") == third
    assert snapshot("--time", told[1]["time"]) == second
    assert f"VERSION AS OF {second}" in run("at", sink.name, "--offset", "orders:0:10").stdout
    for words in (
        ("--offset", "orders:0:20"),
        ("--ref", "mian"),
        ("--snapshot", "7"),
        ("--time", "2001-01-01"),
    ):
        missing = run("at", sink.name, *words)
        assert missing.exit_code == 1
        assert missing.stderr.startswith(f"connect-py: table {sink.name}: ")
    assert run("history", "shop.missing").exit_code == 2
    inner = run("history", f"{sink.name}.files")
    assert (inner.exit_code, inner.stderr) == (
        2,
        f"connect-py: table {sink.name}.files: is a metadata table\n",
    )
    assert run("at", sink.name, "--snapshot", "last", "--branch", "mian").exit_code == 2
    empty = lake.make()
    assert run("history", empty.name).exit_code == 0
    assert run("history", empty.name, "--branch", "staging").exit_code == 2
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{sink.name}', older_than => now(), "
        f"retain_last => 1)"
    )
    late = run("at", sink.name, "--offset", "orders:0:3")
    assert str(third) in late.stdout
    assert "expired" in late.stdout
    gone = run("diff", sink.name, str(first), "last")
    assert gone.exit_code == 2
    assert f"snapshot {first} " in gone.stderr


@pytest.mark.long  # in every run: tests/integration/test_iceberg_table_diff.py
def test_diff_prints_change_counts_before_the_changed_rows(lake: Lake, run: Any) -> None:
    sink, (first, second, third) = filled(lake)
    told = run("diff", sink.name, "first", "last", "--sql")
    assert told.exit_code == 1, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == f"{sink.name}: {first} -> {third}, rows by key (shop, number)"
    assert [line.split() for line in lines[1:4]] == [
        ["1", "inserted"],
        ["1", "updated"],
        ["1", "deleted"],
    ]
    assert "updated shop=1 number=a: region: north -> south" in lines
    assert f"VERSION AS OF {first}" in told.stdout
    document = json.loads(run("diff", sink.name, "first", "last", "--json", "--limit", "1").stdout)
    assert document["counts"] == {"inserted": 1, "updated": 1, "deleted": 1, "several_rows": 0}
    assert len(document["rows"]) == 1
    assert run("diff", sink.name, str(second), "last").exit_code == 0  # compaction changes no row
    assert "whole rows" in run("diff", sink.name, "first", "last", "--without-key").stdout


@pytest.mark.long
@pytest.mark.timeout(400)  # starts Spark two times
def test_the_commands_start_a_driver_of_their_own(lake: Lake) -> None:
    sink, (first, *_) = filled(lake)
    settings = lake_config(lake.folder).catalog_properties
    options = [
        word for key, value in settings.items() for word in ("--catalog-property", f"{key}={value}")
    ]
    options += ["--url", NO_WORKER]

    def told(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            str(Path(sys.executable).with_name("connect-py")),
            *words,
            "--catalog",
            "lake",
            *options,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert str(first) in told("history", sink.name).stdout
    difference = told("diff", sink.name, "first", "last")
    assert difference.returncode == 1
    [announced] = difference.stderr.splitlines()
    assert announced.startswith(
        "connect-py: starting a separate Spark driver: no worker responds at "
    )
