"""Runs the process as a daemon, like `-daemon` in Kafka's start scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def become_daemon(output_name: str) -> None:
    """Continue in a process without a terminal. The calling process exits with status 0.

    Output is written to a file with this name in the folder LOG_DIR, by default `logs`. Call this
    function before any thread is started.
    """
    folder = Path(os.environ.get("LOG_DIR", "logs"))
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    output = os.open(folder / output_name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
