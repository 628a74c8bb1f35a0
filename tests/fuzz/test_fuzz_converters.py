"""The short form of `make fuzz`: each converter for some seconds; the watching process finds
planted errors.
"""

from __future__ import annotations

import pytest
from fuzz_planted import PLANTED
from fuzz_run import FuzzRun
from fuzz_targets import TARGETS

SECONDS = 1.0
SEED = 1  # `make fuzz` takes another one each time
PLANTED_SECONDS = 6.0  # the start of a child on a busy machine among them


@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_hostile_schemas_and_bytes_end_no_process_and_forms_agree(target: str) -> None:
    result = FuzzRun(target, seed=SEED).run(seconds=SECONDS)
    print(result.summary())
    assert not result.findings, result.described()
    assert result.tally.rows > result.tally.refused


@pytest.mark.parametrize("target", [target.name for target in PLANTED])
def test_a_planted_fault_is_found_and_the_run_goes_on(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = FuzzRun(target, seed=1, case_seconds=PLANTED_SECONDS).run(cases=4)
    (finding,) = result.findings.values()
    assert (finding.case, result.tally.cases) == (2, 4)
    assert finding.kind == {"planted_hang": "hangs", "planted_crash": "dies with status -11"}.get(
        target, "MemoryError"
    )
    assert f"make fuzz TARGET={target} SEED=1 CASE=2" in capsys.readouterr().out
