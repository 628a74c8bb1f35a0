"""Commands about the state of a table in a REST catalog have the same effect as in a JDBC
catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import Result
from fixtures.command_line import command_app
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import KEY, Lake, Sink, activate, lake, lake_config, order
from iceberg_rest_catalog import TOKEN, RestCatalogServer
from short_form import short_form

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.config.expectations import Expectation
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.protocol.commit_request import MAIN, EngineSettings
from connectors.iceberg.protocol.ledger import Standing, TableVersion, look_up
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg.table.table import StagedKind
from connectors.iceberg_tools.commands.audit import audit
from connectors.iceberg_tools.commands.diff import diff
from connectors.iceberg_tools.commands.gate import gate
from connectors.iceberg_tools.commands.history import at, history
from connectors.iceberg_tools.commands.maintain import maintain
from connectors.iceberg_tools.commands.refs import branch, tag
from connectors.iceberg_tools.commands.rollback import rollback
from connectors.iceberg_tools.refs.table_rewind import RewindMode, RewindRequest, rewind

__all__ = ["lake"]

APP = command_app(at, audit, branch, diff, gate, history, maintain, rollback, tag)
BRANCH = unpublished_branch("connect-orders")
GATED = {"unpublished_branch": BRANCH, "expectations": (Expectation("good", "region != 'bad'"),)}


@pytest.fixture(scope="module")
def rest_lake(lake: Lake) -> Iterator[Lake]:
    """A catalog of the same Spark that is a REST server."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        server = RestCatalogServer(place / "rest", f"file://{place}/warehouse", {}, dict)
        try:
            properties = {"type": "rest", "uri": server.url, "token": TOKEN}
            config = lake_config(place, properties)
            session = lake.runtime.new_session(config.session_settings())
            yield Lake(lake.runtime, LakeSession(session, config.catalog, EngineSettings()), place)
        finally:
            activate(lake.catalog.spark)
            server.close()


@pytest.fixture
def run(rest_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    return table_commands(rest_lake, monkeypatch, APP)


def told(result: Result, status: int = 0) -> Any:
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def filled(lake: Lake) -> tuple[Sink, list[int]]:
    sink = lake.make()
    lake.sql(f"ALTER TABLE lake.{sink.name} SET IDENTIFIER FIELDS shop, number")
    snapshots = [sink.commit(sink.stage([order(1, "a"), order(1, "b")])).snapshot_id]
    deletes = sink.stage([{"shop": 1, "number": "b"}], StagedKind.DELETES)
    snapshots.append(
        sink.commit([*sink.stage([order(1, "a", "south"), order(1, "c")]), *deletes]).snapshot_id
    )
    return sink, [each or 0 for each in snapshots]


@pytest.mark.long  # in every run: test_unpublished_commits_work_at_a_rest_catalog
def test_history_refs_and_rollback_work_at_a_rest_catalog(
    rest_lake: Lake, run: Callable[..., Result]
) -> None:
    sink, (first, second) = filled(rest_lake)
    name = sink.name
    assert [each["snapshot"] for each in told(run("history", name, "--json"))["snapshots"]] == [
        second,
        first,
    ]
    assert told(run("at", name, "--offset", "orders:0:12", "--json"))["snapshot"] == second
    assert told(run("diff", name, str(first), str(second), "--json"), 1)["counts"] == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
        "several_rows": 0,
    }
    told(run("tag", name, "before", "--at", "first", "--keep", "14d", "--json"))
    told(run("branch", name, "trial", "--at", "before", "--json"))
    assert told(run("rollback", name, "--to", "before", "--yes", "--json"))["done"]
    assert rest_lake.catalog.table(name).metadata().refs == {
        MAIN: first,
        "before": first,
        "trial": first,
    }
    assert look_up(sink.load().view).standing is Standing.ROLLED_BACK
    sink.cycle = 1
    sink.commit(sink.stage([order(1, "d")]))
    assert told(run("audit", name, "--json"))["verdict"] == "proven"


