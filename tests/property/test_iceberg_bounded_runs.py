"""A connector that stops by itself, in the storms of the simulation: each row before its bound is
in once, no other."""

from __future__ import annotations

import pytest
from example_counts import examples
from iceberg_protocol_storm import Fault, WrongWorldError
from iceberg_protocol_world import World

SEEDS = examples(100)
# Bounds are of one topic and one generation: what begins anew has others. A catalog that is
# restored while nothing more comes for its tables is noticed by the next start.
_OTHERS = {
    Fault.TOPIC_REPLACED,
    Fault.OFFSETS_ALTERED,
    Fault.OFFSETS_ALTERED_LATE,
    Fault.OFFSETS_SKIPPED,
    Fault.REWIND_SKIPS,
    Fault.RETENTION_TOO_SOON,
    Fault.RESTORED,
}
FAULTS = tuple(fault for fault in Fault if fault not in _OTHERS)


@pytest.mark.timeout(60 + SEEDS * 0.5)
def test_storms_leave_exactly_the_rows_before_the_bounds() -> None:
    behind = 0
    for seed in range(SEEDS):
        world = World(seed, faults=FAULTS, bounded=True)
        try:
            world.run()
        except WrongWorldError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        behind += sum(len(world.logs[p.partition]) - world.wanted(p) for p in world.partitions())
    assert behind > 10 * SEEDS, "rows that are not wanted show what keeps them out"
