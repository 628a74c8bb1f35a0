"""Data quality checks of a table's rows: dropped, rejected, held, published, and discarded rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fixtures.command_line import command_app
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import ENGINES, KEY, Lake, Sink, lake, order
from short_form import short_form

from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.errors import ExpectationFailedError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import MAIN, CommitOutcome, CommitStatus, EngineName
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg.table.table import StagedKind, WriteMode
from connectors.iceberg_tools.audit.table_audit import Verdict, audit
from connectors.iceberg_tools.commands.gate import gate

__all__ = ["lake"]

BRANCH = unpublished_branch("connect-orders")
A = ExpectationAction
DROP = "DROP TABLE lake.{}"


def expect(
    action: ExpectationAction, sql: str = "region != 'bad'", name: str = "good"
) -> dict[str, Any]:
    return {"expectations": (Expectation(name, sql, action),)}


class Gated:
    """A sink whose commits may be kept from readers."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def commit(
        self,
        rows: dict[str, str],
        rules: dict[str, Any],
        engine: EngineName = EngineName.MERGE,
        deletes: str = "",
    ) -> CommitOutcome:
        sink = self.sink
        files = sink.stage([order(1, key, region) for key, region in rows.items()])
        if deletes:
            files += sink.stage([{"shop": 1, "number": key} for key in deletes], StagedKind.DELETES)
        outcome = sink.committer(engine).commit(self.request(files, **rules))
        assert outcome.status is CommitStatus.COMMITTED, outcome
        return outcome

    def request(self, files: Any, **more: Any) -> Any:
        sink = self.sink
        ref = more.get("ref", MAIN)
        loaded = sink.lake.catalog.load(sink.name, KEY, ref, sink.mode, sink.key_columns, BRANCH)
        more = {"unpublished_branch": BRANCH, "rejected_table": f"{sink.name}_rejected", **more}
        return sink.request(files, look_up(loaded.view).version, **more)

    def readers(self) -> dict[str, str]:
        return self.rows("")

    def ahead(self) -> dict[str, str]:
        return self.rows(f".`branch_{BRANCH}`")

    def rejected(self) -> dict[str, str]:
        return self.rows("_rejected")

    def rows(self, suffix: str) -> dict[str, str]:
        frame = self.sink.lake.catalog.spark.sql(
            f"SELECT number, region FROM lake.{self.sink.name}{suffix}"
        )
        rows = [tuple(row) for row in frame.collect()]
        assert len(dict(rows)) == len(rows)
        return dict(rows)


@pytest.fixture
def gated(lake: Lake) -> Gated:
    return Gated(lake.make())


