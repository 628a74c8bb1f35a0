"""A worker group against everything that may go wrong, seed by seed, on both cores.

`CONNECT_PY_SIM_SEEDS` sets how many seeds run, `CONNECT_PY_SIM_FIRST` where they begin.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter

import pytest
from herder_group_world import Fault, Switch, WrongWorldError, simulate

SEEDS = int(os.environ.get("CONNECT_PY_SIM_SEEDS", "10000"))
FIRST = int(os.environ.get("CONNECT_PY_SIM_FIRST", "0"))
CHUNK = 250
PROCESSES = 2


def run(first: int, count: int) -> Counter[Fault]:
    faults: Counter[Fault] = Counter()
    for seed in range(first, first + count):
        try:
            faults += simulate(seed).faults
        except WrongWorldError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return faults


def run_all(first: int, seeds: int) -> Counter[Fault]:
    chunks = [(start, min(CHUNK, first + seeds - start)) for start in range(first, first + seeds, CHUNK)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        faults = sum(pool.starmap(run, chunks, chunksize=1), Counter[Fault]())
        pool.close()
        pool.join()
    return faults


def check(seeds: int, first: int) -> None:
    faults = run_all(first, seeds)
    print({fault.name: faults[fault] for fault in Fault})
    if seeds >= 2_000:
        assert not [fault.name for fault in Fault if not faults[fault]], "a fault that never happened shows nothing"


@pytest.mark.timeout(60 + SEEDS * 0.06)  # 10 ms a seed on an idle core; other tests may share it
def test_after_any_storm_everything_runs_once_evenly_and_nothing_ever_ran_twice() -> None:
    check(SEEDS, FIRST)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_same_holds_for_many_more_storms() -> None:
    check(20 * SEEDS, FIRST + SEEDS)


def test_a_seed_always_takes_the_same_course() -> None:
    assert simulate(11).faults == simulate(11).faults
