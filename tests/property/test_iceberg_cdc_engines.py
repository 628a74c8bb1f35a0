"""A small database, its change events, and both engines: the tables hold what the database holds.

Unlike `test_iceberg_engines_equal`, which begins with staged files, this begins with Debezium's events: they go to
partitions by their keys (or anywhere), are read at different paces, staged by the task's own stager, and committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixtures.iceberg_changes import Source, readers
from fixtures.iceberg_commit import Lake, lake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

__all__ = ["lake"]

UNSHRUNK = (Phase.explicit, Phase.generate)  # an example takes seconds: shrinking would take minutes

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


def thorough(examples: int) -> settings:
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks, phases=UNSHRUNK)


FEW_OR_MANY = pytest.mark.parametrize("examples", [3, pytest.param(60, marks=pytest.mark.long)])


@pytest.mark.timeout(1200)  # streams of up to four cycles, each through two engines
@FEW_OR_MANY
@pytest.mark.parametrize(("version", "marks"), [(2, False), (3, False), (3, True)])
def test_tables_of_both_engines_hold_what_the_database_holds(
    lake: Lake, version: int, marks: bool, examples: int
) -> None:
    """One partition, read at any pace: truncates, deletes, changed keys and unavailable values."""

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK
    )
    @given(CYCLES, st.lists(st.integers(0, 6), max_size=3))
    def check(cycles: list[list[Any]], lags: list[int]) -> None:
        run(lake, version, Source(1, by_key=True, marks=marks), cycles, lags)

    check()


@pytest.mark.timeout(1200)  # as above
@FEW_OR_MANY
@pytest.mark.parametrize("by_key", [True, False])
def test_ordered_changes_in_several_partitions_end_as_in_the_database(lake: Lake, by_key: bool, examples: int) -> None:
    several_partitions(lake, lambda: Source(3, by_key=by_key), examples)


@pytest.mark.long
@pytest.mark.timeout(1200)  # as above
def test_ordered_deletes_that_mark_in_several_partitions_end_as_in_the_database(lake: Lake) -> None:
    several_partitions(lake, lambda: Source(3, by_key=False, marks=True), 60)


def several_partitions(lake: Lake, source: Callable[[], Source], examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK
    )
    @given(CYCLES)
    def check(cycles: list[list[Any]]) -> None:
        run(lake, 3, source(), cycles, [])

    check()


@pytest.mark.timeout(1200)  # as above
@FEW_OR_MANY
def test_partitions_that_lag_change_nothing_around_truncates(lake: Lake, examples: int) -> None:
    """Rows from before a truncate that come after it stay out, rows from after it that came before stay in."""
    steps = STEPS.filter(lambda step: step[0] != "move")  # a value that was not read yet cannot be found

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK
    )
    @given(st.lists(st.lists(steps, min_size=2, max_size=9), min_size=2, max_size=3), st.lists(st.integers(0, 4)))
    def check(cycles: list[list[Any]], lags: list[int]) -> None:
        run(lake, 3, Source(3, by_key=True), cycles, lags)

    check()
