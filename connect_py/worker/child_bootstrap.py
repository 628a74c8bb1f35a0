"""First function of every child process. It imports the child's main function by name, so the
worker need not import it.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any


def run_child(
    main: str, environment: Mapping[str, str], connection: Connection[Any, Any], argument: object
) -> None:
    """Call `module:function` with the pipe and one argument, in the current environment of the
    worker.
    """
    # The fork server still has the environment of its own start.
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    threading.current_thread().name = main.partition(":")[2]
    module, _, function = main.partition(":")
    getattr(importlib.import_module(module), function)(connection, argument)
