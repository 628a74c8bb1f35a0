"""A child process that outlives its worker's lease exits."""

from __future__ import annotations

import subprocess
import sys

from connect_py.process.child_runtime import EXIT_LEASE_ENDED

CHILD = """
import time
from connect_py.clock import SystemClock
from connect_py.process.child_runtime import LeaseGuard
guard, now = LeaseGuard(), SystemClock().monotonic()
guard.extend(now + 60.0)
{change}
time.sleep(0.3)
"""


def outcome(change: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", CHILD.format(change=change)], timeout=60, check=False
    ).returncode


def test_process_ends_when_its_lease_does_and_not_before() -> None:
    assert outcome("") == 0
    assert outcome("guard.extend(now + 0.01)") == EXIT_LEASE_ENDED


def test_lease_can_be_taken_away_altogether() -> None:
    assert outcome("guard.extend(now + 0.2); guard.extend(None)") == 0
