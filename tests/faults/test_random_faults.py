"""Random faults on a real broker, a real worker and real tables; after each run the tables equal
the source exactly.

`make faults SEEDS=100:200` runs these seeds; without it one fixed seed runs.
`CONNECT_PY_FAULT_RECORD` names a file that keeps what was met over several runs; `python
tests/faults/fault_record.py FILE` sums it up.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fault_bench import FaultBench
from fault_record import FaultRecord
from fault_run import FaultRuns, WrongTableError

SHORT = range(1)
SEEDS = os.environ.get("CONNECT_PY_FAULT_SEEDS", "")
RECORD = os.environ.get("CONNECT_PY_FAULT_RECORD", "")
ALL_KINDS = 250  # that many runs meet every kind and every point


def seeds() -> range:
    if not SEEDS:
        return SHORT
    first, _, last = SEEDS.partition(":")
    return range(int(first), int(last)) if last else range(int(first))


@pytest.mark.long  # in every run: test_worker_that_is_killed_loses_and_doubles_nothing
@pytest.mark.timeout(120 + 200 * len(seeds()))
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
