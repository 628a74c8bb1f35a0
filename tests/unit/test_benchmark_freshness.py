"""Computations of the freshness benchmark, from produce times and commit times."""

from __future__ import annotations

import pytest
from catalog_watch import Commit
from freshness import Produced, Trend, commit_seconds, visible_at

PRODUCED = Produced({0: [1000, 2000, 3000], 1: [1500, 2500]})
FIRST = Commit(2600, epoch=1, cycle=1, next={0: 1, 1: 1})
SECOND = Commit(3600, epoch=1, cycle=2, next={0: 3, 1: 2})


def test_lag_before_first_commit_counts_from_the_oldest_record() -> None:
    assert visible_at([FIRST, SECOND], 2100) is None
    assert PRODUCED.behind(2100, None) == 3
    assert PRODUCED.lag_seconds(2100, None) == pytest.approx(1.1)


def test_after_a_commit_the_oldest_record_beyond_it_counts() -> None:
    seen = visible_at([FIRST, SECOND], 3100)
    assert seen is FIRST
    assert PRODUCED.behind(3100, seen) == 3
    assert PRODUCED.lag_seconds(3100, seen) == pytest.approx(1.1)


def test_nothing_is_behind_a_commit_that_covers_all() -> None:
    assert PRODUCED.behind(4000, SECOND) == 0
    assert PRODUCED.lag_seconds(4000, SECOND) == 0


def test_each_record_ages_until_the_commit_that_brings_it() -> None:
    assert sorted(PRODUCED.ages_at_sight([FIRST, SECOND]).to_pylist()) == pytest.approx(
        [0.6, 1.1, 1.6]
    )


def test_a_commit_takes_from_the_start_of_its_cycle() -> None:
    assert commit_seconds([FIRST, SECOND], {(1, 2): 3000}) == pytest.approx([0.6])


def test_trend_is_flat_when_gain_stays_within_its_limits() -> None:
    times = [0.0, 1.0, 2.0]
    assert Trend.of("lag", times, [10, 10.5, 11], part=0.2, least=0.5).flat
    assert not Trend.of("lag", times, [10, 12, 14], part=0.2, least=0.5).flat
    assert Trend.of("lag", times, [0.1, 0.2, 0.3], part=0.2, least=0.5).flat
