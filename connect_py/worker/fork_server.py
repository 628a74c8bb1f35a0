"""`ForkServer`: a process that has imported what is slow, and from which children start in a
moment."""

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
    # pyarrow looks for it with the first values whose type it is to find out
    "dateutil.relativedelta",
    "connect_py.columns.arrow",
    "connect_py.task.task_process",
    "connect_py.worker.connector_process",
)
_starting = threading.Lock()


def _kill_children() -> None:
    """At the end of the process, before Python asks its children to end and joins them: ours ignore
    SIGTERM."""
    for child in multiprocessing.active_children():
        child.kill()


util.Finalize(None, _kill_children, exitpriority=10)


class ForkServer:
    """Starts children that share the imported libraries' memory. No client of anything is made in
    the server.

    One server serves a whole process: the modules of its first user are preloaded, others are
    imported by the children that need them.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """Name further modules to import, in order."""
        self._context = multiprocessing.get_context("forkserver")
        self._preload = [*PRELOAD, *preload]

    def start(self) -> None:
        """Start the server; it imports while this returns."""
        with _starting:
            self._context.set_forkserver_preload(self._preload)
            forkserver.ensure_running()

    def spawn(
        self, name: str, main: str, argument: object
    ) -> tuple[ForkServerProcess, Connection[Any, Any]]:
        """Start a child that runs `main(connection, argument)`; return it and our end of the
        pipe."""
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
    """Keep children from importing the worker's main module, and with it the web server and all the
    rest."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
