"""Executes a program that is killed when its parent exits.

Usage: `python -I -S child_launcher.py PARENT COMMAND...`

Children that run Python code call `die_with_parent` directly. This file imports only the standard
library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int | None = None) -> None:
    """Request that the kernel kill this process when the thread that forked it ends (Linux only).

    `parent` is the ID of the expected parent process. If that process has already exited, this
    process exits immediately.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
