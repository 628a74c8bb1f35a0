"""Runs a command as a lane of `make test`: its lines begin with the lane's name, the last one says
how long it took.

python tests/lane.py parts pytest tests/integration
"""

from __future__ import annotations

import subprocess
import sys
import time

WIDTH = 10


def main(lane: str, *command: str) -> int:
    """Run `command`, print each of its lines when it is whole, and return its status."""
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            _say(lane, line.decode(errors="replace").rstrip("\n"))
    outcome = "passed" if process.returncode == 0 else f"failed with status {process.returncode}"
    _say(lane, f"{outcome} after {time.monotonic() - started:.0f} s")
    return process.returncode


def _say(lane: str, line: str) -> None:
    print(f"{lane:{WIDTH}}| {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
