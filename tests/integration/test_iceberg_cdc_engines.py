"""A small database, its change events, and both engines: the tables equal the database.

Unlike `test_iceberg_engines_equal`, which begins with staged files, this test begins with
Debezium's events: they are sent to partitions by their keys (or anywhere), read at different
speeds, staged by the task's stager, and committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from fixtures.iceberg_changes import Form, Source, readers
from fixtures.iceberg_commit import Lake, lake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.iceberg.protocol.commit_request import EngineName

__all__ = ["lake"]


# an example takes seconds: shrinking would take minutes
UNSHRUNK = (Phase.explicit, Phase.generate)

IDS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("write"), IDS, st.sampled_from(["north", "south"]), st.booleans()),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("move"), IDS, IDS),
    st.tuples(st.just("write"), IDS, st.sampled_from(["north", None]), st.booleans()),
    st.tuples(st.just("truncate")),
)
CYCLES = st.lists(st.lists(STEPS, min_size=1, max_size=9), min_size=2, max_size=3)


def run(lake: Lake, version: int, source: Source, cycles: list[list[Any]], lags: list[int]) -> None:
    """`lags`: how far reading stays behind, by cycle and partition, until the last cycle."""
    made = list(readers(lake, version, source))
    behind = iter(lags)
    for number, steps in enumerate([*cycles, []]):
        for step in steps:
            source.apply(step)
        at = [0 if number == len(cycles) else next(behind, 0) for _ in range(source.partitions)]
        for reader in made:
            reader.take(source, at)
    for reader in made:
        assert reader.rows() == source.expected(), (reader.engine, cycles, lags)


# streams of up to four cycles, each through two engines
thorough = settings(
    max_examples=20,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=UNSHRUNK,
)
SEEDS = range(20)
pytestmark = pytest.mark.timeout(1200)


@pytest.mark.long  # in every run: test_corpus_replay.py
@pytest.mark.parametrize(("version", "marks"), [(2, False), (3, False), (3, True)])
def test_tables_of_both_engines_hold_what_the_database_holds(
    lake: Lake, version: int, marks: bool
) -> None:
    """One partition, read at any pace: truncates, deletes, changed keys and unavailable values."""

    @thorough
    @given(CYCLES, st.lists(st.integers(0, 6), max_size=3))
    def check(cycles: list[list[Any]], lags: list[int]) -> None:
        run(lake, version, Source(1, by_key=True, marks=marks), cycles, lags)

    check()


@pytest.mark.long
@pytest.mark.parametrize("by_key", [True, False])
def test_ordered_changes_in_several_partitions_end_as_in_the_database(
    lake: Lake, by_key: bool
) -> None:
    several_partitions(lake, lambda: Source(3, by_key=by_key))


@pytest.mark.long
@pytest.mark.timeout(1200)  # as above
def test_ordered_soft_deletes_from_several_partitions_match_the_database(lake: Lake) -> None:
    several_partitions(lake, lambda: Source(3, by_key=False, marks=True))


def several_partitions(lake: Lake, source: Callable[[], Source]) -> None:
    @thorough
    @given(CYCLES)
    def check(cycles: list[list[Any]]) -> None:
        run(lake, 3, source(), cycles, [])

    check()


@pytest.mark.long
def test_partitions_that_lag_change_nothing_around_truncates(lake: Lake) -> None:
    """Rows from before a truncate that arrive late are ignored; later rows that arrive early are
    kept.
    """
    # a value that was not read yet cannot be found
    steps = STEPS.filter(lambda step: step[0] != "move")

    @thorough
    @given(
        st.lists(st.lists(steps, min_size=2, max_size=9), min_size=2, max_size=3),
        st.lists(st.integers(0, 4)),
    )
    def check(cycles: list[list[Any]], lags: list[int]) -> None:
        run(lake, 3, Source(3, by_key=True), cycles, lags)

    check()


KINDS = [  # form, whether events contain their position, whether the connector orders by it
    (Form.ENVELOPE, True, True),
    *((form, place, False) for form in Form for place in (True, False)),
]


@pytest.mark.long  # in every run: test_changed_key_finds_its_values_after_its_delete_was_committed
@pytest.mark.parametrize(
    ("version", "engine"),
    [(3, EngineName.MERGE), (2, EngineName.MERGE), (3, EngineName.FULL_MERGE)],
)
def test_rows_with_changed_keys_keep_values_in_any_reading_order(
    lake: Lake, version: int, engine: EngineName
) -> None:
    """Keys are used again and changed back; each partition is read at its own pace, and waits where
    tasks do."""
    waits = 0
    for seed in SEEDS:
        try:
            waits += read_history(lake, version, engine, seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert waits, "inserts that never had to wait show nothing"


def read_history(lake: Lake, version: int, engine: EngineName, seed: int) -> int:
    """One history of a table, to its end; returns how often a partition had to wait."""
    draw = random.Random(f"{version} {engine} {seed}")
    partitions = draw.choice((1, 2, 3, 3, 4))
    form, place, ordered = draw.choice(KINDS)
    source = Source(partitions, by_key=True, place=place, ordered=ordered, form=form)
    (reader,) = readers(lake, version, source, [engine])
    # In several partitions without an order, it is unknown which rows precede a truncate.
    truncates = source.is_ordered or (partitions == 1 and form is Form.ENVELOPE)
    for _ in range(draw.randrange(2, 5)):
        for _ in range(draw.randrange(2, 14)):
            kind = draw.choice(["write"] * 3 + ["move"] * 6 + ["delete"] + ["truncate"] * truncates)
            ids = draw.sample(range(1, 6), 2)
            match kind:
                case "write":
                    source.apply((kind, ids[0], draw.choice(["north", None]), draw.random() < 0.5))
                case "move":
                    old = draw.choice([*source.rows] or ids)
                    source.apply((kind, old, ids[0]))
                case "delete":
                    source.apply((kind, ids[0]))
                case "truncate" if draw.random() < 0.3:
                    source.apply((kind,))
        reader.take_as_tasks_do(
            source, [draw.choice((0, 0, draw.randrange(10))) for _ in range(partitions)]
        )
    reader.take_as_tasks_do(source, [0] * partitions)
    assert reader.read == [len(log) for log in source.log], (
        "a partition waits for something that can be read"
    )
    assert reader.rows() == source.rows
    assert not reader.sink.description().open_pairs
    return reader.waits
