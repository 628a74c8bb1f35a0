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


# Seeds that fail with a rule off, found by running a few thousand. A change to the protocol or to the world moves
# them; then the search below finds others, or says that the rule is not shown any more.
SEEDS_THAT_NEED: list[tuple[Rule | Switch, int]] = [
    (Rule.LEDGER_BOUND_TO_TABLE, 1),
    (Rule.ALL_POSITIONS_IN_EVERY_COMMIT, 7),
    (Rule.PROPERTY_BACKS_THE_LEDGER, 2),
    (Rule.GROUP_OFFSETS_NEED_OUR_MARK, 45),
    (Rule.EPOCH_ABOVE_EVERY_TRACE, 497),
    (Switch.HOLD_AT_UNOPENED_TABLE, 0),
    (Rule.REFILL_EXACTLY_FROM_LEDGER, 2),
    (Rule.LOWERED_GROUP_BEFORE_REFILL, 1),
    (Rule.OWNER_FOLLOWED_BEFORE_REFILL, 494),
    (Rule.PROOF_BEFORE_FIRST_LEDGER, 570),
    (Rule.REPORT_FILTERED_TABLES, 7),
    (Switch.ONE_RANGE_PER_CYCLE, 2079),
    (Rule.REPORTS_OF_OUR_START_ONLY, 10),
    (Rule.ACCEPT_CONTIGUOUS_ONLY, 55),
    (Rule.CHECK_FILTER_AND_FIRST, 7),
    (Switch.COMPARE_AND_SWAP, 0),
    (Switch.PROPERTY_IN_VERSION, 364),  # A-B-A: a roll-back to the snapshot that a late request was prepared on
    (Switch.LOOK_FOR_COMMIT_ID, 18),
    (Switch.KEEP_OLD_FILES_UNTIL_OWN_COMMIT, 18),
    (Rule.QUIET_TABLE_MOVES_WITHOUT_GAP, 7),
    (Switch.RAISE_GENERATION, 10),
    (Rule.NO_OLDER_GENERATION, 574),
    (Rule.TOPIC_ID_EVERYWHERE, 4),
]
MASKED_BY: dict[Rule | Switch, Rule] = {  # what the first prevents, the second catches: both are off
    Rule.ACCEPT_CONTIGUOUS_ONLY: Rule.OWNER_FOLLOWED_BEFORE_REFILL,
}
# These need a world where offsets are never altered while somebody starts: there they show sooner.
CALMER = {Rule.ACCEPT_CONTIGUOUS_ONLY, Switch.PROPERTY_IN_VERSION}
NEIGHBOURS = 150


@pytest.mark.parametrize(("rule", "hint"), SEEDS_THAT_NEED, ids=lambda value: getattr(value, "name", None))
def test_world_goes_wrong_without_the_rule(rule: Rule | Switch, hint: int) -> None:
    faults = [fault for fault in Fault if rule not in CALMER or fault is not Fault.OFFSETS_ALTERED_LATE]
    for seed in range(hint, hint + NEIGHBOURS):
        try:
            simulate(seed, frozenset({rule, MASKED_BY.get(rule, rule)}), faults)
        except WrongWorldError:
            return
    raise AssertionError(f"no seed from {hint} on shows what rule {rule.value} is for: search further")
