"""`connect-py scan` on real tables: it counts what Spark's own scan reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fixtures.command_line import command_app
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import BY_REGION, Lake, Sink, lake, order

from connectors.iceberg_tools.commands.scan import scan

__all__ = ["lake"]

APP = command_app(scan)
APP.callback()(lambda: None)
BLOOM = {"write.parquet.bloom-filter-enabled.column.number": "true"}


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    return table_commands(lake, monkeypatch, APP)


@pytest.fixture(scope="module")
def table(lake: Lake) -> Sink:
    """Two partitions; in each a file for numbers a to e and one for k to o, with bloom filters, by
    Spark."""
    sink = lake.make(spec=BY_REGION, **BLOOM)
    for region in ("north", "south"):
        for letters in ("abcde", "klmno"):
            rows = ", ".join(f"(1, '{letter}', '{region}', 1.5, null, null)" for letter in letters)
            lake.sql(f"INSERT INTO lake.{sink.name} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    return sink


def levels(
    run: Callable[..., Result], name: str, where: str
) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    result = run("scan", name, "--where", where, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    return [(each["files"], each["rows"]) for each in report["levels"]], report


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("true", [(4, 20), (4, 20), (4, 20), (4, 20)]),
        ("region = 'north'", [(4, 20), (2, 10), (2, 10), (2, 10)]),
        ("region = 'north' AND number >= 'k'", [(4, 20), (2, 10), (1, 5), (1, 5)]),
        ("number = 'b'", [(4, 20), (4, 20), (2, 10), (2, 10)]),
        ("number = 'bb'", [(4, 20), (4, 20), (2, 10), (0, 0)]),  # within bounds, and no file has it
        ("amount > 2", [(4, 20), (4, 20), (0, 0), (0, 0)]),
    ],
)
def test_levels_count_what_is_left_to_read(
    run: Callable[..., Result], table: Sink, where: str, expected: list[tuple[int, int]]
) -> None:
    assert levels(run, table.name, where)[0] == expected


def test_row_groups_say_what_left_them_out(run: Callable[..., Result], table: Sink) -> None:
    _, report = levels(run, table.name, "number = 'bb'")
    assert (report["files_opened"], report["row_groups"]["all"], report["bloom_columns"]) == (
        2,
        2,
        ["number"],
    )
    assert report["row_groups"]["after bloom filters"] == 0
    text = run("scan", table.name, "--where", "number = 'bb'").stdout
    assert "after bounds" in text
    assert "new files get bloom filters for: number" in text


def test_conditions_that_are_none_are_named(
    lake: Lake, run: Callable[..., Result], table: Sink
) -> None:
    for where in ("numer = 1", "number ==", ""):
        refused = run("scan", table.name, "--where", where)
        assert refused.exit_code == 2, (where, refused.output)
    empty = lake.make()
    assert "has no snapshot yet" in run("scan", empty.name, "--where", "true").stdout
    assert levels(run, empty.name, "true")[0] == []
    empty.commit(empty.stage([order(1, "a")]))
    assert levels(run, empty.name, "number = 'a'")[0][0] == (1, 1)
