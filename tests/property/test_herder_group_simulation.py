"""Simulation of a worker group with random faults, on two cores.

`CONNECT_PY_SIM_SEEDS` is the number of seeds, `CONNECT_PY_SIM_FIRST` is the first seed.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter

import pytest
from example_counts import examples
from herder_group_world import CALM_SECONDS, Fault, Switch, World, WrongWorldError, simulate

SEEDS = int(os.environ.get("CONNECT_PY_SIM_SEEDS", examples(2_400)))
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
    chunks = [
        (start, min(CHUNK, first + seeds - start)) for start in range(first, first + seeds, CHUNK)
    ]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        faults = sum(pool.starmap(run, chunks, chunksize=1), Counter[Fault]())
        pool.close()
        pool.join()
    return faults


def check(seeds: int, first: int) -> None:
    faults = run_all(first, seeds)
    print({fault.name: faults[fault] for fault in Fault})
    if seeds >= 2_000:
        assert not [fault.name for fault in Fault if not faults[fault]]


@pytest.mark.timeout(
    60 + SEEDS * 0.06
)  # 10 ms per seed on an idle core, which other tests may share
def test_each_item_runs_once_and_balanced_after_faults() -> None:
    check(SEEDS, FIRST)


@pytest.mark.long
@pytest.mark.seeds
@pytest.mark.timeout(7200)
def test_each_item_runs_once_and_balanced_in_many_more_runs() -> None:
    check(200_000, FIRST + SEEDS)


def test_seed_determines_the_run() -> None:
    assert simulate(11).faults == simulate(11).faults


# Seeds that fail if a rule is disabled. They change with the rules and the simulation. Then the
# test searches the following seeds, and fails if none of them needs the rule.
FAILING_SEEDS = [
    (Switch.STOP_AT_END_OF_LEASE, 10),
    (Switch.REFUSE_LATE_ACKNOWLEDGEMENT, 233),
    (Switch.READ_TO_END_BEFORE_BURIAL, 4),
    (Switch.WAIT_FOR_CONFIRMATION, 10),
    (Switch.WAIT_FOR_INHERITED, 19),
    (Switch.DISTRUST_EMPTY_TOPIC, 19),
    (Switch.IGNORE_LOWER_EPOCHS, 10),
]
SEARCHED_SEEDS = 150


def test_every_switch_has_a_failing_seed() -> None:
    assert {rule for rule, _ in FAILING_SEEDS} == set(Switch)


@pytest.mark.parametrize(
    ("rule", "hint"), FAILING_SEEDS, ids=lambda value: getattr(value, "name", None)
)
def test_simulation_fails_without_the_rule(rule: Switch, hint: int) -> None:
    for seed in range(hint, hint + SEARCHED_SEEDS):
        try:
            simulate(seed, {rule})
        except WrongWorldError:
            return
    raise AssertionError(
        f"no seed from {hint} on fails without rule {rule.name}: search more seeds"
    )


QUIET_SEEDS = range(25)


def quiet(seed: int, max_delay: float) -> World:
    world = World(seed, max_delay=max_delay)
    world.start_quietly(3)
    world.verify()
    return world


@pytest.mark.parametrize("seed", QUIET_SEEDS)
def test_worker_back_within_delay_gets_only_its_own_work(seed: int) -> None:
    world = quiet(seed, 10.0)
    before, node = world.whereabouts(), world.random.choice(world.alive())
    if world.random.random() < 0.5:
        world.kill(node, 1.0)
    else:
        node.leaving = True
        world.wake(node, world.now)
        world.at(world.now + 3.0, lambda: world.kill(node, 0.5))
    world.run_until(world.now + CALM_SECONDS)
    world.verify()
    assert world.whereabouts() == before


@pytest.mark.parametrize("seed", QUIET_SEEDS)
def test_change_of_leader_restarts_no_connector_or_task(seed: int) -> None:
    world = quiet(seed, 0.0)
    started = world.starts_of_items
    for _ in range(3):
        world.give_ownership(world.random.choice(world.alive()))
        world.run_until(world.now + 5.0)
    assert world.starts_of_items == started


@pytest.mark.parametrize("seed", QUIET_SEEDS)
def test_work_stays_in_place_after_broker_or_worker_outage(seed: int) -> None:
    world = quiet(seed, 10.0)
    before = world.whereabouts()
    if seed % 2:
        world.broker_away_until = world.now + 12.0
    else:
        for node in world.alive():
            world.kill(node, 1.0)
    world.run_until(world.now + 2 * CALM_SECONDS)
    world.verify()
    assert world.whereabouts() == before


@pytest.mark.parametrize("seed", QUIET_SEEDS)
def test_joining_and_leaving_workers_move_no_more_than_they_must(seed: int) -> None:
    world = quiet(seed, 0.0)
    before, started = world.whereabouts(), world.starts_of_items
    joined = world.join("w9")
    world.run_until(world.now + CALM_SECONDS)
    world.verify()
    after = world.whereabouts()
    assert all(after[item] in (before[item], "w9") for item in before)
    assert world.starts_of_items - started == sum(url == "w9" for url in after.values())
    world.kill(joined, None)
    world.run_until(world.now + CALM_SECONDS)
    world.verify()
    last = world.whereabouts()
    assert all(last[item] == url for item, url in after.items() if url != "w9")
