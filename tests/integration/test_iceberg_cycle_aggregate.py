"""Tables that follow the commits of another one, on real tables, against dictionaries."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fixtures.iceberg_commit import ENGINES, KEY, Lake, Sink, lake, order
from short_form import short_form

from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitRequest, CommitStatus, EngineName
from connectors.iceberg.table.table import StagedKind, WriteMode

__all__ = ["lake"]

BY_REGION = (
    "SELECT region, sum(n) AS orders, sum(n * amount) AS amount FROM ("
    "SELECT region, amount, 1 AS n FROM staged UNION ALL SELECT region, amount, -1 FROM removed) "
    "GROUP BY region"
)
# with the number of the hit: the table is committed first, then the aggregate
POINTS = [
    ("before_aggregate", 1),
    ("after_aggregate", 1),
    ("before_compare_and_swap", 1),
    ("after_swap", 1),
    ("before_aggregate_commit", 1),
    ("before_compare_and_swap", 2),
    ("after_swap", 2),
    ("after_aggregate_commit", 1),
]
long_ = pytest.mark.long


@dataclass
class Followed:
    """A table whose orders are counted by region in another one, and what both should have."""

    sink: Sink
    sql: str = BY_REGION
    more: dict[str, Any] = field(default_factory=dict)
    orders: list[tuple[str, str]] = field(default_factory=list)  # number and region

    @property
    def aggregate(self) -> CycleAggregate:
        name = self.sink.name
        return CycleAggregate(
            f"{name}_by_region", self.sql, ("region",), ("orders", "amount"), name
        )

    def request(self, upserts: dict[str, str], deletes: Sequence[str] = ()) -> CommitRequest:
        files = self.sink.stage([order(1, number, region) for number, region in upserts.items()])
        if deletes:
            files += self.sink.stage(
                [{"shop": 1, "number": number} for number in deletes], StagedKind.DELETES
            )
        return self.sink.request(files, **{"aggregates": (self.aggregate,), **self.more})

    def landed(self, upserts: dict[str, str], deletes: Sequence[str] = ()) -> None:
        merged = self.sink.mode is WriteMode.MERGE
        kept = [
            (n, r) for n, r in self.orders if not merged or (n not in deletes and n not in upserts)
        ]
        self.orders = [*kept, *upserts.items()]

    def commit(self, upserts: dict[str, str], deletes: Sequence[str] = (), **more: Any) -> None:
        """One cycle that must land."""
        request = dataclasses.replace(self.request(upserts, deletes), **more)
        outcome = self.sink.committer().commit(request)
        assert outcome.status is CommitStatus.COMMITTED, outcome
        self.landed(upserts, deletes)

    def expected(self) -> dict[str, int]:
        regions = [region for _, region in self.orders]
        return {region: regions.count(region) for region in regions}

    def counted(self) -> dict[str, int]:
        rows = [dict(row) for row in self.sink.lake.rows(self.aggregate.table)]
        assert all(float(row["amount"]) == 1.25 * row["orders"] for row in rows), rows
        assert len({row["region"] for row in rows}) == len(rows), "a region has several rows"
        return {row["region"]: row["orders"] for row in rows if row["orders"]}

    def snapshots(self) -> int:
        return len(self.sink.lake.catalog.table(self.aggregate.table).metadata().snapshots)

    def is_exact(self) -> bool:
        found = [dict(row) for row in self.sink.rows("number, region")]
        assert sorted((row["number"], row["region"]) for row in found) == sorted(self.orders)
        assert self.counted() == self.expected()
        return True


@contextmanager
def at_point(
    monkeypatch: pytest.MonkeyPatch, point: tuple[str, int], act: Callable[[], None]
) -> Iterator[None]:
    hits = dict.fromkeys((name for name, _ in POINTS), 0)

    def come_by(name: str) -> None:
        if name in hits:
            hits[name] += 1
            if (name, hits[name]) == point:
                act()

    with monkeypatch.context() as patch:
        for module in ("rules.aggregates", "engine"):
            patch.setattr(f"connectors.iceberg.commit.{module}.fault_point", come_by)
        yield
    assert hits[point[0]] >= point[1], f"{point} was not reached"


def die() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("version", [pytest.param(2, marks=long_), 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_aggregate_follows_upserts_and_deletes_of_each_commit(
    lake: Lake, engine: EngineName, version: int
) -> None:
    followed = Followed(lake.make(version=version))
    cycles: list[tuple[dict[str, str], Sequence[str]]] = [
        ({"a": "north", "b": "south", "c": "north"}, ()),
        ({"a": "south", "d": "west"}, ("b",)),
        ({"e": "north"}, ("d", "no such order")),
    ]
    for upserts, deletes in cycles:
        outcome = followed.sink.committer(engine).commit(followed.request(upserts, deletes))
        assert outcome.snapshot_id is not None, outcome
        followed.landed(upserts, deletes)
        assert followed.is_exact()
    assert followed.snapshots() == len(cycles)


@pytest.mark.parametrize("mode", [WriteMode.APPEND, pytest.param(WriteMode.MERGE, marks=long_)])
@pytest.mark.parametrize(("point", "hit"), short_form(POINTS, [POINTS[4]]))
def test_aggregate_is_exact_after_a_death_at_each_point(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, point: str, hit: int, mode: WriteMode
) -> None:
    """The next coordinator either repeats the same commit, or continues with the current table."""
    followed = Followed(lake.make(mode=mode))
    followed.commit({"a": "north", "b": "south"})
    request = followed.request(rows := {"a": "south", "c": "west"})
    with at_point(monkeypatch, (point, hit), die), pytest.raises(KeyboardInterrupt):
        followed.sink.committer().commit(request)
    assert followed.sink.committer().commit(request).status is CommitStatus.COMMITTED
    followed.landed(rows)
    assert followed.is_exact()
    assert followed.snapshots() == 2, "a commit is in it twice, or it was made anew"


@long_
@pytest.mark.parametrize("seed", range(6))
def test_aggregate_is_exact_under_random_deaths_and_successors(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    mode = chance.choice((WriteMode.MERGE, WriteMode.APPEND))
    followed = Followed(lake.make(version=chance.choice((2, 3)), mode=mode))
    for cycle in range(6):
        keys = (
            chance.sample("abcdefgh", 4)
            if mode is WriteMode.MERGE
            else [f"{cycle}{n}" for n in range(4)]
        )
        rows = {key: chance.choice("nsw") for key in keys[:3]}
        request = followed.request(rows, keys[3:] if mode is WriteMode.MERGE else ())
        with at_point(monkeypatch, chance.choice(POINTS), die), pytest.raises(KeyboardInterrupt):
            followed.sink.committer().commit(request)
        landed = followed.sink.version() != request.expected
        if landed and chance.random() < 0.5:  # the next coordinator opens the table and sees that
            lake.catalog.settle(followed.sink.name, KEY)
        else:
            assert followed.sink.committer().commit(request).status is CommitStatus.COMMITTED
        followed.landed(rows, keys[3:] if mode is WriteMode.MERGE else ())
        assert followed.is_exact()


@pytest.mark.long  # in every run: test_aggregate_is_exact_after_a_death_at_each_point
def test_sleeper_between_both_swaps_changes_nothing_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator is suspended after the swap of the table. The next one continues before the
    first one resumes.
    """
    followed = Followed(lake.make(mode=WriteMode.APPEND))
    followed.commit({"a": "north"})
    request = followed.request(rows := {"b": "north"})
    asleep = []

    def sleep() -> None:
        if not asleep:
            asleep.append(True)
            followed.landed(rows)
            followed.commit({"c": "south"})
            followed.commit({"d": "north"})

    with at_point(monkeypatch, ("before_aggregate_commit", 1), sleep):
        assert followed.sink.committer().commit(request).status is CommitStatus.COMMITTED
    assert followed.is_exact()
    assert followed.snapshots() == 4


