"""Going into the background, as Kafka's start scripts do with `-daemon`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def become_daemon(output_name: str) -> None:
    """Return in a process that no terminal controls; the calling process exits with status 0.

    Output goes to a file of this name in the folder LOG_DIR, `logs` unless set. Call before any
    thread starts.
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