@pytest.mark.long  # in every run: test_unpublished_commits_work_at_a_rest_catalog
def test_rewinds_and_maintenance_work_at_a_rest_catalog(
    rest_lake: Lake, run: Callable[..., Result]
) -> None:
    sink, (first, second) = filled(rest_lake)
    request = RewindRequest(MAIN, second, first, RewindMode.SKIP, KEY, "connect-orders")
    rest_lake.catalog.run(sink.name, rewind, request)
    assert look_up(sink.load().view).standing is Standing.FOUND
    for number in range(4):
        sink.commit(sink.stage([order(1, f"n{number}")]))
    before = len(rest_lake.catalog.table(sink.name).metadata().snapshots)
    settings = (
        "--set",
        "small-files=3",
        "--set",
        "snapshots=2",
        "--set",
        "keep=1s",
        "--set",
        "keep-snapshots=1",
    )
    done = run("maintain", sink.name, "--now", *settings)
    assert done.exit_code == 0, done.output
    assert "compact data files: data files" in done.stdout
    assert len(rest_lake.catalog.table(sink.name).metadata().snapshots) < before
    assert sink.rows("number") == [(("number", key),) for key in ("a", "b", "n0", "n1", "n2", "n3")]


@pytest.mark.parametrize("choice", short_form(["--publish", "drop", "skip"], ["drop"]))
def test_unpublished_commits_work_at_a_rest_catalog(
    rest_lake: Lake, run: Callable[..., Result], choice: str
) -> None:
    sink = rest_lake.make()
    sink.commit(sink.stage([order(1, "a")]), **GATED)
    assert sink.commit(sink.stage([order(1, "a", "bad"), order(1, "b")]), **GATED).unpublished
    assert sink.rows("number, region") == [(("number", "a"), ("region", "north"))]
    words = [choice] if choice.startswith("--") else ["--reject", choice]
    decided = run("gate", sink.name, *words)
    assert decided.exit_code == 0, decided.output
    assert set(rest_lake.catalog.table(sink.name).metadata().refs) == {MAIN}
    published = [(("number", "a"), ("region", "bad")), (("number", "b"), ("region", "north"))]
    assert sink.rows("number, region") == (
        published if choice == "--publish" else [(("number", "a"), ("region", "north"))]
    )


def with_unpublished(sink: Sink) -> TableVersion:
    """Return the table version for the connector, which follows its branch."""
    loaded = sink.lake.catalog.load(sink.name, KEY, MAIN, sink.mode, sink.key_columns, BRANCH)
    return look_up(loaded.view).version


@pytest.mark.parametrize(
    "choice", short_form(["--publish", "replay", "drop", "skip", "skip all"], ["drop"])
)
def test_commit_during_a_decision_is_kept_or_read_again(
    rest_lake: Lake, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """A REST catalog does not compare the branch that a change removes.

    Iceberg's own refuses a snapshot that was made before another one, unless it is the first of a
    table of format 2.
    """
    sink = rest_lake.make(version=2)
    if choice != "skip all":
        sink.commit(sink.stage([order(1, "a")]), **GATED)
    sink.commit(sink.stage([order(1, "b", "bad")]), **GATED)
    swap, late = TableUpdate.swap, []

    def swap_late(prepared: TableUpdate, properties: dict[str, str]) -> None:
        if not late:
            late.append(choice)
            late.append(
                sink.commit(
                    sink.stage([order(1, "c")]), expected=with_unpublished(sink), **GATED
                ).snapshot_id
            )
        swap(prepared, properties)

    monkeypatch.setattr(TableUpdate, "swap", swap_late)
    words = [choice] if choice.startswith("--") else ["--reject", choice.split()[0]]
    decided = run("gate", sink.name, *words)
    if choice.startswith("skip"):
        assert (decided.exit_code, "check the table again" in decided.stderr) == (2, True), (
            decided.output
        )
        assert rest_lake.catalog.table(sink.name).metadata().refs[BRANCH] == late[1]
        assert run("gate", sink.name, *words).exit_code == 0
        assert set(rest_lake.catalog.table(sink.name).metadata().refs) == {MAIN}
        return
    assert decided.exit_code == 0, decided.output
    found = look_up(sink.load().view)
    assert found.standing is Standing.ROLLED_BACK
    assert found.ledger is not None
    assert found.ledger.topics["orders"].partitions[0].next == (20 if choice == "--publish" else 10)
