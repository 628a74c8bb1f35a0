"""Children of the fork server, which ignore the signals that end a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHILD = """
import signal, time
def main(channel, argument):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.notify("ready")
    time.sleep(600)
"""
PROGRAM = """
from connect_py.process.fork_server import ForkServer
from multiprocessing import Pipe
ours, theirs = Pipe()
ForkServer().launch("stubborn", "stubborn_child:main", None, theirs)
assert ours.recv() == "ready"
raise SystemExit(3)
"""


def test_process_ends_despite_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    (tmp_path / "stubborn_child.py").write_text(CHILD)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert (
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, timeout=60, check=False
        ).returncode
        == 3
    )
