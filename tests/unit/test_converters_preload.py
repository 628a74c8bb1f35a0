"""Modules that converters and transformations preload into the server that tasks are forked
from.
"""

from __future__ import annotations

import subprocess
import sys


def test_preloaded_modules_import_without_threads_of_python() -> None:
    program = (
        "import importlib, sys, threading; from connect_py import converters; import transforms\n"
        "for name in (*converters.PRELOAD, *transforms.PRELOAD): importlib.import_module(name)\n"
        "assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
