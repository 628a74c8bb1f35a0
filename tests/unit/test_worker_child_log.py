"""What the log of a task's process leaves out."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from types import SimpleNamespace
from connect_py.log_context import NOTHING
from connect_py.process.child_runtime import prepare_child

prepare_child(SimpleNamespace(), NOTHING, {})
root = logging.getLogger()
root.handlers = [logging.StreamHandler()]
library = compile('''
import logging
logging.info("tries again")
logging.error("gives up")
''', "/usr/lib/py4j/java_gateway.py", "exec")
exec(library)
logging.info("ours")
own = logging.getLogger("py4j.clientserver")
own.info("connects")
own.warning("is cut off")
"""


def test_py4js_lines_are_left_out_unless_they_are_serious() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.splitlines() == ["gives up", "ours", "is cut off"]