def test_table_that_opens_after_a_crash_settles_its_aggregate(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(lake.make(mode=WriteMode.APPEND))
    request = followed.request(rows := {"a": "north"})
    with (
        at_point(monkeypatch, ("before_aggregate_commit", 1), die),
        pytest.raises(KeyboardInterrupt),
    ):
        followed.sink.committer().commit(request)
    followed.landed(rows)
    assert followed.counted() == {}
    lake.catalog.settle(followed.sink.name, KEY)
    assert followed.is_exact()


def roll_back(followed: Followed) -> None:
    metadata = followed.sink.lake.catalog.table(followed.sink.name).metadata()
    first = min(metadata.snapshots.values(), key=lambda each: each["sequence-number"])[
        "snapshot-id"
    ]
    followed.sink.lake.sql(
        f"CALL lake.system.rollback_to_snapshot('{followed.sink.name}', {first})"
    )
    followed.orders = [("a", "north"), ("b", "south")]


def delete_by_hand(followed: Followed) -> None:
    followed.sink.lake.sql(f"DELETE FROM lake.{followed.sink.name} WHERE number = 'a'")
    followed.orders = [each for each in followed.orders if each[0] != "a"]


def drop(followed: Followed) -> None:
    followed.sink.lake.sql(f"DROP TABLE lake.{followed.aggregate.table}")


def empty_by_rollback(followed: Followed) -> None:
    metadata = followed.sink.lake.catalog.table(followed.aggregate.table).metadata()
    first = min(metadata.snapshots.values(), key=lambda each: each["sequence-number"])[
        "snapshot-id"
    ]
    followed.sink.lake.sql(
        f"CALL lake.system.rollback_to_snapshot('{followed.aggregate.table}', {first})"
    )


def ask_otherwise(followed: Followed) -> None:
    followed.sql = f"SELECT region, orders, amount FROM ({BY_REGION}) WHERE region <> 'none'"


def commit_without(followed: Followed) -> None:
    followed.commit({"x": "west"}, aggregates=())


@long_  # in every run: test_table_that_opens_after_a_crash_settles_its_aggregate
@pytest.mark.parametrize(
    "event", [roll_back, delete_by_hand, drop, empty_by_rollback, ask_otherwise, commit_without]
)
def test_aggregate_out_of_step_is_made_anew_once(
    lake: Lake, caplog: pytest.LogCaptureFixture, event: Callable[[Followed], None]
) -> None:
    followed = Followed(lake.make())
    followed.commit({"a": "north", "b": "south"})
    followed.commit({"c": "west"})
    event(followed)
    caplog.clear()
    with caplog.at_level("INFO", "connectors.iceberg.commit.rules.aggregates"):
        followed.commit({"b": "north", "d": "west"})
        assert followed.is_exact()
        followed.commit({"e": "west"}, ("b",))
    assert followed.is_exact()
    assert sum("rebuilding from all rows" in text for text in caplog.messages) == 1


@long_
def test_compaction_of_either_table_leaves_the_aggregate_in_step(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    followed = Followed(lake.make(mode=WriteMode.APPEND))
    followed.commit({"a": "north", "b": "south"})
    followed.commit({"c": "west"})
    caplog.clear()
    for name in (followed.sink.name, followed.aggregate.table):
        options = "map('rewrite-all', 'true')"
        lake.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => {options})")
    with caplog.at_level("INFO", "connectors.iceberg.commit.rules.aggregates"):
        followed.commit({"d": "north"})
    assert followed.is_exact()
    assert not [text for text in caplog.messages if "rebuilding from all rows" in text]


@long_
def test_highest_of_each_group_is_asked_of_the_rows_after(lake: Lake) -> None:
    """Values that cannot be derived from sums are computed again for the changed groups."""
    sql = (
        "SELECT region, max(number) AS last, count(*) AS orders, sum(amount) AS amount FROM after "
        "WHERE region IN "
        "(SELECT region FROM staged UNION SELECT region FROM removed) GROUP BY region"
    )
    followed = Followed(lake.make())
    aggregate = dataclasses.replace(followed.aggregate, sql=sql, add=())
    for upserts in ({"a": "north", "b": "north"}, {"b": "south", "c": "south"}, {"c": "north"}):
        followed.commit(upserts, aggregates=(aggregate,))
    found = [dict(row) for row in lake.rows(aggregate.table)]
    assert {row["region"]: row["last"] for row in found} == {"north": "c", "south": "b"}


@long_
def test_unpublished_rows_reach_the_aggregate_once_they_are_published(lake: Lake) -> None:
    branch = "connect-py-unpublished-test"
    hold = Expectation("good", "region <> 'bad'", ExpectationAction.HOLD)
    followed = Followed(lake.make(), more={"unpublished_branch": branch, "expectations": (hold,)})
    followed.commit({"a": "north"})
    version = followed.sink.version()
    followed.commit({"b": "bad"})
    assert followed.counted() == {"north": 1}
    lake.sql(f"CALL lake.system.fast_forward('{followed.sink.name}', 'main', '{branch}')")
    assert followed.sink.version() != version
    followed.commit({"c": "south"})
    assert followed.is_exact()


WRONG = [
    (
        "SELECT nothing FROM staged",
        r"cycle-aggregate\.\S+ failed, so nothing is committed: .*nothing",
    ),
    (
        "SELECT region, 1 AS orders, 1.0 AS amount FROM staged",
        r"several rows with the same key \(\('north',\)\)",
    ),
    ("SELECT region, 1 AS orders FROM staged LIMIT 1", "returns no column amount"),
    (
        "SELECT s.region, 1 orders, 1 amount FROM staged s, current c",
        "reads current, and table .* does not exist",
    ),
    ("SELECT region, 1/0 AS orders, 1 AS amount FROM staged LIMIT 1", "[Dd]ivision by zero"),
]


@pytest.mark.parametrize(("sql", "why"), short_form(WRONG, WRONG[:1]))
def test_query_that_fails_is_reported_and_commits_nothing(lake: Lake, sql: str, why: str) -> None:
    followed = Followed(lake.make(mode=WriteMode.APPEND), sql)
    request = followed.request({"a": "north", "b": "north"})
    with pytest.raises(TableUnsuitableError, match=why):
        followed.sink.committer().commit(request)
    assert followed.sink.rows() == []
    mended = dataclasses.replace(
        request, aggregates=(dataclasses.replace(followed.aggregate, sql=BY_REGION),)
    )
    assert followed.sink.committer().commit(mended).status is CommitStatus.COMMITTED
    followed.landed({"a": "north", "b": "north"})
    assert followed.is_exact()


@long_
def test_table_with_rows_of_its_own_is_not_overwritten(lake: Lake) -> None:
    followed = Followed(lake.make(mode=WriteMode.APPEND))
    name = f"lake.{followed.aggregate.table}"
    lake.sql(
        f"CREATE TABLE {name} USING iceberg AS SELECT 'north' AS region, 7L AS orders, 8.75 AS "
        f"amount"
    )
    with pytest.raises(TableUnsuitableError, match="has rows that are not from this aggregate"):
        followed.sink.committer().commit(followed.request({"a": "north"}))
    assert followed.counted() == {"north": 7}
