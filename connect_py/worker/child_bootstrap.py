"""The first function of every child: imports its main function by name, so that the worker never
has to."""

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
    """Call `module:function` with the pipe and one argument, under the worker's environment of
    now."""
    # The server that forked us still has the environment of the time when it was started.
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    threading.current_thread().name = main.partition(":")[2]
    module, _, function = main.partition(":")
    getattr(importlib.import_module(module), function)(connection, argument)