@pytest.fixture
def command(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    app = command_app(gate)
    app.callback()(lambda: None)
    return table_commands(lake, monkeypatch, app)


@pytest.mark.parametrize("engine", ENGINES)
def test_dropped_rows_leave_the_rows_of_before(gated: Gated, engine: EngineName) -> None:
    gated.commit({"a": "north", "b": "north"}, expect(A.DROP), engine)
    outcome = gated.commit(
        {"a": "bad", "c": "south", "d": "bad"}, expect(A.DROP), engine, deletes="b"
    )
    assert (dict(outcome.failed), outcome.unpublished) == ({"good": 2}, False)
    assert gated.readers() == {"a": "north", "c": "south"}


def test_null_condition_counts_as_not_met(gated: Gated) -> None:
    gated.sink.commit(gated.sink.stage([order(1, "z", None), order(1, "y")]), **expect(A.DROP))
    assert gated.readers() == {"y": "north"}


def test_rejected_rows_are_in_their_table_once(gated: Gated) -> None:
    gated.commit({"a": "north"}, expect(A.DEAD_LETTER))
    gated.commit({"a": "bad", "b": "south"}, expect(A.DEAD_LETTER))
    assert (gated.readers(), gated.rejected()) == ({"a": "north", "b": "south"}, {"a": "bad"})
    gated.sink.lake.sql(f"ALTER TABLE lake.{gated.sink.name} ADD COLUMN extra string")
    gated.commit({"c": "bad"}, expect(A.DEAD_LETTER))
    gated.commit({"d": "north"}, expect(A.DEAD_LETTER))
    frame = gated.sink.lake.catalog.spark.table(f"lake.{gated.sink.name}_rejected")
    assert "extra" in frame.columns
    rows = [(row["number"], row["_expectations"]) for row in frame.collect()]
    assert sorted(rows) == [("a", "good"), ("c", "good")]


def test_death_before_rows_are_rejected_is_repaired(
    gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are in the file that the commit named; the next coordinator appends them, and only
    once."""
    from connectors.iceberg.commit.rules.rejected_rows import RejectedRows

    gated.commit({"a": "north"}, expect(A.DEAD_LETTER))
    with monkeypatch.context() as dead:
        dead.setattr(RejectedRows, "append_announced", lambda *_: None)
        gated.commit({"b": "bad", "c": "west"}, expect(A.DEAD_LETTER))
    gated.commit({"d": "west"}, expect(A.DEAD_LETTER))
    assert gated.rejected() == {"b": "bad"}
    gated.commit({"e": "west"}, expect(A.DEAD_LETTER))
    assert gated.rejected() == {"b": "bad"}


@pytest.mark.parametrize("act", short_form([DROP, "ALTER TABLE lake.{} RENAME TO {}_old"], [DROP]))
def test_table_of_rejected_rows_may_go_between_sessions(gated: Gated, act: str) -> None:
    """Each commit of `gated` has a separate session without knowledge of the previous one."""
    name, key = f"{gated.sink.name}_rejected", "connect-py.rejected.connect-orders"
    gated.commit({"a": "bad", "b": "north"}, expect(A.DEAD_LETTER))
    gated.sink.lake.sql(act.format(name, name))
    gated.commit({"c": "north"}, expect(A.DEAD_LETTER))
    assert gated.sink.lake.catalog.table(gated.sink.name).metadata().properties[key] == ""
    gated.commit({"d": "bad"}, expect(A.DEAD_LETTER))
    assert (set(gated.readers()), gated.rejected()) == ({"b", "c"}, {"d": "bad"})


@pytest.mark.long  # in every run: test_rejected_rows_are_in_their_table_once
def test_rejected_rows_that_were_rolled_back_stay_away(gated: Gated) -> None:
    gated.commit({"a": "bad"}, expect(A.DEAD_LETTER))
    rejected = gated.sink.lake.catalog.table(f"{gated.sink.name}_rejected").metadata()
    gated.commit({"b": "bad"}, expect(A.DEAD_LETTER))
    at = f"'{gated.sink.name}_rejected', {rejected.refs[MAIN]}"
    gated.sink.lake.sql(f"CALL lake.system.rollback_to_snapshot({at})")
    gated.commit({"c": "bad"}, expect(A.DEAD_LETTER))
    assert gated.rejected() == {"a": "bad", "c": "bad"}


@pytest.mark.long
def test_sleeper_appends_no_rejected_rows_twice(
    gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has searched for the rows, and is suspended until the next coordinator has appended them
    and later rows.
    """
    gated.commit({"a": "north"}, expect(A.DEAD_LETTER))
    asleep = []

    def sleep(point: str) -> None:
        if point == "before_rejected_commit" and not asleep:
            asleep.append(point)
            gated.commit({"c": "bad", "d": "west"}, expect(A.DEAD_LETTER))

    monkeypatch.setattr("connectors.iceberg.commit.rules.rejected_rows.fault_point", sleep)
    gated.commit({"b": "bad"}, expect(A.DEAD_LETTER))
    assert asleep
    assert gated.rejected() == {"b": "bad", "c": "bad"}


def test_failed_expectation_commits_nothing_at_all(gated: Gated) -> None:
    gated.commit({"a": "north"}, expect(A.FAIL))
    with pytest.raises(
        ExpectationFailedError,
        match=r"rows violate expectations: good \(1 row\); nothing was committed",
    ):
        gated.commit({"a": "bad", "b": "south"}, expect(A.FAIL))
    assert gated.readers() == {"a": "north"}
    assert set(gated.sink.lake.catalog.table(gated.sink.name).metadata().refs) == {MAIN}


def test_alert_says_so_and_commits_all_rows(gated: Gated) -> None:
    outcome = gated.commit({"a": "bad"}, expect(A.ALERT))
    assert (dict(outcome.failed), outcome.unpublished, gated.readers()) == (
        {"good": 1},
        False,
        {"a": "bad"},
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_readers_never_see_a_commit_that_is_held(
    gated: Gated, engine: EngineName, command: Callable[..., Result]
) -> None:
    name = gated.sink.name
    gated.commit({"a": "north"}, expect(A.HOLD), engine)
    assert command("gate", name).exit_code == 0
    assert gated.commit({"a": "bad", "b": "south"}, expect(A.HOLD), engine).unpublished
    # as expected, and behind the other
    outcome = gated.commit({"b": "west", "c": "east"}, expect(A.HOLD), engine)
    assert (dict(outcome.failed), outcome.unpublished) == ({}, True)
    assert gated.readers() == {"a": "north"}
    assert gated.ahead() == {"a": "bad", "b": "west", "c": "east"}
    listed = command("gate", name, "--json")
    [found] = json.loads(listed.stdout)["unpublished"]
    assert listed.exit_code == 1
    assert (
        found["commits"],
        found["can_publish"],
        [each["failed"] for each in found["failed"]],
    ) == (
        2,
        True,
        [{"good": 1}],
    )
    assert command("gate", name, "--publish").exit_code == 0
    assert gated.readers() == {"a": "bad", "b": "west", "c": "east"}
    outcome = gated.commit({"d": "east"}, expect(A.HOLD), engine, deletes="a")
    assert not outcome.unpublished
    assert gated.readers() == {"b": "west", "c": "east", "d": "east"}
    assert set(gated.sink.lake.catalog.table(name).metadata().refs) == {MAIN}
    [group] = audit(gated.sink.lake.catalog.history(name, MAIN)).groups
    assert group.verdict is Verdict.PROVEN


def test_first_commit_of_a_table_can_be_held(gated: Gated, command: Callable[..., Result]) -> None:
    gated.commit({"a": "bad"}, expect(A.HOLD))
    assert (gated.readers(), gated.ahead()) == ({}, {"a": "bad"})
    assert command("gate", gated.sink.name, "--publish").exit_code == 0
    assert gated.readers() == {"a": "bad"}


@pytest.mark.parametrize("begins", short_form(["with the branch", "without it"], ["without it"]))
def test_commits_are_published_to_the_branch_they_are_for(
    gated: Gated, command: Callable[..., Result], begins: str
) -> None:
    sink = gated.sink
    gated.commit({"a": "north"}, {})
    if begins == "with the branch":
        gated.sink.lake.sql(f"ALTER TABLE lake.{sink.name} CREATE BRANCH audit")
    gated.commit({"b": "bad"}, {**expect(A.HOLD), "ref": "audit"})
    gated.commit({"c": "north"}, {**expect(A.HOLD), "ref": "audit"})
    for wrong in ("main", "mian", BRANCH):
        refused = command("gate", sink.name, "--publish", "--branch", wrong)
        assert (refused.exit_code, "--branch" in refused.stderr) == (2, True), refused.output
    published = command("gate", sink.name, "--publish")
    assert (published.exit_code, "published: audit is" in published.output) == (0, True), (
        published.output
    )
    assert gated.readers() == {"a": "north"}
    assert gated.rows(".`branch_audit`") == {"a": "north", "b": "bad", "c": "north"}
    assert set(sink.lake.catalog.table(sink.name).metadata().refs) == {MAIN, "audit"}


def test_branch_of_an_earlier_release_is_ahead_of_main(
    gated: Gated, command: Callable[..., Result]
) -> None:
    name, key = gated.sink.name, "connect-py.unpublished.connect-orders"
    gated.commit({"a": "north"}, expect(A.HOLD))
    gated.commit({"b": "bad"}, expect(A.HOLD))
    text = gated.sink.lake.catalog.table(name).metadata().properties[key]
    earlier = text.replace(',"ref":"main"', "")
    assert earlier != text
    gated.sink.lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('{key}'='{earlier}')")
    assert command("gate", name, "--publish", "--branch", "mian").exit_code == 2
    assert command("gate", name, "--publish").exit_code == 0
    assert gated.readers() == {"a": "north", "b": "bad"}


def test_group_that_committed_nothing_is_refused_by_name(
    gated: Gated, command: Callable[..., Result]
) -> None:
    gated.commit({"a": "north"}, expect(A.HOLD))
    gated.commit({"b": "bad"}, expect(A.HOLD))
    refused = command("gate", gated.sink.name, "--publish", "--group", "orders")
    assert refused.exit_code == 2
    assert "orders has not committed to" in refused.stderr
    assert "existing groups: connect-orders" in refused.stderr
    assert command("gate", gated.sink.name, "--group", "connect-orders").exit_code == 1


@pytest.mark.parametrize("choice", short_form(["replay", "drop", "dead-letter"], ["dead-letter"]))
def test_rows_thrown_away_come_again_as_was_decided(
    gated: Gated, command: Callable[..., Result], choice: str
) -> None:
    gated.commit({"a": "north"}, expect(A.HOLD))
    gated.commit({"a": "bad", "b": "south"}, expect(A.HOLD))
    assert command("gate", gated.sink.name, "--reject", choice).exit_code == 0
    loaded = gated.sink.load()
    found = look_up(loaded.view)
    # the connector reads again from the ledger that is left
    assert found.standing is Standing.ROLLED_BACK
    assert found.ledger is not None
    assert found.ledger.topics["orders"].partitions[0].next == 10
    gated.sink.cycle = 1
    outcome = gated.commit({"a": "bad", "b": "south"}, expect(A.HOLD))
    assert outcome.unpublished is (choice == "replay")
    if choice != "replay":
        assert gated.readers() == {"a": "north", "b": "south"}
        assert choice == "drop" or gated.rejected() == {"a": "bad"}
        assert gated.commit(
            {"c": "bad"}, expect(A.HOLD)
        ).unpublished  # later rows are checked as before


def test_expectation_that_had_not_failed_holds_what_comes_again(
    gated: Gated, command: Callable[..., Result]
) -> None:
    """Newer rows are in the cycle. The earlier decision applies whenever the rows are read
    again.
    """
    name, rules = (
        gated.sink.name,
        {
            "expectations": (
                Expectation("good", "region != 'bad'"),
                Expectation("x", "number != 'x'"),
            )
        },
    )
    gated.commit({"a": "north"}, rules)
    gated.commit({"a": "bad", "b": "south"}, rules)
    assert command("gate", name, "--reject", "drop").exit_code == 0
    gated.sink.cycle = 1
    again = {"a": "bad", "b": "south", "x": "west"}
    outcome = gated.commit(again, rules)
    assert (outcome.unpublished, dict(outcome.failed)) == (True, {"good": 1, "x": 1})
    assert gated.ahead() == {"a": "north", "b": "south", "x": "west"}
    assert gated.commit({"c": "north"}, rules).unpublished
    assert command("gate", name, "--reject", "drop").exit_code == 0
    gated.sink.cycle = 1
    assert not gated.commit({**again, "c": "north"}, rules).unpublished
    assert not gated.commit({"d": "north"}, rules).unpublished
    assert gated.readers() == {"a": "north", "b": "south", "c": "north", "d": "north"}
    assert gated.commit({"e": "bad"}, rules).unpublished


@pytest.mark.long  # in every run: test_rejected_rows_are_in_their_table_once
def test_rows_rejected_again_have_another_commit_id(
    gated: Gated, command: Callable[..., Result]
) -> None:
    both = (
        Expectation("good", "region != 'bad'", A.DEAD_LETTER),
        Expectation("x", "number != 'x'"),
    )
    gated.commit({"a": "north"}, {"expectations": both})
    gated.commit({"b": "bad", "x": "south"}, {"expectations": both})
    assert gated.rejected() == {"b": "bad"}
    assert command("gate", gated.sink.name, "--reject", "replay").exit_code == 0
    gated.commit({"b": "bad", "x": "south"}, {"expectations": both})
    rows = gated.sink.lake.catalog.spark.table(f"lake.{gated.sink.name}_rejected").collect()
    assert [row["number"] for row in rows] == ["b", "b"]
    assert len({row["_commit"] for row in rows}) == 2


def test_skipped_commits_leave_their_positions_behind(
    gated: Gated, command: Callable[..., Result]
) -> None:
    gated.commit({"a": "north"}, expect(A.HOLD))
    gated.commit({"a": "bad", "b": "south"}, expect(A.HOLD))
    assert command("gate", gated.sink.name, "--reject", "skip").exit_code == 0
    found = look_up(gated.sink.load().view)
    assert found.standing is Standing.FOUND
    assert found.ledger is not None
    assert found.ledger.topics["orders"].partitions[0].next == 20
    gated.commit({"c": "west"}, expect(A.HOLD))
    assert gated.readers() == {"a": "north", "c": "west"}


def test_publishing_is_refused_after_commits_of_others(
    gated: Gated, command: Callable[..., Result]
) -> None:
    name = gated.sink.name
    gated.commit({"a": "north"}, expect(A.HOLD))
    gated.commit({"b": "bad"}, expect(A.HOLD))
    gated.sink.lake.sql(f"DELETE FROM lake.{name} WHERE number = 'a'")
    refused = command("gate", name, "--publish")
    assert refused.exit_code == 1
    assert "has commits that are not in branch" in refused.output
    assert command("gate", name, "--reject", "drop").exit_code == 0


@pytest.mark.parametrize(
    ("sql", "met"),
    [
        pytest.param("SELECT count(*) < 4 FROM changed", True, marks=pytest.mark.long),
        pytest.param("SELECT count(*) = 0 FROM deleted", False, marks=pytest.mark.long),
        pytest.param("SELECT count(*) = 2 FROM before", True, marks=pytest.mark.long),
        ("WITH few AS (SELECT 1 FROM after) SELECT count(*) = 3 FROM few -- a, c, d", True),
        pytest.param(
            "SELECT count(DISTINCT number) = count(*) FROM after", True, marks=pytest.mark.long
        ),
        pytest.param("SELECT max(region) = 'south' FROM after", False, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_queries_see_the_table_before_and_after(
    gated: Gated, engine: EngineName, sql: str, met: bool
) -> None:
    gated.commit({"a": "north", "b": "north"}, {}, engine)
    rows = {"a": "west", "c": "east", "d": "west"}
    outcome = gated.commit(rows, expect(A.ALERT, sql), engine, deletes="b")
    assert dict(outcome.failed) == ({} if met else {"good": 0})
    assert gated.readers() == rows


def test_append_tables_and_queries_can_be_held(lake: Lake, command: Callable[..., Result]) -> None:
    gated = Gated(lake.make(mode=WriteMode.APPEND))
    rule = expect(A.HOLD, "SELECT count(*) < 2 FROM changed")
    gated.commit({"a": "north"}, rule)
    assert gated.commit({"b": "north", "c": "north"}, rule).unpublished
    assert gated.readers() == {"a": "north"}
    refused = command("gate", gated.sink.name, "--reject", "drop")
    assert "good does not identify the rows to reject" in refused.output
    assert command("gate", gated.sink.name, "--publish").exit_code == 0
    assert set(gated.readers()) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("amout >= 0", "good cannot be evaluated, so nothing is committed"),
        pytest.param(
            "amount + 1",
            "good cannot be evaluated, so nothing is committed",
            marks=pytest.mark.long,
        ),
        ("true) OR (true", "good cannot be evaluated, so nothing is committed"),
        ("SELECT amount FROM changed", "must return one row with one boolean"),
        pytest.param(
            "SELECT true, true", "must return one row with one boolean", marks=pytest.mark.long
        ),
        (
            "amount >= (SELECT count(*) FROM parquet.`x`)",
            "good cannot be evaluated, so nothing is committed",
        ),
        pytest.param(
            "SELECT count(*) > 0 FROM parquet.`x`",
            "good cannot be evaluated, so nothing is committed",
            marks=pytest.mark.long,
        ),
    ],
)
def test_expectation_that_makes_no_sense_is_named(gated: Gated, sql: str, why: str) -> None:
    gated.commit({"a": "north"}, {})
    with pytest.raises(TableUnsuitableError, match=why):
        gated.commit({"b": "north"}, expect(A.ALERT, sql))
    assert gated.readers() == {"a": "north"}
