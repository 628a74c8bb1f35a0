"""A step of the user's own over the rows of a commit, on real tables, against dictionaries."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random

import pytest
from fixtures.iceberg_commit import ENGINES, ORDERS_SCHEMA, Lake, Sink, lake, order
from short_form import short_form

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.config.cycle_step import CycleStep
from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.errors import SchemaChangesPendingError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import MAIN, EngineName
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind
from connectors.iceberg.table.table import StagedKind, WriteMode

__all__ = ["lake"]

FILTER = CycleStep(sql="SELECT * FROM staged WHERE region <> 'bad' -- of the records")
Rows = dict[str, str]


def held(sink: Sink) -> Rows:
    found = [dict(row) for row in sink.rows("number, region")]
    assert len({row["number"] for row in found}) == len(found), "a key has several rows"
    return {row["number"]: row["region"] for row in found}


def rows(values: Rows) -> list[dict[str, object]]:
    return [order(1, number, region) for number, region in values.items()]


def function(name: str) -> CycleStep:
    return CycleStep(function=f"fixtures.cycle_transforms:{name}")


@pytest.fixture
def regions(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE IF NOT EXISTS lake.shop.regions (region STRING, title STRING) USING iceberg"
    )
    lake.sql("INSERT OVERWRITE lake.shop.regions VALUES ('n', 'north'), ('s', 'south')")


@pytest.mark.parametrize("engine", ENGINES)
def test_query_stands_in_place_of_the_staged_rows(lake: Lake, engine: EngineName) -> None:
    sink = lake.make()
    sink.commit(sink.stage(rows({"a": "north", "b": "bad"})), engine, step=FILTER)
    assert held(sink) == {"a": "north"}
    sink.commit(sink.stage(rows({"z": "north"})), engine, step=FILTER)
    files = sink.stage(rows({"a": "bad", "c": "south"}))
    # no step leaves a delete out
    files += sink.stage([{"shop": 1, "number": "z"}], StagedKind.DELETES)
    outcome = sink.commit(files, engine, step=FILTER)
    assert (held(sink), outcome.counts.added_rows) == ({"a": "north", "c": "south"}, 1)
    partly = CycleStep(
        sql="WITH s AS (SELECT shop, number, upper(region) AS region FROM staged) SELECT * FROM s"
    )
    sink.commit(sink.stage(rows({"c": "west"})), engine, step=partly)
    assert held(sink) == {"a": "north", "c": "WEST"}
    assert [dict(row) for row in sink.rows("number, amount")] == [
        {"number": "a", "amount": 1.25},
        {"number": "c"},
    ]
    assert look_up(sink.load().view).standing is Standing.FOUND


@pytest.mark.long  # in every run: test_query_stands_in_place_of_the_staged_rows
@pytest.mark.parametrize("seed", range(1, 12))
def test_join_with_another_table_is_exact_under_random_deaths(
    lake: Lake, regions: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A commit is killed before the step, after it, before its swap, or after it, and repeated."""
    chance = random.Random(seed)
    mode = chance.choice((WriteMode.MERGE, WriteMode.APPEND))
    sink = lake.make(version=chance.choice((2, 3)), mode=mode)
    known: Rows = {}
    names = {"n": "north", "s": "south"}
    for cycle in range(4):
        keys = (
            chance.sample("abcdefgh", 3)
            if mode is WriteMode.MERGE
            else [f"{cycle}{n}" for n in range(3)]
        )
        values = {key: chance.choice("nsx") for key in keys}
        request = sink.request(sink.stage(rows(values)), step=function("enriched"))
        die(
            sink,
            request,
            chance.choice(("before_cycle_step", "after_cycle_step", "swap", "swapped", "")),
            monkeypatch,
        )
        assert sink.committer().commit(request).snapshot_id is not None
        known |= {key: names[region] for key, region in values.items() if region in names}
        assert held(sink) == known


