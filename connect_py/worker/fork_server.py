"""`ForkServer`: a process with preloaded modules from which children start quickly."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import ModuleType
from typing import Any, Final

from connect_py.worker.child_bootstrap import run_child

PRELOAD: Final = (
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "msgspec",
    "confluent_kafka",
    "confluent_kafka.admin",
    # imported by pyarrow when it first infers a type
    "dateutil.relativedelta",
    "connect_py.columns.arrow",
    "connect_py.task.task_process",
    "connect_py.worker.connector_process",
)
_starting = threading.Lock()


def _kill_children() -> None:
    """Kill child processes on exit, before Python terminates and joins them: they ignore
    SIGTERM.
    """
    for child in multiprocessing.active_children():
        child.kill()


util.Finalize(None, _kill_children, exitpriority=10)


class ForkServer:
    """Starts children that share the memory of the imported libraries. The server creates no
    clients.

    One server serves the whole process: the modules of its first user are preloaded; children
    import the others as needed.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """Create the server with further modules to import, in order."""
        self._context = multiprocessing.get_context("forkserver")
        self._preload = [*PRELOAD, *preload]

    def start(self) -> None:
        """Start the server. It imports modules in the background."""
        with _starting:
            self._context.set_forkserver_preload(self._preload)
            forkserver.ensure_running()

    def spawn(
        self, name: str, main: str, argument: object
    ) -> tuple[ForkServerProcess, Connection[Any, Any]]:
        """Start a child that runs `main(connection, argument)`. Return the process and the parent's
        end of the pipe.
        """
        ours, theirs = self._context.Pipe(duplex=True)
        try:
            process = self._context.Process(
                target=run_child,
                args=(main, dict(os.environ), theirs, argument),
                name=name,
                daemon=True,
            )
            with _starting, _hidden_main():
                self._context.set_forkserver_preload(self._preload)
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Prevent children from importing the worker's main module, including the web server."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
