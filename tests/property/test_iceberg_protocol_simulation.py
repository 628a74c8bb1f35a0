"""The exactly-once protocol against everything that may go wrong, seed by seed.

`CONNECT_PY_SIM_SEEDS` sets how many seeds run, `CONNECT_PY_SIM_FIRST` where they begin.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from iceberg_protocol_world import Fault, Switch, WrongWorldError, simulate

from connectors.iceberg.protocol.rules import Rule

SEEDS = int(os.environ.get("CONNECT_PY_SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("CONNECT_PY_SIM_FIRST", "0"))


@pytest.mark.timeout(60 + SEEDS * 0.3)  # 30 ms a seed on an idle core; other tests may share it
def test_after_any_storm_each_row_is_in_exactly_once() -> None:
    faults: Counter[Fault] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            faults += simulate(seed).faults
        except WrongWorldError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    print({fault.name: faults[fault] for fault in Fault})
    if SEEDS >= 500:
        assert not [fault.name for fault in Fault if not faults[fault]], "a fault that never happened shows nothing"


def test_a_seed_always_takes_the_same_course() -> None:
    assert simulate(11).faults == simulate(11).faults
