"""Bounded connectors in the simulation: each row before its bound is committed once, no other."""

from __future__ import annotations

import pytest
from example_counts import examples
from iceberg_protocol_storm import Fault, WrongWorldError
from iceberg_protocol_world import World

SEEDS = examples(100)
# Bounds belong to one topic and one generation. If a catalog is restored while its tables receive
# no rows, only the next start notices it.
_EXCLUDED_FAULTS = {
    Fault.TOPIC_REPLACED,
    Fault.OFFSETS_ALTERED,
    Fault.OFFSETS_ALTERED_LATE,
    Fault.OFFSETS_SKIPPED,
    Fault.REWIND_SKIPS,
    Fault.RETENTION_TOO_SOON,
    Fault.RESTORED,
}
FAULTS = tuple(fault for fault in Fault if fault not in _EXCLUDED_FAULTS)


@pytest.mark.timeout(60 + SEEDS * 0.5)
def test_exactly_the_rows_before_the_bounds_are_committed_despite_faults() -> None:
    rows_after_bounds = 0
    for seed in range(SEEDS):
        world = World(seed, faults=FAULTS, bounded=True)
        try:
            world.run()
        except WrongWorldError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        rows_after_bounds += sum(
            len(world.logs[p.partition]) - world.required_end(p) for p in world.partitions()
        )
    assert rows_after_bounds > 10 * SEEDS