def die(sink: Sink, request: object, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not where:
        return
    swap = TableUpdate.swap

    def point(name: str) -> None:
        if name == where:
            raise KeyboardInterrupt

    def swapped(prepared: TableUpdate, properties: dict[str, str]) -> None:
        if where == "swapped":
            swap(prepared, properties)
        if where.startswith("swap"):
            raise KeyboardInterrupt
        swap(prepared, properties)

    with monkeypatch.context() as patch:
        patch.setattr("connectors.iceberg.commit.rules.cycle_step.fault_point", point)
        patch.setattr(TableUpdate, "swap", swapped)
        with pytest.raises(KeyboardInterrupt):
            sink.committer().commit(request)  # type: ignore[arg-type] # a request


WRONG = [
    (
        function("raises"),
        r"cycle-transform failed, .*: ValueError: no rates for shop\.\w+ \(raises, line \d+ of",
    ),
    (function("nothing"), "returned NoneType, expected a DataFrame"),
    (function("missing"), "AttributeError: .*has no attribute 'missing'"),
    (CycleStep(function="no_such_module:f"), "No module named 'no_such_module'"),
    (
        CycleStep(sql="SELECT shop, number, 1 AS price FROM staged"),
        "returns column price, which the table",
    ),
    (
        CycleStep(sql="SELECT shop, 'x' AS number FROM staged"),
        r"several rows with the same key \(\(1, 'x'\)\)",
    ),
    (CycleStep(sql="SELECT shop FROM staged"), r"null keys .*\(\(1, None\)\)"),
    (
        CycleStep(sql="SELECT nothing FROM staged"),
        "cycle-sql failed, so nothing is committed: .*nothing",
    ),
    (CycleStep(sql="SELECT shop, number, region, 'x' AS amount FROM staged"), "cycle-sql failed"),
    (
        CycleStep(sql="SELECT 1/0 AS shop, number FROM staged"),
        "cycle-sql failed.*[Dd]ivision by zero",
    ),
    (CycleStep(sql="SELECT s.* FROM staged s, parquet.`/etc`"), "cycle-sql failed"),
]


@pytest.mark.parametrize(
    ("step", "why"),
    short_form(WRONG, WRONG[:5:4]),
)
def test_step_that_fails_is_told_and_commits_nothing(lake: Lake, step: CycleStep, why: str) -> None:
    sink = lake.make()
    sink.commit(sink.stage(rows({"a": "north"})))
    before = lake.catalog.table(sink.name).metadata()
    request = sink.request(sink.stage(rows({"a": "south", "b": "south"})), step=step)
    with pytest.raises(TableUnsuitableError, match=why):
        sink.committer().commit(request)
    after = lake.catalog.table(sink.name).metadata()
    assert (held(sink), set(after.refs), after.properties) == (
        {"a": "north"},
        {MAIN},
        before.properties,
    )
    mended = dataclasses.replace(request, step=None)
    assert sink.committer().commit(mended).snapshot_id is not None
    assert held(sink) == {"a": "south", "b": "south"}


PRICED = CycleStep(sql="SELECT *, shop * 2 AS price, NULL AS nothing FROM staged")
ADD, WIDEN = ChangeKind.ADD, ChangeKind.WIDEN


@pytest.mark.parametrize(
    "mode", [WriteMode.MERGE, pytest.param(WriteMode.APPEND, marks=pytest.mark.long)]
)
def test_columns_of_a_step_are_added_by_the_policy(lake: Lake, mode: WriteMode) -> None:
    sink = lake.make(mode=mode)
    sink.commit(sink.stage(rows({"a": "north"})))
    outcome = sink.commit(
        sink.stage(rows({"b": "north"})), step=PRICED, evolution={ADD: ChangeAction.APPLY}
    )
    assert [dict(row) for row in sink.rows("number, price")] == [
        {"number": "a"},
        {"number": "b", "price": 2},
    ]
    assert (outcome.counts.foreign_conflicts, outcome.counts.added_rows) == (0, 1)
    assert "nothing" in sink.load().description.schema
    assert set(sink.load().view.present) == {each.id for each in sink.load().view.ancestors}


@pytest.mark.long
def test_columns_of_a_step_are_ignored_or_wait(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(
        sink.stage(rows({"a": "north"})),
        step=PRICED,
        evolution={ADD: ChangeAction.IGNORE},
        creates=False,
    )
    assert "price" not in sink.load().description.schema
    request = sink.request(
        sink.stage(rows({"b": "north"})), step=PRICED, evolution={ADD: ChangeAction.HOLD}
    )
    with pytest.raises(
        SchemaChangesPendingError, match="rows wait for approval to add column price of type int"
    ) as waits:
        sink.committer().commit(request)
    assert pickle.loads(pickle.dumps(waits.value)).changes == waits.value.changes
    lake.sql(f"ALTER TABLE lake.{sink.name} ADD COLUMNS (price INT, nothing STRING)")
    assert sink.committer().commit(request).snapshot_id is not None
    assert [dict(row) for row in sink.rows("number, price")] == [
        {"number": "a"},
        {"number": "b", "price": 2},
    ]


@pytest.mark.long
def test_table_that_begins_gets_the_columns_of_its_step(lake: Lake) -> None:
    sink = lake.make()
    ignore = {ADD: ChangeAction.IGNORE}
    sink.commit(sink.stage(rows({"a": "north"})), step=PRICED, evolution=ignore, creates=True)
    assert [dict(row) for row in sink.rows("number, price")] == [{"number": "a", "price": 2}]
    later = CycleStep(sql="SELECT *, 1 AS more FROM staged")
    sink.commit(sink.stage(rows({"b": "north"})), step=later, evolution=ignore, creates=True)
    assert "more" not in sink.load().description.schema


@pytest.mark.long
def test_wider_values_of_a_step_widen_their_column(lake: Lake) -> None:
    schema = json.loads(ORDERS_SCHEMA)
    count = {"id": 8, "name": "count", "required": False, "type": "int"}
    sink = lake.make(json.dumps({**schema, "fields": [*schema["fields"], count]}))
    step = CycleStep(sql="SELECT * EXCEPT (count), 5000000000 AS COUNT FROM staged")
    sink.commit(sink.stage(rows({"a": "north"})), step=step, evolution={WIDEN: ChangeAction.APPLY})
    assert [dict(row) for row in sink.rows("number, count")] == [
        {"number": "a", "count": 5_000_000_000}
    ]


def test_expectations_see_what_the_step_returns(lake: Lake) -> None:
    sink = lake.make()
    step = CycleStep(sql="SELECT * EXCEPT (region), concat(region, 'ern') AS region FROM staged")
    good = Expectation("good", "region = 'northern'", ExpectationAction.DROP)
    outcome = sink.commit(
        sink.stage(rows({"a": "north", "b": "south"})), step=step, expectations=(good,)
    )
    assert (held(sink), dict(outcome.failed)) == ({"a": "northern"}, {"good": 1})


@pytest.mark.long
def test_function_may_run_python_on_the_executors(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage(rows({"a": "north"})), step=function("python_rows"))
    assert held(sink) == {"a": "NORTH"}
