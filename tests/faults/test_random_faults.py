"""Random faults on a real broker, a real worker, and real tables; after each run, the tables equal
the source exactly.

`make faults SEEDS=100:200` runs these seeds, `SEEDS=7,40:45` a selection; without it, one fixed
seed runs. `CONNECT_PY_FAULT_RECORD` is a file for the events of several runs; `python
tests/faults/fault_record.py FILE` adds them up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from fault_bench import FaultBench
from fault_kinds import POINTS, Fault, Feature, plan_of, shape_of
from fault_record import FaultRecord
from fault_run import RUNS_PER_CONNECTOR, FaultRuns, WrongTableError

SHORT = range(1)
SEEDS = os.environ.get("CONNECT_PY_FAULT_SEEDS", "")
RECORD = os.environ.get("CONNECT_PY_FAULT_RECORD", "")
ALL_KINDS = 250  # that many runs meet every kind and every point


def seeds() -> Sequence[int]:
    """Return the seeds of `300`, `100:200`, or `7,40:45`."""
    if "," not in SEEDS and ":" not in SEEDS:
        return range(int(SEEDS)) if SEEDS else SHORT
    chosen: list[int] = []
    for item in filter(None, SEEDS.split(",")):
        first, _, last = item.partition(":")
        chosen += range(int(first), int(last or int(first) + 1))
    return chosen


def test_plans_cross_features_and_reach_every_point_and_kind() -> None:
    shapes = [shape_of(number) for number in range(10)]
    assert {(each.format_version, each.feature) for each in shapes} == {
        (version, feature) for version in (2, 3) for feature in Feature
    }
    plans = [
        planned
        for seed in range(ALL_KINDS)
        for planned in plan_of(
            seed,
            seed % RUNS_PER_CONNECTOR == 0,
            shape_of(seed // RUNS_PER_CONNECTOR).feature,
        )
    ]
    assert {each.point for each in plans if each.point is not None} == set(POINTS)
    assert {each.fault for each in plans} == set(Fault)


@pytest.mark.long  # in every run: test_worker_that_is_killed_loses_and_doubles_nothing
@pytest.mark.timeout(120 + 600 * len(seeds()))
def test_tables_equal_the_source_and_pass_audit_after_random_faults(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    record = FaultRecord(Path(RECORD) if RECORD else None)
    wrong: list[str] = []
    with FaultBench(tmp_path) as bench:
        runs = FaultRuns(bench)
        for seed in seeds():
            try:
                result = runs.run(seed)
            except WrongTableError as error:
                wrong.append(str(error))
                print(f"WRONG {error}", flush=True)
                record.failed(seed)
                if len(wrong) == 3 or not SEEDS:
                    break
                runs = FaultRuns(bench)
            else:
                print(result, flush=True)
                record.add(result)
    print(record.told())
    assert not wrong, "\n\n".join(wrong)
    if record.runs >= ALL_KINDS:
        assert not record.never(), f"never met: {record.never()}"
